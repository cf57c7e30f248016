"""Cancels of many messages at real nodes: under a transfer and a kill, and from the command line."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tarry.client import sync
from tarry.client.aio import Client, DeletedTopic, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside

MESSAGES = 200_000
HOUR_MS = 3_600_000


async def scheduled(client: Client, topic: str, count: int, **options: Any) -> None:
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS + np.arange(count) % HOUR_MS
    for start in range(0, count, 4_000):
        part = due_ms[start : start + 4_000]
        await client.producer().schedule_batch(topic, [b"x"] * len(part), due_ms=part, **options)


@asynccontextmanager
async def lateness(client: Client, topic: str) -> AsyncIterator[list[int]]:
    """Schedule messages of another topic meanwhile; give how many ms after its due time each came."""
    late_ms: list[int] = []
    over = asyncio.Event()

    async def produce() -> None:
        while not over.is_set():
            await client.producer().schedule(topic, b"", delay_ms=100)
            await asyncio.sleep(0.01)

    async def consume() -> None:
        async with client.consumer(topic, "g", start="earliest") as consumer:
            async for message in consumer:
                late_ms.append(time.time_ns() // 1_000_000 - message.due_ms)
                message.ack_soon()

    tasks = [asyncio.create_task(work()) for work in (produce, consume)]
    try:
        yield late_ms
    finally:
        over.set()
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_are_cancelled_exactly_over_a_transfer_and_a_kill_and_others_come_on_time(
    cluster: LocalCluster,
) -> None:
    async with connect(cluster.addresses, deadline_ms=60_000) as client:
        await scheduled(client, "campaign", MESSAGES)
        await scheduled(client, "kept", 1_000)
        counted = await client.query().count_matching("campaign")
        steps = 0
        async with lateness(client, "others") as late_ms:
            async for told in client.query().cancel_matching("campaign"):
                last, steps = told, steps + 1
                if steps == 20:
                    await client.operator().transfer()
                if steps == 40:
                    late_ms.clear()  # what follows waits for an election
                    cluster.kill(cluster.wait_until_serving())
        assert (counted, last.matched, last.cancelled, last.released) == (MESSAGES,) * 3 + (0,)
        assert late_ms
        status = await client.operator().status()
        assert {topic.topic: topic.pending for topic in status.topics}["campaign"] == 0
        assert {topic.topic: topic.pending for topic in status.topics}["kept"] == 1_000
        assert await client.operator().delete_topic("kept") == DeletedTopic(0, 0, 1_000)
        assert (await client.operator().status()).pending <= 10  # of the others


@pytest.fixture
def tarry(shared_cluster: LocalCluster) -> Any:
    def call(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments, "-s", shared_cluster.addresses], input=stdin)

    return call


def ok(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_line_counts_asks_and_cancels_what_matches(
    shared_cluster: LocalCluster, tarry: Any
) -> None:
    with sync.connect(shared_cluster.addresses) as client:
        bodies = [b""] * 6
        keys = [[f"order-{number}"] for number in range(6)]
        client.producer().schedule_batch("many", bodies, delay_ms=[HOUR_MS] * 6, keys=keys)
        assert client.query().count_matching("many", key_prefix="order-") == 6
        dry = ok(tarry("cancel", "--topic", "many", "--key", "order-1", "--dry-run", "-o", "json"))
        assert (dry["matched"], dry["cancelled"], dry["done"]) == (1, 0, True)
        refused = tarry("cancel", "--topic", "many", "--key-prefix", "order-", stdin="n\n")
        assert refused.exit_code == 1
        assert "Cancel 6 messages" in refused.output
        done = ok(tarry("cancel", "--topic", "many", "--key", "order-1", "--yes", "-o", "json"))
        assert (done["cancelled"], done["topic"]) == (1, "many")
        assert "ready" not in done
        while client.operator().status().level < 2:  # the leader is about to raise it
            time.sleep(0.05)
        purged = tarry("topic", "purge", "many", stdin="y\n")
        assert purged.exit_code == 0, purged.output
        assert re.search(r"cancelled +5", purged.output)
        assert [told.matched for told in client.operator().purge_topic("many", dry_run=True)] == [0]
    assert tarry("cancel", "--tag", "x").exit_code == 2
    assert tarry("cancel").exit_code == 2
    assert tarry("cancel", "--topic", "many", "id").exit_code == 2
    assert tarry("cancel", "--topic", "unknown", "--yes").exit_code == 1
    assert tarry("cancel", "--topic", "many", "--yes", "--resume", "x").exit_code == 1


def test_ctrl_c_pauses_and_the_printed_cursor_goes_on(shared_cluster: LocalCluster, tarry: Any) -> None:
    with sync.connect(shared_cluster.addresses) as client:
        producer, count = client.producer(), 60_000
        for _ in range(count // 4_000):
            producer.schedule_batch("paused", [b""] * 4_000, delay_ms=[HOUR_MS] * 4_000)
        command = [sys.executable, "-m", "tarry.node", "cancel", "--topic", "paused", "--yes", "-o", "json"]
        process = subprocess.Popen(
            [*command, "-s", shared_cluster.addresses],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while client.query().count_matching("paused") == count:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert process.returncode == 130, error
        paused = json.loads(out)
        assert 0 < paused["cancelled"] < count
        assert f"--resume {paused['cursor']}" in error
        resumed = ("cancel", "--topic", "paused", "--resume", paused["cursor"], "-o", "json")
        done = ok(tarry(*resumed))
        assert (done["matched"], done["cancelled"], done["done"]) == (count, count, True)
        assert client.query().count_matching("paused") == 0
