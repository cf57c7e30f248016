"""Filters by properties at a real node: streams of several topics, calls, broadcast, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import Token
from tarry.node.edge.auth import Authorizer
from tarry.node.services.subscriptions import Subscriptions
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import GROUP, Leader, leader, until
from tests.node.services.test_many_topics import subscribed
from tests.simulation.edge import StreamEnded

AMOUNTS = ("50", "150", "many", "250")
LARGE = "amount > 100"


async def schedule(lead: Leader, topic: str) -> None:
    """Schedule a message for each amount, due now; a message without one, too."""
    records = [Record(body=one.encode(), properties={"amount": one}) for one in AMOUNTS] + [Record(body=b"-")]
    request = ScheduleBatchRequest(
        topics=[topic],
        due_ms=np.full(len(records), lead.node.time.now_ms() - 1),
        records=[record.SerializeToString() for record in records],
    )
    assert isinstance(await lead.edge.schedule(request.SerializeToString()), bytes)


async def received(lead: Leader, topic: str, text: str, **more: Any) -> list[str] | Refusal:
    request = pb.ReceiveRequest(
        topic=topic, group=GROUP, consumer="puller", messages_max=10, wait_ms=500, filter=text, **more
    )
    raw = await lead.edge.receive(request.SerializeToString())
    if isinstance(raw, Refusal):
        return raw
    deliveries = pb.ReceiveResponse.FromString(raw).deliveries
    return [Record.FromString(record).body.decode() for batch in deliveries for record in batch.records]


async def test_a_stream_of_several_topics_has_what_matches_of_each(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders.a")
        stream = await subscribed(lead, "orders.*", filter=LARGE)
        await schedule(lead, "orders.b")
        await until(lambda: stream.received == 4)
        assert {topic: [offset for _, offset in given] for topic, given in stream.given.items()} == {
            "orders.a": [1, 3],
            "orders.b": [1, 3],
        }
        for topic in ("orders.a", "orders.b"):
            assert await stream.ack(topic, 2) == []
        queues = lead.machine.queues
        numbers = [queues.of(topic).queue for topic in ("orders.a", "orders.b")]
        await until(lambda: all(queues.acknowledged[GROUP, number].floor == 5 for number in numbers))


async def test_a_call_has_what_matches(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders")
        assert await received(lead, "orders", LARGE) == ["150", "250"]


async def test_broadcast_consumers_have_filters_of_their_own(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        start = pb.GroupStart(at=pb.START_AT_EARLIEST)
        await schedule(lead, "orders")
        large = await subscribed(lead, "orders", consumer="a", broadcast=True, start=start, filter=LARGE)
        small = await subscribed(
            lead, "orders", consumer="b", broadcast=True, start=start, filter="amount <= 100"
        )
        await until(lambda: (large.received, small.received) == (2, 1))
        assert [offset for _, offset in small.given["orders"]] == [0]


@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        ("amount LIKE '1%'", Reason.FILTER_INVALID, "at character 8: LIKE is not supported"),
        ("amount > 99", Reason.FILTER_DIFFERS, "'amount > 100'"),
        ("", Reason.FILTER_DIFFERS, "'amount > 100'"),
        ("a = 1".ljust(2_049), Reason.FILTER_INVALID, "more than 2048"),
        (" OR ".join(["a = 1"] * 101), Reason.FILTER_INVALID, "more than 100"),
        ("NOT " * 33 + "a = 1", Reason.FILTER_INVALID, "more than 32"),
    ],
)
async def test_a_filter_that_will_not_do_is_refused(
    tmp_path: Path, text: str, reason: Reason, says: str
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders")
        await subscribed(lead, "orders", filter=LARGE)
        refused = await received(lead, "orders", text)
        assert isinstance(refused, Refusal)
        assert refused.reason is reason
        assert says in refused.text
        with pytest.raises(StreamEnded, match=says):
            await subscribed(lead, "orders", consumer="other", filter=text)


async def test_a_filter_is_not_read_for_who_may_not_consume(tmp_path: Path) -> None:
    class Stranger:
        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return (("authorization", "Bearer secret"),)

    async with leader(tmp_path, Holds()) as lead:
        subscriptions = Subscriptions(lead.node._core, Authorizer({"secret": Token(consume=("bills",))}))
        context: Any = Stranger()
        reasons = {}
        for topic in ("orders", "bills"):
            request = pb.ReceiveRequest(topic=topic, group=GROUP, consumer="a", filter="(" * 2_048)
            refused = subscriptions.check(context, request)
            assert refused is not None
            reasons[topic] = refused.reason
        assert reasons == {"orders": Reason.PERMISSION_DENIED, "bills": Reason.FILTER_INVALID}


@pytest.mark.parametrize("text", ["a = 1".ljust(2_048), " OR ".join(["a = 1"] * 100), "NOT " * 32 + "a = 1"])
async def test_a_filter_at_a_limit_is_taken(tmp_path: Path, text: str) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await subscribed(lead, "orders", filter=text)
