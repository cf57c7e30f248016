"""Consumers that ask for what cannot be: each gets its typed refusal, and its group goes on undisturbed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.proto import tarry_consumer_pb2 as c
from tarry.proto import tarry_operator_pb2 as o
from tarry.proto import tarry_producer_pb2 as p
from tarry.proto.message_id import MessageId
from tests.cluster.disposable import Disposable
from tests.cluster.streams import Consuming, schedule, subscribe
from tests.cluster.wire import TIMEOUT_S, Refusal, Wire, refusal, wire

pytestmark = pytest.mark.beside

FRESH = count()
NOBODYS_QUEUE = 4_000_000_000
PERMANENT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
}


@pytest.fixture
def node(lone_cluster: LocalCluster) -> Iterator[Wire]:
    with wire(lone_cluster.addresses) as stubs:
        yield stubs


@pytest.fixture
def topic() -> str:
    return f"bad-consumers-{next(FRESH)}"


def refused(stream: Consuming) -> Refusal:
    """Return what the stream ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        while True:
            stream.next()
    return refusal(caught.value)


def good(node: Wire, topic: str, **fields: object) -> Consuming:
    stream = Consuming(node, subscribe(topic, **fields))
    assert stream.next().HasField("subscribed")
    return stream


WRONG: list[tuple[str, list[c.ConsumeRequest], str]] = [
    ("credit before a subscription", [c.ConsumeRequest(credit=c.Credit(messages=1))], "SUBSCRIBE_FIRST"),
    ("nothing at all in a request", [c.ConsumeRequest()], "SUBSCRIBE_FIRST"),
    ("nothing at all in a later request", [subscribe("T"), c.ConsumeRequest()], "REQUEST_EMPTY"),
    ("two subscriptions", [subscribe("T"), subscribe("T")], "SUBSCRIBED_TWICE"),
    ("an empty topic", [subscribe("")], "TOPIC_INVALID"),
    ("an illegal topic", [subscribe("a/b")], "TOPIC_INVALID"),
    ("an over-long topic", [subscribe("t" * 201)], "TOPIC_INVALID"),
    ("an empty group", [subscribe("T", group="")], "GROUP_INVALID"),
    ("an illegal group", [subscribe("T", group="a b")], "GROUP_INVALID"),
    ("an over-long group", [subscribe("T", group="g" * 101)], "GROUP_INVALID"),
    ("a group named as a broadcast consumer's", [subscribe("T", group="g~a")], "GROUP_INVALID"),
    ("a group named as misfired messages' topic", [subscribe("T", group="misfired")], "GROUP_INVALID"),
    ("an over-long consumer name", [subscribe("T", consumer="c" * 10_000)], "CONSUMER_INVALID"),
    ("no credit", [subscribe("T", credit=0)], "CREDIT_INVALID"),
    ("endless credit", [subscribe("T", credit=0xFFFFFFFF)], "CREDIT_INVALID"),
    (
        "credit that adds nothing",
        [subscribe("T"), c.ConsumeRequest(credit=c.Credit(messages=0))],
        "CREDIT_INVALID",
    ),
    (
        "credit that grows beyond its limit",
        [subscribe("T"), c.ConsumeRequest(credit=c.Credit(messages=99_999))],
        "CREDIT_INVALID",
    ),
    ("a lease of one millisecond", [subscribe("T", lease_ms=1)], "LEASE_INVALID"),
    ("a lease of a month", [subscribe("T", lease_ms=30 * 86_400_000)], "LEASE_INVALID"),
    (
        "an extension by one millisecond",
        [subscribe("T"), c.ConsumeRequest(extend=c.Extend(queue=0, offset=[0], lease_ms=1))],
        "LEASE_INVALID",
    ),
    ("a filter of too many tags", [subscribe("T", tags=[f"t{n}" for n in range(1_001)])], "TOO_MANY_TAGS"),
    ("a filter of an empty tag", [subscribe("T", tags=["a", ""])], "TAG_INVALID"),
    ("a filter by properties with LIKE", [subscribe("T", filter="a LIKE 'x'")], "FILTER_INVALID"),
    ("a filter by properties of its own", [subscribe("T", filter="a = 1")], "FILTER_DIFFERS"),
    ("a filter that another member does not have", [subscribe("T", tags=["a"])], "FILTER_DIFFERS"),
    (
        "an acknowledgement of another queue",
        [subscribe("T"), c.ConsumeRequest(ack=c.Ack(request=1, queue=NOBODYS_QUEUE, offset=[1]))],
        "QUEUE_UNKNOWN",
    ),
    (
        "a nack of another queue",
        [subscribe("T"), c.ConsumeRequest(nack=c.Nack(request=1, queue=NOBODYS_QUEUE, offset=[1]))],
        "QUEUE_UNKNOWN",
    ),
    (
        "an extension of another queue",
        [subscribe("T"), c.ConsumeRequest(extend=c.Extend(queue=NOBODYS_QUEUE, offset=[1]))],
        "QUEUE_UNKNOWN",
    ),
]


@pytest.mark.parametrize(
    ("requests", "reason"), [pytest.param(sent, reason, id=name) for name, sent, reason in WRONG]
)
def test_a_wrong_request_ends_its_stream_with_its_reason_and_no_other(
    node: Wire, topic: str, requests: list[c.ConsumeRequest], reason: str
) -> None:
    other = good(node, topic)
    sent = []
    for request in requests:
        copy = c.ConsumeRequest()
        copy.CopyFrom(request)
        if copy.subscribe.topic == "T":
            copy.subscribe.topic = topic
        sent.append(copy)
    said = refused(Consuming(node, *sent))
    assert said.reason == reason
    assert said.code in PERMANENT
    assert said.text
    schedule(node, topic)
    assert other.take(1) == [0]
    other.end()


