"""Consumers of several topics against real nodes: leaders die, topics come and go, and all see the same."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tarry.client import aio, sync
from tarry.client.cli.main import app
from tarry.client.errors import TooLarge
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PATIENCE_S = 40


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes that keep a consumer's messages for it until it is back, though the machine is busy."""
    settings = {"delivery": {"resume_ms": 10_000}, "limits": {"subscribed_topics_max": 5}}
    with Disposable(3, tmp_path, settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        yield cluster


async def test_a_pattern_rides_out_dead_leaders_and_has_the_topics_that_come_meanwhile(
    patient: LocalCluster,
) -> None:
    seen, topics = Counter[str](), Counter[str]()
    async with aio.connect(patient.addresses, deadline_ms=30_000) as client:
        producer = client.producer()
        scheduled = list[str]()

        async def produce(topic: str, count: int) -> None:
            answer = await producer.schedule_batch(topic, [b"x"] * count, delay_ms=0)
            scheduled.extend(answer.ids)

        async with client.consumer(topics=["orders.*"], group="g", credit=30, lease_ms=60_000) as consumer:

            async def take(count: int) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while seen.total() < count:
                        message = await anext(consumer)
                        seen[message.id] += 1
                        topics[message.topic] += 1
                        message.ack_soon()

            for topic in ("orders.a", "orders.b", "bills"):
                await produce(topic, 50)
            await take(60)
            patient.kill(patient.wait_for_leader())
            await produce("orders.c", 50)
            await take(150)
            dead = next(name for name, node in patient.nodes.items() if not node.running)
            patient.start(dead)
            await produce("orders.d", 50)
            await take(200)
            assert consumer.reconnects >= 1
            assert consumer.lost == 0
    assert set(seen.values()) == {1}
    assert topics == {f"orders.{name}": 50 for name in "abcd"}


async def test_too_many_topics_are_refused_and_end_a_stream_that_is_under_way(patient: LocalCluster) -> None:
    async with aio.connect(patient.addresses) as client:
        async with client.consumer(topics=["many.*"], group="g") as consumer:
            for number in range(6):
                await client.producer().schedule(f"many.{number}", b"x", delay_ms=0)
            with pytest.raises(TooLarge, match="6 topics, more than 5: subscribe to fewer"):
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in consumer:
                        pass
        with pytest.raises(TooLarge, match="6 topics, more than 5"):
            await client.consumer(topics=["many.*"], group="g").start()


def test_a_puller_that_begins_with_the_latest_has_all_of_a_topic_that_comes_between_two_calls(
    shared_cluster: LocalCluster,
) -> None:
    with sync.connect(shared_cluster.addresses) as client, client.producer() as producer:
        producer.schedule("between.a", b"before", delay_ms=0)
        assert client.puller("between.a", "other").receive(wait_ms=10_000)
        puller = client.puller(topics=["between.*"], group="latest", start="latest")
        assert puller.receive() == []
        producer.schedule("between.b", b"after", delay_ms=0)
        assert client.puller("between.b", "other").receive(wait_ms=10_000)  # it is released
        (message,) = puller.receive(2, wait_ms=10_000)
        assert message.body == b"after"


def test_the_blocking_client_and_the_command_line_consume_patterns(shared_cluster: LocalCluster) -> None:
    servers = ["--server", shared_cluster.addresses]
    with sync.connect(shared_cluster.addresses) as client, client.producer() as producer:
        for topic in ("several.a", "several.b"):
            producer.schedule(topic, topic.encode(), delay_ms=0)
        with client.consumer(topics=["several.*"], group="sync", name="me") as consumer:
            messages = list(islice(consumer, 2))
            assert sorted((message.topic, message.body) for message in messages) == [
                ("several.a", b"several.a"),
                ("several.b", b"several.b"),
            ]
            assert [message.ack() for message in messages] == [sync.AckOutcome.OK] * 2
            (shown,) = client.operator().describe_group("several.a", "sync").consumers
            assert (shown.consumer, shown.topics) == ("me", ("several.*",))
        puller = client.puller(topics=["several.*"], group="pull")
        pulled = puller.receive(2, wait_ms=10_000)
        pulled += puller.receive(2, wait_ms=10_000) if len(pulled) < 2 else []
        assert {message.topic for message in pulled} == {"several.a", "several.b"}
        assert puller.ack(pulled) == [sync.AckOutcome.OK] * 2
    arguments = ["consume", "several.*", "--group", "cli", "--max", "2", "-o", "json", *servers]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0, printed.output
    told = [json.loads(line) for line in printed.stdout.splitlines()]
    assert sorted(one["topic"] for one in told) == ["several.a", "several.b"]
    arguments = ["consume", "several.a", "several.b", "--group", "cli2", "--max", "2", *servers]
    printed = CliRunner().invoke(app, arguments)
    assert all(f"several.{name}  " in printed.stdout for name in "ab"), printed.output
