"""Temporary groups go with their last consumer; what they held back is told until then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tarry.node.config import Dispatch
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.replication.loop_holds import Holds
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, leader, subscription, until

OFTEN = Dispatch(retention_check_ms=10)


def groups(lead: Leader) -> list[str]:
    return lead.machine.queues.groups_of(lead.machine.queues.of(TOPIC).queue)


async def opened(lead: Leader, request: consumer_pb.ConsumeRequest) -> Stream:
    stream = Stream(lead.edge, request)
    assert (await stream.answer()).WhichOneof("response") == "subscribed"
    return stream


async def made(lead: Leader, **more: Any) -> None:
    calls = lead._operator._topic_calls
    await calls._create_group(pb.CreateGroupRequest(topic=TOPIC, group=GROUP, **more))


async def test_a_temporary_group_is_deleted_as_its_last_consumer_leaves(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        first = await opened(lead, subscription("a", 1, temporary=True))
        second = await opened(lead, subscription("b", 1, temporary=True))
        await first.leave()
        assert groups(lead) == [GROUP]
        await second.leave()
        assert groups(lead) == []


async def test_no_consumer_takes_a_group_with_it_that_it_has_not_made_temporary(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await made(lead)
        await (await opened(lead, subscription("a", 1, temporary=True))).leave()
        assert groups(lead) == [GROUP]
        await lead.delete_topic(TOPIC)
        await (await opened(lead, subscription("a", 1))).leave()
        await (await opened(lead, subscription("a", 1, temporary=True))).leave()
        assert groups(lead) == [GROUP]


async def test_a_group_that_an_operator_wants_stays_though_a_consumer_made_it(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        stream = await opened(lead, subscription("a", 1, temporary=True))
        await made(lead)
        await stream.leave()
        assert groups(lead) == [GROUP]


async def test_the_position_of_a_broadcast_consumer_without_a_name_is_temporary(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        nameless = await opened(lead, subscription("", 1, broadcast=True))
        named = await opened(lead, subscription("a", 1, broadcast=True))
        assert len(groups(lead)) == 2
        await nameless.leave()
        await named.leave()
        assert groups(lead) == [f"{GROUP}~a"]


async def test_a_temporary_group_whose_consumer_has_died_is_deleted_soon(tmp_path: Path) -> None:
    settings = Dispatch(retention_check_ms=10, temporary_group_ms=100)
    async with leader(tmp_path, Holds(), dispatch=settings) as lead:
        stream = await opened(lead, subscription("a", 1, temporary=True))
        stream.ended.cancel()  # as a stream that breaks
        await asyncio.wait([stream.ended])
        lead.group()._used_ms = 0  # its lease is over
        await until(lambda: not groups(lead))


async def test_what_a_group_holds_back_is_told_in_bytes(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=OFTEN) as lead:
        await made(lead, expiry_ms=5_000)
        await lead.ready(100)
        queue, retention = lead.machine.queues.of(TOPIC), lead.node.leadership.retention
        assert retention is not None
        await until(lambda: retention.bytes.from_offset(queue.queue, 99))
        (status,) = (await lead.topics.one(queue)).groups
        assert 100 * 100 < status.held_bytes < 100 * 250
        assert (status.expiry_ms, status.used_ms > 0) == (5_000, True)