def _as_is(raw: bytes) -> bytes:
    return raw


@pytest.mark.parametrize("first", [True, False])
def test_bytes_that_are_no_request_end_the_stream(
    lone_cluster: LocalCluster, node: Wire, topic: str, first: bool
) -> None:
    sent = [b"\xff\xfe garbage"] if first else [subscribe(topic).SerializeToString(), b"\xff\xfe garbage"]
    with grpc.insecure_channel(lone_cluster.addresses) as channel:
        responses = channel.stream_stream("/tarry.v1.ConsumerService/Consume", _as_is, _as_is)(
            iter(sent), timeout=TIMEOUT_S
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(responses)
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("RECORD_INVALID", grpc.StatusCode.INVALID_ARGUMENT)
    schedule(node, topic)
    assert good(node, topic).take(1) == [0]


def test_an_acknowledgement_of_what_was_not_delivered_is_stale(node: Wire, topic: str) -> None:
    schedule(node, topic, messages=2)
    stream = good(node, topic, credit=1)
    delivered = stream.next().deliveries
    assert list(delivered.offset) == [0]
    never = [1, 2, 1 << 63]
    stream.send(c.ConsumeRequest(ack=c.Ack(request=9, queue=delivered.queue, offset=[0, *never])))
    answer = stream.next().acked
    assert (answer.request, sorted(answer.stale)) == (9, never)
    stream.end()


def test_a_second_acknowledgement_is_stale_and_changes_nothing(node: Wire, topic: str) -> None:
    schedule(node, topic)
    stream = good(node, topic)
    delivered = stream.next().deliveries
    for request, stale in ((1, []), (2, [0])):
        stream.send(c.ConsumeRequest(ack=c.Ack(request=request, queue=delivered.queue, offset=[0])))
        assert list(stream.next().acked.stale) == stale
    described = node.operator.DescribeTopic(o.DescribeTopicRequest(topic=topic), timeout=TIMEOUT_S)
    assert [group.floor for group in described.topic.groups] == [1]
    stream.end()


def test_what_is_cancelled_cannot_be_acknowledged_and_what_is_in_hand_cannot_be_cancelled(
    node: Wire, topic: str
) -> None:
    later = p.ScheduleRequest(topic=topic, delay_ms=3_600_000)
    pending = node.producer.Schedule(later, timeout=TIMEOUT_S).id
    schedule(node, topic)
    stream = good(node, topic)
    delivered = stream.next().deliveries
    in_hand = str(MessageId(delivered.shard, delivered.hour[0], delivered.global_index[0]))
    outcomes = node.producer.Cancel(p.CancelRequest(ids=[pending, in_hand]), timeout=TIMEOUT_S).outcomes
    assert list(outcomes) == [p.CANCEL_OUTCOME_CANCELLED, p.CANCEL_OUTCOME_ALREADY_RELEASED]
    stream.send(c.ConsumeRequest(ack=c.Ack(request=1, queue=delivered.queue, offset=[0, 1])))
    assert list(stream.next().acked.stale) == [1]  # the cancelled one never got an offset
    stream.end()


def test_who_connects_again_under_its_name_ends_its_old_stream_and_takes_on_what_that_held(
    node: Wire, topic: str
) -> None:
    schedule(node, topic)
    old = good(node, topic, consumer="me")
    delivered = old.next().deliveries
    holding = [c.Holding(queue=delivered.queue, offset=[0])]
    new = Consuming(node, subscribe(topic, consumer="me", holding=holding))
    assert list(new.next().subscribed.resumed) == holding
    said = refused(old)
    assert (said.reason, said.code) == ("CONSUMER_REPLACED", grpc.StatusCode.ABORTED)
    new.end()


def test_resuming_what_one_never_had_resumes_nothing(node: Wire, topic: str) -> None:
    schedule(node, topic)
    stream = Consuming(
        node, subscribe(topic, consumer="c", holding=[c.Holding(queue=0, offset=[5, 1 << 60])])
    )
    assert not any(holding.offset for holding in stream.next().subscribed.resumed)
    assert stream.take(1) == [0]
    stream.end()


def test_a_dead_letter_topic_can_be_named_however_long_its_group_s_and_topic_s_names_are(node: Wire) -> None:
    name = f"dlq.{'g' * 100}.{'t' * 200}"
    good(node, name).end()
    assert refused(Consuming(node, subscribe(name + "t"))).reason == "TOPIC_INVALID"


def test_where_nothing_is_made_on_first_use_what_is_unknown_is_refused(tmp_path: Path) -> None:
    settings = {"topics_auto_create": False, "groups_auto_create": False}
    with Disposable(1, tmp_path, settings) as cluster:
        cluster.start()
        with wire(cluster.nodes[cluster.wait_until_serving()].address) as node:
            said = refused(Consuming(node, subscribe("t")))
            assert (said.reason, said.code) == ("TOPIC_UNKNOWN", grpc.StatusCode.NOT_FOUND)
            with pytest.raises(grpc.RpcError) as caught:
                node.producer.Schedule(p.ScheduleRequest(topic="t", delay_ms=1), timeout=TIMEOUT_S)
            assert refusal(caught.value).reason == "TOPIC_UNKNOWN"
            node.operator.CreateTopic(o.CreateTopicRequest(topic="t"), timeout=TIMEOUT_S)
            said = refused(Consuming(node, subscribe("t")))
            assert (said.reason, said.code) == ("GROUP_UNKNOWN", grpc.StatusCode.NOT_FOUND)
            node.operator.CreateGroup(o.CreateGroupRequest(topic="t", group="g"), timeout=TIMEOUT_S)
            schedule(node, "t")
            assert good(node, "t").take(1) == [0]
