"""Who consumes, as an operator is shown it: names, addresses, and what each has in hand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from tarry.client.aio import connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tarry.client.operators.cluster_status import Consumer
from tarry.node.edge.forwarded_caller import CALLER_KEY, FORWARDED_KEY
from tarry.proto import tarry_consumer_pb2 as c
from tarry.proto import tarry_operator_pb2 as o
from tests.cluster.test_receive import receive, schedule
from tests.cluster.wire import Wire, wire

pytestmark = pytest.mark.beside


@pytest.fixture
def leader(shared_cluster: LocalCluster) -> str:
    return shared_cluster.nodes[shared_cluster.wait_until_serving()].address


@pytest.fixture
def follower(shared_cluster: LocalCluster, leader: str) -> str:
    return next(node.address for node in shared_cluster.nodes.values() if node.address != leader)


@pytest.fixture
def at_follower(follower: str) -> Iterator[Wire]:
    with wire(follower) as opened:
        yield opened


CONNECTIONS = """
import sys, psutil
for one in psutil.Process(int(sys.argv[1])).net_connections("tcp"):
    if one.raddr:
        print(*(f"{end.ip.removeprefix('::ffff:')}:{end.port}" for end in (one.laddr, one.raddr)))
"""


def own_ends(address: str) -> set[str]:
    """Return the ends that this process has of its connections to a node.

    Another one looks: in this, pysyncobj has exchanged the functions of `socket` that psutil calls.
    """
    looked = [sys.executable, "-c", CONNECTIONS, str(os.getpid())]
    done = subprocess.run(looked, check=True, capture_output=True, text=True)
    ends = [line.split() for line in done.stdout.splitlines()]
    return {mine for mine, other in ends if other == address}


def consumers(at: Wire, topic: str) -> dict[str, o.Consumer]:
    told = at.operator.DescribeGroup(o.DescribeGroupRequest(topic=topic, group="g"), timeout=5)
    assert told.consumers_left_out == 0
    return {one.consumer: one for one in told.consumers}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.05)


def test_who_receives_through_a_follower_is_shown_with_its_own_address_and_what_it_has_not_acknowledged(
    at_follower: Wire, follower: str
) -> None:
    topic, queue, offsets = "shown-calls", 0, list[int]()
    schedule(at_follower, topic, 5)
    while len(offsets) < 5:
        for got in receive(at_follower, topic, "a", lease_ms=60_000):
            queue, offsets = got.queue, [*offsets, *got.offset]
    told = consumers(at_follower, topic)["a"]
    assert told.address in own_ends(follower)
    assert (told.polls, told.connected, told.in_hand, told.credit) == (True, False, 5, 0)
    now_ms = time.time() * 1_000
    assert now_ms - 60_000 < told.since_ms < now_ms + 1_000
    assert now_ms < told.lease_end_ms < now_ms + 61_000
    for settled, left in ((offsets[:2], 3), (offsets[2:], 0)):
        ack = c.AckRequest(topic=topic, group="g", consumer="a", queue=queue, offset=settled)
        assert not at_follower.consumer.Ack(ack).stale
        assert sum(one.in_hand for one in consumers(at_follower, topic).values()) == left
    assert consumers(at_follower, topic) == {}


def test_a_call_that_waits_is_shown_with_its_credit_and_gone_when_it_is_over(
    at_follower: Wire, follower: str
) -> None:
    topic = "shown-wait"
    at_follower.operator.CreateGroup(o.CreateGroupRequest(topic=topic, group="g"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, at_follower, topic, "w", 4_000)
        until(lambda: "w" in consumers(at_follower, topic))
        told = consumers(at_follower, topic)["w"]
        assert (told.connected, told.credit, told.in_hand, told.lease_end_ms) == (True, 100, 0, 0)
        assert told.address in own_ends(follower)
        assert waiting.result() == []
    until(lambda: consumers(at_follower, topic) == {})


async def test_a_stream_is_shown_with_the_address_that_the_leader_sees_until_it_leaves(
    shared_cluster: LocalCluster, leader: str
) -> None:
    topic = "shown-stream"

    async def tarry(*arguments: str) -> str:
        asked = [*arguments, "-s", leader]
        return (await asyncio.to_thread(CliRunner().invoke, app, asked)).stdout

    async with connect(shared_cluster.addresses) as client:
        operator = client.operator()

        async def shown() -> tuple[Consumer, ...]:
            return (await operator.describe_group(topic, "g")).consumers

        await client.producer().schedule_batch(topic, [b"x"] * 6, delay_ms=0)
        async with client.consumer(topic, "g", name="me") as consumer:
            async with asyncio.timeout(15):
                messages = [await anext(consumer) for _ in range(6)]
            [told] = await shown()
            assert (told.consumer, told.connected, told.polls, told.in_hand) == ("me", True, False, 6)
            assert told.address in own_ends(leader)
            assert told.credit > 0
            await asyncio.gather(*(message.ack() for message in messages[:4]))
            described = await operator.describe_group(topic, "g")
            [told], status = described.consumers, described.status
            assert (told.in_hand, status.in_hand, status.consumers) == (2, 2, 1)
            assert status.credit > 0
            assert told.address in await tarry("group", "show", topic, "g")
            listed = json.loads(await tarry("group", "show", topic, "g", "-o", "json"))
            assert listed["consumers_left_out"] == 0
            [listed] = listed["consumer_list"]
            assert (listed["consumer"], listed["in_hand"], listed["tags"]) == ("me", 2, [])
        async with asyncio.timeout(15):
            while await shown():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def test_an_address_that_a_stranger_makes_up_is_fit_to_be_shown(leader: str) -> None:
    with wire(leader) as at_leader:
        schedule(at_leader, "shown-stranger", 1)
        said = json.dumps({"address": "\x1b[2J" + "evil" * 1_000, "certificate": []}).encode()
        request = c.ReceiveRequest(topic="shown-stranger", group="g", consumer="s", wait_ms=8_000)
        told = ((FORWARDED_KEY, "1"), (CALLER_KEY, said))
        assert at_leader.consumer.Receive(request, metadata=told, timeout=20).deliveries
        address = consumers(at_leader, "shown-stranger")["s"].address
        assert re.fullmatch(r"[\w.:\[\]%/?-]{1,100}", address)
        assert "evil" in address  # without peer token and certificates nobody can tell it from a node's word
