"""Clients that misbehave on a connection: the server says so or cuts them off, and serves everybody else."""

from __future__ import annotations

import os
import queue
import socket
import time
import uuid
from collections.abc import Iterator
from itertools import count

import grpc
import psutil
import pytest

from tarry.client.local_cluster import LocalCluster
from tarry.proto.tarry_consumer_pb2 import Ack, ConsumeRequest, ConsumeResponse, Credit, Holding, Subscribe
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest, ScheduleRequest
from tests.cluster.wire import TIMEOUT_S, Wire, refusal, wire

FRESH = count()
MIB = 1 << 20


@pytest.fixture(scope="module")
def leader_address(shared_cluster: LocalCluster) -> str:
    return shared_cluster.nodes[shared_cluster.wait_until_serving()].address


@pytest.fixture
def node(leader_address: str) -> Iterator[Wire]:
    with wire(leader_address) as stubs:
        yield stubs


@pytest.fixture
def topic() -> str:
    return f"bad-clients-{next(FRESH)}"


def subscribe(topic: str, **fields: object) -> ConsumeRequest:
    given = {"topic": topic, "group": "g", "credit": 10, **fields}
    return ConsumeRequest(subscribe=Subscribe(**given))  # type: ignore[arg-type]


def schedule(node: Wire, topic: str, body: bytes = b"hello", messages: int = 1) -> None:
    record = Record(body=body).SerializeToString()
    request = ScheduleBatchRequest(
        producer=uuid.uuid4().hex,
        sequence=1,
        topics=[topic],
        delay_ms=[0] * messages,
        records=[record] * messages,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            node.producer.ScheduleBatch(request, timeout=TIMEOUT_S)
            return
        except grpc.RpcError as error:
            if refusal(error).code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Consuming:
    """A consumer stream that is driven by hand."""

    def __init__(self, node: Wire, *requests: ConsumeRequest) -> None:
        self._requests: queue.SimpleQueue[ConsumeRequest | None] = queue.SimpleQueue()
        for request in requests:
            self.send(request)
        self.responses = node.consumer.Consume(iter(self._requests.get, None), timeout=30)

    def send(self, request: ConsumeRequest) -> None:
        self._requests.put(request)

    def next(self) -> ConsumeResponse:
        response: ConsumeResponse = next(self.responses)
        return response

    def take(self, messages: int) -> list[int]:
        """Return the offsets of as many messages, giving their credit back."""
        offsets: list[int] = []
        while len(offsets) < messages:
            response = self.next()
            if response.HasField("deliveries"):
                offsets += response.deliveries.offset
                self.send(ConsumeRequest(credit=Credit(messages=len(response.deliveries.offset))))
        return offsets

    def end(self) -> None:
        self._requests.put(None)
        self.responses.cancel()


WRONG_STREAMS: list[tuple[str, list[ConsumeRequest], str]] = [
    ("credit before a subscription", [ConsumeRequest(credit=Credit(messages=1))], "SUBSCRIBE_FIRST"),
    ("nothing at all in a request", [ConsumeRequest()], "SUBSCRIBE_FIRST"),
    ("two subscriptions", [subscribe("twice"), subscribe("twice")], "SUBSCRIBED_TWICE"),
    ("an empty topic", [subscribe("")], "TOPIC_INVALID"),
    ("an illegal topic", [subscribe("a/b")], "TOPIC_INVALID"),
    ("an empty group", [subscribe("t", group="")], "GROUP_INVALID"),
    ("an illegal group", [subscribe("t", group="a b")], "GROUP_INVALID"),
    ("an over-long consumer name", [subscribe("t", consumer="c" * 10_000)], "CONSUMER_INVALID"),
    ("endless credit", [subscribe("t", credit=0xFFFFFFFF)], "CREDIT_INVALID"),
    ("a lease of one millisecond", [subscribe("t", lease_ms=1)], "LEASE_INVALID"),
    ("a lease of a month", [subscribe("t", lease_ms=30 * 86_400_000)], "LEASE_INVALID"),
    (
        "an acknowledgement of another queue",
        [subscribe("t"), ConsumeRequest(ack=Ack(request=1, queue=4_000_000_000, offset=[1]))],
        "QUEUE_UNKNOWN",
    ),
]


@pytest.mark.parametrize(
    ("requests", "reason"), [pytest.param(sent, reason, id=name) for name, sent, reason in WRONG_STREAMS]
)
def test_a_wrong_request_ends_the_stream_with_its_reason(
    node: Wire, requests: list[ConsumeRequest], reason: str
) -> None:
    stream = Consuming(node, *requests)
    with pytest.raises(grpc.RpcError) as caught:
        while True:
            stream.next()
    assert refusal(caught.value).reason == reason


def test_a_follower_sends_consumers_to_the_leader(shared_cluster: LocalCluster, leader_address: str) -> None:
    follower = next(node for node in shared_cluster.nodes.values() if node.address != leader_address)
    with wire(follower.address) as stubs, pytest.raises(grpc.RpcError) as caught:
        Consuming(stubs, subscribe("t")).next()
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("NOT_LEADER", grpc.StatusCode.UNAVAILABLE)
    assert said.facts["leader"] == leader_address


def test_an_acknowledgement_of_what_was_not_delivered_is_stale(node: Wire, topic: str) -> None:
    stream = Consuming(node, subscribe(topic, credit=0))
    assert stream.next().HasField("subscribed")
    schedule(node, topic, messages=2)
    stream.send(ConsumeRequest(credit=Credit(messages=1)))
    delivered = stream.next().deliveries
    assert list(delivered.offset) == [0]
    never = [1, 2, 1 << 63]
    stream.send(ConsumeRequest(ack=Ack(request=9, queue=delivered.queue, offset=[0, *never])))
    answer = stream.next().acked
    assert (answer.request, sorted(answer.stale)) == (9, never)
    stream.end()


def test_resuming_what_one_never_had_resumes_nothing(node: Wire, topic: str) -> None:
    schedule(node, topic)
    stream = Consuming(node, subscribe(topic, consumer="c", holding=[Holding(queue=0, offset=[5, 1 << 60])]))
    assert not any(holding.offset for holding in stream.next().subscribed.resumed)
    assert stream.take(1) == [0]
    stream.end()


GARBAGE = {
    "random bytes": os.urandom(64 << 10),
    "a request of the web": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "the preface of HTTP/2 and then random bytes": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(8 << 10),
    "half a preface": b"PRI * HT",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_on_the_port_disturbs_nobody(
    shared_cluster: LocalCluster, node: Wire, topic: str, garbage: bytes
) -> None:
    before = node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S).term
    for target in shared_cluster.nodes.values():
        host, port = target.address.split(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
            try:
                sock.sendall(garbage)
            except ConnectionError:
                continue  # hung up on while it still sent: as it should be
    schedule(node, topic)
    assert node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S).term == before
    assert all(target.running for target in shared_cluster.nodes.values())


def _as_is(raw: bytes) -> bytes:
    return raw


def test_a_request_that_is_no_protobuf_is_refused(leader_address: str) -> None:
    with grpc.insecure_channel(leader_address) as channel:
        call = channel.unary_unary("/tarry.v1.ProducerService/Schedule", _as_is, _as_is)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff\xff", timeout=TIMEOUT_S)
    assert refusal(caught.value).code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL}


