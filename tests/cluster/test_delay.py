"""A group's delay on real nodes: by the command line, to both clients, and under every leader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tarry.client.aio import Client, connect
from tests.cluster.disposable import Disposable
from tests.cluster.test_policy import PATIENCE_S, refused, tarry
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

DELAY_MS = 4_000
MESSAGES = 50


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def received(client: Client, group: str, count: int) -> list[tuple[int, int, int]]:
    """Return of so many messages when each came, when it was due for the group, and the delay in that."""
    found: list[tuple[int, int, int]] = []
    async with client.consumer("orders", group) as consumer, asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            message = await anext(consumer)
            found.append((now_ms(), message.due_ms, message.delay_ms))
            await message.ack()
    return found


def test_a_delay_is_set_shown_bounded_and_unset_by_the_command_line(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))
        tarry(cluster, "topic", "create", "orders")
        tarry(cluster, "group", "create", "orders", "calls")
        shown = tarry(cluster, "group", "set", "orders", "calls", "--delay", "30m")
        assert (shown["policy"]["delay_ms"], shown["delay_ms"], shown["delayed"]) == (1_800_000, 1_800_000, 0)
        assert shown["set_by"]["delay_ms"] == "group"
        long = refused(cluster, "group", "set", "orders", "calls", "--delay", "367d")
        assert (long["error"], "delay_ms is 0 to" in long["text"]) == ("SETTING_INVALID", True)
        tarry(cluster, "topic", "set", "orders", "--delay", "1h")
        tarry(cluster, "cluster", "set", "--delay", "2h")
        shown = tarry(cluster, "group", "set", "orders", "calls", "--unset", "delay_ms")
        assert (shown["delay_ms"], shown["set_by"]["delay_ms"]) == (3_600_000, "topic")
        tarry(cluster, "topic", "set", "orders", "--unset", "delay_ms")
        assert tarry(cluster, "group", "show", "orders", "calls")["delay_ms"] == 7_200_000


def test_one_group_gets_messages_at_once_and_another_later_also_from_the_next_leader(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))

        async def work() -> None:
            async with connect(cluster.addresses) as client:
                operator = client.operator()
                for group in ("mail", "calls"):
                    await operator.create_group("orders", group)
                await operator.set_group("orders", "calls", delay_ms=DELAY_MS)
                due_ms = [now_ms() + 300] * MESSAGES
                await client.producer().schedule_batch("orders", [b"x"] * MESSAGES, due_ms=due_ms)
                calls = asyncio.create_task(received(client, "calls", MESSAGES))
                mail = await received(client, "mail", MESSAGES)
                assert all(one[1:] == (due_ms[0], 0) for one in mail)
                told = (await operator.describe_group("orders", "calls")).status
                assert (told.delayed, told.in_hand) == (MESSAGES, 0)
                cluster.kill((await operator.status()).leader)
                late = await calls
                assert all(one[1:] == (due_ms[0] + DELAY_MS, DELAY_MS) for one in late)
                assert min(at_ms for at_ms, *_ in late) >= due_ms[0] + DELAY_MS

        asyncio.run(work())


def test_a_shorter_delay_lets_what_waits_go_at_once(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))

        async def work() -> None:
            async with connect(cluster.addresses) as client:
                operator = client.operator()
                await operator.create_group("orders", "calls")
                await operator.set_group("orders", "calls", delay_ms=3_600_000)
                calls = asyncio.create_task(received(client, "calls", MESSAGES))
                await client.producer().schedule_batch("orders", [b"x"] * MESSAGES, delay_ms=[0] * MESSAGES)
                await asyncio.sleep(0.5)
                assert not calls.done()
                await operator.set_group("orders", "calls", delay_ms=0)
                async with asyncio.timeout(3):
                    assert {one[2] for one in await calls} == {0}

        asyncio.run(work())
