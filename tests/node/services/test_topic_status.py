"""The status of topics and groups: what is overdue, what waits for its retry, and who consumes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tarry.node.leader.recent_lateness import RecentLateness
from tarry.node.services.topic_status import TopicStatuses
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.wheel.state import HOUR_MS
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import pass_ms, play


def statuses(group: Group, lateness: RecentLateness | None = None) -> TopicStatuses:
    core: Any = SimpleNamespace(
        machine=group.machine,
        time=group.time,
        leadership=SimpleNamespace(delivery=group.delivery, lateness=lateness, retention=None),
        config=group.config,
    )
    return TopicStatuses(core)


async def topic_of(group: Group, lateness: RecentLateness | None = None) -> pb.TopicStatus:
    return await statuses(group, lateness).one(group.machine.queues.of(TOPIC))


def test_what_is_due_and_not_released_is_overdue_and_then_how_late_it_was_is_told() -> None:
    async def steps(group: Group) -> None:
        began_ms = group.time.now_ms()
        for delay_ms in (100, 100, 400, 60_000):
            group.schedule("", delay_ms)
        assert (await topic_of(group)).overdue == 0
        await asyncio.sleep(1)  # of virtual time, in which nobody releases
        now_ms = group.time.now_ms()
        group.machine.wheel.load_ahead(now_ms)  # as each heartbeat does
        topic = await topic_of(group)
        oldest_ms = now_ms - began_ms - 100
        assert (topic.pending, topic.overdue, topic.oldest_overdue_ms) == (4, 3, oldest_ms)
        assert not topic.HasField("lateness")
        lateness = RecentLateness()
        released = group.apply(log_pb.ReleaseCommand(until_ms=now_ms, count=10, now_ms=now_ms))
        lateness.add(now_ms, released.taken)
        topic = await topic_of(group, lateness)
        assert (topic.pending, topic.overdue, topic.oldest_overdue_ms) == (1, 0, 0)
        assert (topic.lateness.released, topic.lateness.max_ms) == (3, oldest_ms)

    play(steps)


def test_a_release_has_what_overtook_a_backlog_too() -> None:
    async def steps(group: Group) -> None:
        for _ in range(3):
            group.schedule("", 0)
        now_ms = group.time.now_ms()
        hour, global_index = (number.to_bytes(4, "little") for number in (now_ms // HOUR_MS, 2))
        command = log_pb.ReleaseCommand(
            until_ms=now_ms, count=1, now_ms=now_ms, hour=hour, global_index=global_index
        )
        released = group.apply(command)
        assert (released.count, [len(taken) for taken in released.taken]) == (1, [1, 1])

    play(steps)


def test_a_group_tells_its_credit_and_what_waits_for_a_retry() -> None:
    async def steps(group: Group) -> None:
        for _ in range(3):
            group.schedule("", 0)
        group.join("a", credit=4)
        group.join("b", credit=6)
        await pass_ms(group, 10)
        [told] = (await topic_of(group)).groups
        assert (told.in_hand, told.credit, told.backing_off, told.retrying) == (3, 7, 0, 0)
        group.settle_first("a" if group.hands["a"].held else "b", 1, nack=True, delay_ms=5_000)
        await group.settle()
        await group.commit()
        [told] = (await topic_of(group)).groups
        assert (told.in_hand, told.credit, told.backing_off, told.retrying) == (2, 7, 1, 0)
        consumers, left_out = await statuses(group).consumers(TOPIC, GROUP)
        assert ([one.consumer for one in consumers], left_out) == (["a", "b"], 0)
        assert sum(one.credit for one in consumers) == told.credit
        assert sum(one.in_hand for one in consumers) == told.in_hand
        assert await statuses(group).consumers(TOPIC, "nobody") == ([], 0)

    play(steps)
