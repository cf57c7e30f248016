"""Clients that misbehave on a connection: the server says so or cuts them off, and serves everybody else."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import count

import grpc
import psutil
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tests.cluster.streams import Consuming, schedule, subscribe
from tests.cluster.wire import TIMEOUT_S, Wire, refusal, wire

pytestmark = pytest.mark.beside

FRESH = count()
MIB = 1 << 20


@pytest.fixture
def leader_address(shared_cluster: LocalCluster) -> str:
    return shared_cluster.nodes[shared_cluster.wait_until_serving()].address


@pytest.fixture
def node(leader_address: str) -> Iterator[Wire]:
    with wire(leader_address) as stubs:
        yield stubs


@pytest.fixture
def topic() -> str:
    return f"bad-clients-{next(FRESH)}"


def test_a_follower_sends_consumers_to_the_leader(shared_cluster: LocalCluster, leader_address: str) -> None:
    follower = next(node for node in shared_cluster.nodes.values() if node.address != leader_address)
    with wire(follower.address) as stubs, pytest.raises(grpc.RpcError) as caught:
        Consuming(stubs, subscribe("t")).next()
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("NOT_LEADER", grpc.StatusCode.UNAVAILABLE)
    assert said.facts["leader"] == leader_address


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
    for target in shared_cluster.nodes.values():
        host, port = target.address.split(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
            try:
                sock.sendall(garbage)
            except ConnectionError:
                continue  # hung up on while it still sent: as it should be
    schedule(node, topic)
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
    lone_cluster: LocalCluster, topic: str
) -> None:
    (leader,) = lone_cluster.nodes.values()
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

    with wire(leader.address) as node, wire(leader.address) as other:
        load(other, f"{topic}-before")  # fills what is kept of the log in memory anyway
        before = own_bytes()
        idle = [Consuming(node, subscribe(topic, group=f"idle-{n}", credit=100_000)) for n in range(silent)]
        assert all(stream.next().HasField("subscribed") for stream in idle)
        load(other, topic)
        grown = own_bytes() - before
        for stream in idle:
            stream.end()
    assert grown < 96 * MIB, f"{grown / MIB:.0f} MiB more for clients that do not read"


def test_a_hundred_silent_connections_disturb_nobody(node: Wire, topic: str, leader_address: str) -> None:
    host, port = leader_address.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(100)]
    schedule(node, topic)
    for sock in silent:
        sock.close()
