"""Rates, limits and misfires against real nodes, as a client meets them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tarry.client.aio import AckOutcome, Message, Misfire, connect
from tarry.client.cli.main import app
from tarry.client.consumers.consumer import Consumer
from tarry.client.errors import InvalidSetting, InvalidTime, NoRoom
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable


async def take(consumer: Consumer, count: int) -> list[Message]:
    async with asyncio.timeout(15):
        messages = [await anext(consumer) for _ in range(count)]
    acked = await asyncio.gather(*(message.ack() for message in messages))
    assert set(acked) <= {AckOutcome.OK}
    return messages


async def test_a_rate_spreads_what_is_due_at_once_and_another_counts_at_once(
    shared_cluster: LocalCluster,
) -> None:
    async with connect(shared_cluster.addresses) as client:
        operator, producer = client.operator(), client.producer()
        made = await operator.create_topic("slow", release_per_s_max=20, pending_max=1_000)
        assert made.settings["release_per_s_max"] == 20
        async with client.consumer("slow", "g") as slow, client.consumer("quick", "g") as quick:
            started = time.monotonic()
            await producer.schedule_batch("slow", [b"x"] * 800, delay_ms=300)
            await take(slow, 20)
            assert time.monotonic() - started > 1.0
            await producer.schedule("quick", b"y", delay_ms=0)
            await take(quick, 1)
            status = (await operator.describe_topic("slow")).status
            assert 400 < status.held_back <= 780
            assert status.held_until_ms > time.time() * 1_000 + 10_000
            command = ["topic", "set", "slow", "--rate", "2000", "-o", "json", "-s", shared_cluster.addresses]
            shown = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert shown.exit_code == 0, shown.output
            settings = json.loads(shown.stdout)
            assert (settings["release_per_s_max"], settings["pending_max"]) == (2_000, 1_000)
            await take(slow, 780)  # which has not the time for it by the old rate
        assert (await operator.describe_topic("slow")).status.held_back == 0


async def test_settings_that_make_no_sense_are_refused(shared_cluster: LocalCluster) -> None:
    async with connect(shared_cluster.addresses) as client:
        operator = client.operator()
        with pytest.raises(InvalidSetting, match="misfire_after_ms"):
            await operator.create_topic("odd", misfire=Misfire.DROP)
        with pytest.raises(InvalidSetting, match="go together"):
            await operator.create_topic("odd", misfire=Misfire.CATCH_UP, misfire_after_ms=5)
        with pytest.raises(InvalidSetting, match="go together"):
            await operator.create_topic("odd", catch_up_per_s_max=5)
        with pytest.raises(InvalidTime, match="jitter"):
            await client.producer().schedule("odd", delay_ms=0, jitter_ms=2**32 - 1)


async def test_a_full_topic_refuses_and_what_is_cancelled_makes_room(shared_cluster: LocalCluster) -> None:
    async with connect(shared_cluster.addresses) as client:
        await client.operator().create_topic("full", pending_max=2)
        producer = client.producer()
        first = await producer.schedule_batch("full", [b"0", b"1"], delay_ms=3_600_000)
        with pytest.raises(NoRoom, match="may have 2") as refused:
            await producer.schedule("full", b"2", delay_ms=3_600_000)
        assert refused.value.reason == "TOPIC_FULL"
        await producer.cancel(first.ids[0])
        assert (await producer.schedule("full", b"2", delay_ms=3_600_000, jitter_ms=1_000)).due_ms
        assert (await client.operator().describe_topic("full")).status.pending == 2


async def test_a_full_second_names_one_with_room_and_a_full_disk_still_delivers(tmp_path: Path) -> None:
    with Disposable(1, tmp_path, {"limits": {"second_messages_max": 3}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses) as client:
            producer = client.producer()
            second_ms = (int(time.time()) + 3_600) * 1_000
            await producer.schedule_batch("t", [b"x"] * 3, due_ms=second_ms)
            with pytest.raises(NoRoom) as refused:
                await producer.schedule_batch("t", [b"x"] * 2, due_ms=second_ms + 999)
            nearest_ms = refused.value.nearest_due_ms
            assert nearest_ms in (second_ms - 1_000, second_ms + 1_000)
            await producer.schedule_batch("t", [b"x"] * 2, due_ms=nearest_ms)
            settings = {"misfire": Misfire.DEAD_LETTER, "misfire_after_ms": 200}
            await client.operator().create_topic("brief", **settings)  # type: ignore[arg-type]
            await producer.schedule("brief", b"misfires", delay_ms=3_000)
            await producer.schedule_batch("due", [b"0", b"1"], delay_ms=3_000)
            cluster.kill("n1")
        await asyncio.sleep(4)
        cluster.nodes["n1"].environment["TARRY_LIMITS__DISK_FREE_BYTES_MIN"] = str(1 << 60)
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses) as client:
            with pytest.raises(NoRoom, match="bytes free"):
                await client.producer().schedule("due", b"2", delay_ms=0)
            async with client.consumer("due", "g") as consumer:
                assert sorted(message.body for message in await take(consumer, 2)) == [b"0", b"1"]
            async with client.consumer("dlq.misfired.brief", "g") as dead:
                assert [message.body for message in await take(dead, 1)] == [b"misfires"]