def test_an_enormous_request_is_refused_before_it_is_read(node: Wire, leader_address: str) -> None:
    request = ScheduleRequest(topic="t", record=Record(body=bytes(100 * MIB)), delay_ms=1)
    with pytest.raises(grpc.RpcError) as caught:
        node.producer.Schedule(request, timeout=TIMEOUT_S)
    assert refusal(caught.value).code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_consumers_that_stop_reading_cost_neither_memory_nor_others(
    shared_cluster: LocalCluster, node: Wire, topic: str, leader_address: str
) -> None:
    leader = next(one for one in shared_cluster.nodes.values() if one.address == leader_address)
    assert leader.process is not None
    process = psutil.Process(leader.process.pid)
    messages, silent, body = 100, 8, bytes(200_000)  # 20 MB for each

    def own_bytes() -> int:
        memory = process.memory_info()
        return int(memory.rss - memory.shared)  # without the pages of mapped files

    def load(other: Wire, name: str) -> None:
        for _ in range(messages // 20):
            schedule(other, name, body, 20)
        reading = Consuming(other, subscribe(name, group="reading"))
        assert len(set(reading.take(messages))) == messages
        reading.end()

    with wire(leader_address) as other:
        load(other, f"{topic}-before")  # fills what is kept of the log in memory anyway
        before = own_bytes()
        idle = [Consuming(node, subscribe(topic, group=f"idle-{n}", credit=100_000)) for n in range(silent)]
        assert all(stream.next().HasField("subscribed") for stream in idle)
        load(other, topic)
        grown = own_bytes() - before
    assert grown < 96 * MIB, f"{grown / MIB:.0f} MiB more for clients that do not read"
    for stream in idle:
        stream.end()


def test_a_hundred_silent_connections_disturb_nobody(node: Wire, topic: str, leader_address: str) -> None:
    host, port = leader_address.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(100)]
    started = time.monotonic()
    schedule(node, topic)
    assert time.monotonic() - started < 2
    for sock in silent:
        sock.close()
