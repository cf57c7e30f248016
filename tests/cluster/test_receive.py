"""Consuming by calls, over the bare wire, through whichever node is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.proto import tarry_consumer_pb2 as c
from tarry.proto import tarry_operator_pb2 as o
from tarry.proto import tarry_producer_pb2 as p
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tests.cluster.wire import Refusal, Wire, refusal, wire

pytestmark = pytest.mark.beside


@pytest.fixture
def follower(shared_cluster: LocalCluster) -> Iterator[Wire]:
    leader = shared_cluster.wait_until_serving()
    node = next(n for name, n in shared_cluster.nodes.items() if name != leader)
    with wire(node.address) as opened:
        yield opened


def refusal_of(call: Callable[[], object]) -> Refusal:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return refusal(raised.value)


def schedule(to: Wire, topic: str, n: int, delay_ms: int = 0) -> None:
    tags = ["even" if i % 2 == 0 else "odd" for i in range(n)]
    request = p.ScheduleBatchRequest(
        topics=[topic],
        delay_ms=[delay_ms] * n,
        tag_mask=[tag_mask([tag]) for tag in tags],
        records=[Record(body=b"%d" % i, tags=[tags[i]]).SerializeToString() for i in range(n)],
    )
    to.producer.ScheduleBatch(request, timeout=5)


def receive(to: Wire, topic: str, consumer: str, wait_ms: int = 8_000, **more: Any) -> list[c.Deliveries]:
    request = c.ReceiveRequest(
        topic=topic, group="g", consumer=consumer, messages_max=100, wait_ms=wait_ms, **more
    )
    return list(to.consumer.Receive(request, timeout=20).deliveries)


def bodies(deliveries: list[c.Deliveries]) -> list[bytes]:
    return [Record.FromString(r).body for d in deliveries for r in d.records]


def test_a_receive_waits_for_the_first_message_and_takes_it_when_it_is_due(follower: Wire) -> None:
    started = time.monotonic()
    schedule(follower, "pull-wait", 1, delay_ms=400)
    got = receive(follower, "pull-wait", "a")
    assert bodies(got) == [b"0"]
    assert time.monotonic() - started >= 0.35


def test_a_receive_with_nothing_due_comes_back_empty_when_its_wait_is_over(follower: Wire) -> None:
    assert receive(follower, "pull-empty", "a", wait_ms=100) == []


def test_what_is_acknowledged_does_not_come_again_and_what_is_nacked_does(follower: Wire) -> None:
    schedule(follower, "pull-ack", 3)
    (got,) = receive(follower, "pull-ack", "a")
    base: dict[str, Any] = {"topic": "pull-ack", "group": "g", "consumer": "a", "queue": got.queue}
    assert list(follower.consumer.Ack(c.AckRequest(**base, offset=[0, 1, 77])).stale) == [77]
    assert list(follower.consumer.Nack(c.NackRequest(**base, offset=[2], delay_ms=10)).stale) == []
    (again,) = receive(follower, "pull-ack", "b")
    assert (bodies([again]), list(again.attempt)) == ([b"2"], [2])
    assert list(follower.consumer.Ack(c.AckRequest(**base, offset=[0])).stale) == [0]


def test_an_extended_lease_holds_and_one_that_is_over_gives_the_message_back(follower: Wire) -> None:
    schedule(follower, "pull-lease", 2)
    (got,) = receive(follower, "pull-lease", "a", lease_ms=3_000)
    base: dict[str, Any] = {"topic": "pull-lease", "group": "g", "consumer": "a", "queue": got.queue}
    assert list(follower.consumer.Extend(c.ExtendRequest(**base, offset=[0], lease_ms=60_000)).stale) == []
    (again,) = receive(follower, "pull-lease", "b", wait_ms=10_000)
    assert bodies([again]) == [b"1"]
    assert list(follower.consumer.Ack(c.AckRequest(**base, offset=[0, 1])).stale) == [1]


def test_a_filter_lets_only_its_tags_through(follower: Wire) -> None:
    schedule(follower, "pull-tags", 10)
    assert bodies(receive(follower, "pull-tags", "a", tags=["odd"])) == [b"1", b"3", b"5", b"7", b"9"]
    other = c.ReceiveRequest(topic="pull-tags", group="g", consumer="b", tags=["even"])
    assert refusal_of(lambda: follower.consumer.Receive(other, timeout=5)).reason == "FILTER_DIFFERS"


def test_a_filter_by_properties_lets_only_what_matches_through(follower: Wire) -> None:
    for amount in ("99", "101", "many", "250"):
        record = Record(body=amount.encode(), properties={"amount": amount})
        follower.producer.Schedule(p.ScheduleRequest(topic="pull-sql", record=record, delay_ms=0))
    assert sorted(bodies(receive(follower, "pull-sql", "a", filter="amount > 100"))) == [b"101", b"250"]
    other = c.ReceiveRequest(topic="pull-sql", group="g", consumer="b", filter="amount > 1")
    assert refusal_of(lambda: follower.consumer.Receive(other, timeout=5)).reason == "FILTER_DIFFERS"
    like = c.ReceiveRequest(topic="pull-sql", group="h", consumer="b", filter="a LIKE 'x'")
    said = refusal_of(lambda: follower.consumer.Receive(like, timeout=5))
    assert said.reason == "FILTER_INVALID"
    assert "at character 3" in said.text


def test_a_group_that_starts_latest_sees_only_what_is_released_from_then_on(follower: Wire) -> None:
    schedule(follower, "pull-latest", 3)
    assert len(bodies(receive(follower, "pull-latest", "a"))) == 3
    latest = c.GroupStart(at=c.START_AT_LATEST)
    request = c.ReceiveRequest(topic="pull-latest", group="late", consumer="a", start=latest)
    assert not follower.consumer.Receive(request).deliveries
    schedule(follower, "pull-latest", 1)
    request.wait_ms = 8_000
    assert len(follower.consumer.Receive(request).deliveries) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"topic": ""}, "TOPIC_INVALID"),
        ({"group": "a b"}, "GROUP_INVALID"),
        ({"group": "a~b"}, "GROUP_INVALID"),
        ({"consumer": ""}, "CONSUMER_INVALID"),
        ({"lease_ms": 5}, "LEASE_INVALID"),
        ({"wait_ms": 30_001}, "RECEIVE_INVALID"),
        ({"messages_max": 1_001}, "RECEIVE_INVALID"),
        ({"messages_max": 2**32 - 1}, "CREDIT_INVALID"),
    ],
)
def test_a_bad_receive_is_refused_by_its_reason(
    follower: Wire, wrong: dict[str, object], reason: str
) -> None:
    request = c.ReceiveRequest(**{"topic": "pull-bad", "group": "g", "consumer": "a", **wrong})  # type: ignore[arg-type]
    assert refusal_of(lambda: follower.consumer.Receive(request, timeout=5)).reason == reason


def test_an_ack_of_a_group_that_never_received_is_refused(follower: Wire) -> None:
    request = c.AckRequest(topic="pull-none", group="nobody", consumer="a", offset=[1])
    assert refusal_of(lambda: follower.consumer.Ack(request, timeout=5)).reason == "GROUP_UNKNOWN"


def test_a_group_can_be_moved_back_and_sees_its_messages_again(follower: Wire) -> None:
    schedule(follower, "pull-seek", 4)
    (got,) = receive(follower, "pull-seek", "a")
    base: dict[str, Any] = {"topic": "pull-seek", "group": "g", "consumer": "a", "queue": got.queue}
    follower.consumer.Ack(c.AckRequest(**base, offset=[0, 1, 2, 3]))
    request = o.SeekGroupRequest(topic="pull-seek", group="g", offset=1, dry_run=True)
    dry = follower.operator.SeekGroup(request)
    assert (dry.from_offset, dry.to_offset, dry.delivered_again, dry.skipped) == (4, 1, 3, 0)
    assert receive(follower, "pull-seek", "a", wait_ms=50) == []
    request.dry_run = False
    follower.operator.SeekGroup(request)
    assert bodies(receive(follower, "pull-seek", "a")) == [b"1", b"2", b"3"]


def test_dead_letters_are_redriven_to_their_group_and_only_once(follower: Wire) -> None:
    schedule(follower, "pull-doomed", 2)
    for _ in range(16):
        for got in receive(follower, "pull-doomed", "a"):
            base: dict[str, Any] = {"topic": "pull-doomed", "group": "g", "consumer": "a", "queue": got.queue}
            follower.consumer.Nack(c.NackRequest(**base, offset=list(got.offset), delay_ms=0))
    letters = c.ReceiveRequest(
        topic="dlq.g.pull-doomed", group="undertaker", consumer="u", messages_max=9, wait_ms=5_000
    )
    dead = list(follower.consumer.Receive(letters).deliveries)
    properties = Record.FromString(dead[0].records[0]).properties
    assert (properties["tarry.attempts"], properties["tarry.reason"]) == ("16", "NACKED")
    leader = follower.operator.ClusterStatus(o.ClusterStatusRequest())
    address = next(m.address for m in leader.members if m.node == leader.leader)
    with wire(address) as at_leader:
        dry = list(at_leader.operator.Redrive(o.RedriveRequest(topic="dlq.g.pull-doomed", dry_run=True)))
        assert (dry[-1].redriven, dry[-1].done) == (2, True)
        assert list(at_leader.operator.Redrive(o.RedriveRequest(topic="dlq.g.pull-doomed")))[-1].redriven == 2
        assert list(at_leader.operator.Redrive(o.RedriveRequest(topic="dlq.g.pull-doomed")))[-1].redriven == 0
    (again,) = receive(follower, "pull-doomed", "a")
    assert sorted(bodies([again])) == [b"0", b"1"]
    assert list(again.attempt) == []
    assert not Record.FromString(again.records[0]).properties


def test_a_deleted_topic_is_gone_and_its_consumers_are_told(follower: Wire) -> None:
    schedule(follower, "pull-gone", 3)
    schedule(follower, "pull-gone", 1, delay_ms=5_000)
    receive(follower, "pull-gone", "a")
    done = follower.operator.DeleteTopic(o.DeleteTopicRequest(topic="pull-gone"))
    assert (done.released, done.groups) == (3, 1)
    described = refusal_of(lambda: follower.operator.DescribeTopic(o.DescribeTopicRequest(topic="pull-gone")))
    assert described.reason == "TOPIC_UNKNOWN"
    assert receive(follower, "pull-gone", "a", wait_ms=6_000) == []


def groups(at: Wire, topic: str) -> list[o.GroupStatus]:
    return list(at.operator.DescribeTopic(o.DescribeTopicRequest(topic=topic)).topic.groups)


def test_a_receive_whose_group_is_deleted_is_told_so_and_makes_it_not_anew(follower: Wire) -> None:
    schedule(follower, "pull-ended", 1)
    receive(follower, "pull-ended", "a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(refusal_of, lambda: receive(follower, "pull-ended", "b", wait_ms=8_000))
        ends = time.monotonic() + 5
        while not any(group.consumers for group in groups(follower, "pull-ended")):
            assert time.monotonic() < ends
            time.sleep(0.01)
        follower.operator.DeleteGroup(o.DeleteGroupRequest(topic="pull-ended", group="g"))
        assert waiting.result().reason == "GROUP_UNKNOWN"
    assert groups(follower, "pull-ended") == []


def test_a_topics_own_body_limit_is_kept(follower: Wire) -> None:
    settings = o.TopicSettings(body_bytes_max=10, retention_ms=5_000)
    made = follower.operator.CreateTopic(o.CreateTopicRequest(topic="pull-small", settings=settings))
    assert made.settings == settings
    too_large = p.ScheduleRequest(topic="pull-small", delay_ms=0, record=Record(body=b"x" * 11))
    assert refusal_of(lambda: follower.producer.Schedule(too_large)).reason == "RECORD_TOO_LARGE"
    follower.producer.Schedule(
        p.ScheduleRequest(topic="pull-small", delay_ms=0, record=Record(body=b"x" * 10))
    )
