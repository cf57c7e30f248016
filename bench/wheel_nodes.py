"""The wheel at scale: its own costs, and what real nodes make of ten million pending and of mass expiry.

    make bench-wheel        python -m tarry.bench.wheel_nodes [--messages 10000000] [--folder DIR]

Four to five minutes. Prints a table and last one JSON object. `insert_*`, `collect_*` and `disk_*` are of the
wheel alone: wheels of three sizes, inserted into in turn (`tarry.bench.wheel.compare`). Lateness, mass expiry
and idling are of three nodes and one client; memory and recovery of one node, killed with all of it pending.
Memory is compared after so much traffic that the journal is at its bound both times. All share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tarry.bench import wheel
from tarry.bench.machine import Stolen, caption, machine
from tarry.bench.nodes import (
    BODY,
    fill,
    idle_cpu_percent,
    in_flight,
    lateness_ms,
    processes_of,
    serving,
    written_bytes,
)
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster

MESSAGES: Final = 10_000_000
DAY_MS: Final = 86_400_000
SPREADS: Final = {name: wheel.SPREADS[name] for name in ("hour", "year", "century")}
IDLE_S: Final = 10.0
ONE_BY_ONE: Final = 20_000
ONE_BY_ONE_AWAITED: Final = 1_000
OTHER_EVERY_S: Final = 0.01
SPREAD_BATCH: Final = 4_096
SPREAD_BATCHES: Final = 16
SPREAD_IN_FLIGHT: Final = 8
WORDS: Final = Console(stderr=True)


def day_ahead(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Draw due times within a day, from an hour ahead on."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms + 3_600_000 + np.random.default_rng(7).integers(0, DAY_MS, count)


async def other_topic(client: Client, late_ms: list[float]) -> None:
    """Note the lateness of a message each 10 ms on a topic of its own, until cancelled."""
    producer = client.producer()

    async def schedule() -> None:
        while True:
            producer.schedule_one_way("other", BODY, delay_ms=1_000)
            await asyncio.sleep(OTHER_EVERY_S)

    async with client.consumer("other", "bench", credit=1_000) as consumer, asyncio.TaskGroup() as tasks:
        tasks.create_task(schedule())
        async for batch in consumer.batches():
            late_ms.extend((time.time_ns() / 1e6 - np.asarray(batch.due_ms)).tolist())
            batch.ack_soon()


async def mass(
    client: Client, topic: str, count: int, ahead_s: int, others: list[float] | None = None
) -> tuple[float, int]:
    """Have some due at one instant; return the seconds until all are acknowledged, and the early ones.

    `others`: gets the lateness of another topic's messages from when all are scheduled.
    """
    due_ms = (int(time.time()) + ahead_s) * 1_000 + 500
    async with client.consumer(topic, "bench", credit=100_000) as consumer:
        await fill(client, topic, np.full(count, due_ms))
        other = None if others is None else asyncio.create_task(other_topic(client, others))
        seen = early = 0
        async for batch in consumer.batches():
            early += int(np.count_nonzero(np.asarray(batch.due_ms) > time.time_ns() / 1e6))
            seen += len(batch)
            done = batch.ack()
            if seen >= count:
                await done
                break
        took_s = time.time() - due_ms / 1e3
    if other is not None:
        other.cancel()
    return took_s, early


async def spread_rate(client: Client, spread_ms: int) -> float:
    """Return messages a second: 65,536 in batches of 4,096, due within `spread_ms`, eight at once."""
    producer, random = client.producer(), np.random.default_rng(7)
    delays_ms = random.integers(3_600_000, 3_600_000 + spread_ms, (SPREAD_BATCHES, SPREAD_BATCH))
    bodies = [BODY] * SPREAD_BATCH
    began = time.perf_counter()
    calls = (producer.schedule_batch("spread", bodies, delay_ms=delay_ms) for delay_ms in delays_ms)
    await in_flight(calls, SPREAD_IN_FLIGHT)
    return SPREAD_BATCHES * SPREAD_BATCH / (time.perf_counter() - began)


async def one_by_one_rate(client: Client, count: int, *, awaited: bool) -> float:
    """Return messages a second that are due, handled one after another by one consumer, and acknowledged."""
    topic = "awaited" if awaited else "one-by-one"
    await fill(client, topic, np.zeros(count, np.int64))
    async with client.consumer(topic, "bench") as consumer:
        began, handled = time.perf_counter(), 0
        async for message in consumer:
            if awaited:
                await message.ack()
            else:
                message.ack_soon()
            handled += 1
            if handled == count:
                break
    return count / (time.perf_counter() - began)  # the last answers included: closing waits for them


async def of_spreads(client: Client) -> dict[str, float]:
    """Measure scheduling within an hour and over many, and whether the leader keeps its term."""
    term = (await client.operator().status()).term
    figures = {f"spread_{name}_per_s": await spread_rate(client, SPREADS[name]) for name in SPREADS}
    figures["spread_elections"] = (await client.operator().status()).term - term
    return figures


async def of_three(cluster: LocalCluster) -> dict[str, float]:
    """Measure idling, lateness and mass expiry."""
    figures: dict[str, float] = {}
    async with connect(cluster.addresses) as client:
        await fill(client, "far", day_ahead(10_000))
        await asyncio.sleep(12)  # two checkpoints
        before = written_bytes(cluster)
        figures["idle_cpu_percent"] = await asyncio.to_thread(idle_cpu_percent, cluster, IDLE_S)
        figures["idle_write_bytes"] = written_bytes(cluster) - before
        WORDS.print("  idle", figures)
        late = {rate: await lateness_ms(client, rate, 10) for rate in (1_000, 5_000)}
        figures["lateness_1k_p50_ms"] = float(np.percentile(late[1_000], 50))
        figures["lateness_1k_p99_ms"] = float(np.percentile(late[1_000], 99))
        figures["lateness_5k_p99_ms"] = float(np.percentile(late[5_000], 99))
        figures["early"] = sum(int(np.count_nonzero(values < 0)) for values in late.values())
        WORDS.print("  lateness", figures)
        operator = client.operator()
        figures["mass_100k_s"], early = await mass(client, "mass-100k", 100_000, 10)
        WORDS.print("  mass", figures)
        term = (await operator.status()).term
        others: list[float] = []
        figures["mass_1m_s"], early_1m = await mass(client, "mass-1m", 1_000_000, 60, others)
        figures["mass_1m_elections"] = (await operator.status()).term - term
        figures["mass_other_topic_p99_ms"] = float(np.percentile(others, 99))
        figures["early"] += early + early_1m
        WORDS.print("  mass", figures)
        figures["one_by_one_per_s"] = await one_by_one_rate(client, ONE_BY_ONE, awaited=False)
        figures["one_by_one_awaited_per_s"] = await one_by_one_rate(client, ONE_BY_ONE_AWAITED, awaited=True)
        figures |= await of_spreads(client)
        WORDS.print("  spreads", figures)
    return figures


def rss_bytes(cluster: LocalCluster) -> float:
    """Return the one node's resident memory."""
    (process,) = processes_of(cluster)
    return float(process.memory_info().rss)


def anonymous_bytes(cluster: LocalCluster) -> float:
    """Return the part of it that is no page of a file, which the kernel could drop at will."""
    (process,) = processes_of(cluster)
    return float(sum(mapping.anonymous for mapping in process.memory_maps()))


async def of_one(cluster: LocalCluster, messages: int) -> dict[str, float]:
    """Measure memory with a hundredth and with all messages pending; then recovery after SIGKILL.

    A time of 0 is in the past, and becomes now: nothing of it stays but what is kept of anything, such as
    the last answers of a few producers, up to 8 MiB.
    """
    small = messages // 100
    async with connect(cluster.addresses) as client:
        for _ in range(2):
            await fill(client, "past", np.zeros(messages // 20, np.int64))
        await fill(client, "t", day_ahead(small))
        await asyncio.sleep(12)
        rss = {small: rss_bytes(cluster)}
        own = {small: anonymous_bytes(cluster)}
        began = time.perf_counter()
        await fill(client, "t", day_ahead(messages - small))
        WORDS.print(f"  {messages - small:,} scheduled in {time.perf_counter() - began:.1f} s")
        await asyncio.sleep(12)
        rss[messages], own[messages] = rss_bytes(cluster), anonymous_bytes(cluster)
    cluster.kill("n1")
    began = time.perf_counter()
    cluster.start()
    async with connect(cluster.addresses) as client:
        await client.producer().schedule("t", BODY, delay_ms=0)
        recovered_s = time.perf_counter() - began
        pending = (await client.operator().status()).pending
    if pending < messages:
        raise RuntimeError(f"{pending:,} of {messages:,} messages are pending after the recovery")
    WORDS.print("  resident MiB", {n: round(size / 2**20) for n, size in rss.items()})
    WORDS.print("  anonymous MiB", {n: round(size / 2**20) for n, size in own.items()})
    return {
        "rss_ratio_10m_vs_100k": rss[messages] / rss[small],
        "ram_bytes_per_pending": (rss[messages] - rss[small]) / (messages - small),
        "recovery_10m_s": recovered_s,
    }


def of_wheel(scratch: Path, messages: int) -> dict[str, float]:
    """Measure inserting and collecting, in the wheel alone."""
    sizes = {"empty": 0, "1m": messages // 10, "10m": messages}
    figures = wheel.in_process(wheel.compare, scratch / "wheels", sizes)
    shutil.rmtree(scratch / "wheels")
    for name in sizes:
        figures[f"insert_us_{name}"] = figures[f"insert_day_us_{name}"]
    return figures


# key -> what it is, and the aim if there is one
KEYS: Final = {
    "insert_us_empty": ("insert a message, due within a day: wheel empty, µs", ""),
    "insert_us_1m": ("the same with 1 M pending, µs", ""),
    "insert_us_10m": ("the same with 10 M pending, µs", ""),
    **{
        f"insert_{spread}_ratio_{size}_vs_empty": (f"insert within a {spread}: {said} pending ÷ empty", "1")
        for spread in wheel.SPREADS
        for size, said in (("1m", "1 M"), ("10m", "10 M"))
    },
    "rss_ratio_10m_vs_100k": ("resident memory of a node: 10 M pending ÷ 100,000", "≤ 1.1"),
    "ram_bytes_per_pending": ("memory per pending message, B", "< 1"),
    "disk_bytes_per_pending": ("disk per pending message of 100 B, B", "≤ 250"),
    "collect_us_1": ("collect a second of 1 message, the first of an hour of 400,000, µs", ""),
    "collect_us_1k": ("collect a second of 1,000 messages, µs", ""),
    "collect_us_100k": ("collect a second of 100,000 messages, µs", ""),
    "lateness_1k_p50_ms": ("lateness at 1,000 a second, p50, ms", "≤ 2"),
    "lateness_1k_p99_ms": ("lateness at 1,000 a second, p99, ms", "≤ 5"),
    "lateness_5k_p99_ms": ("lateness at 5,000 a second, p99, ms", "≤ 10"),
    "early": ("early", "0"),
    "one_by_one_per_s": ("one consumer, one message after another, `ack_soon`: messages a second", "≥ 3,000"),
    "one_by_one_awaited_per_s": ("the same, `await message.ack()`", ""),
    "mass_100k_s": ("100,000 due at one instant, to the last acknowledgement, s", "≤ 1.0"),
    "mass_1m_s": ("1,000,000 due at one instant, to the last acknowledgement, s", ""),
    "mass_1m_elections": ("elections meanwhile", "0"),
    "mass_other_topic_p99_ms": ("another topic's lateness meanwhile, p99, ms", "≤ 100"),
    "spread_hour_per_s": (
        "65,536 in batches of 4,096 due within an hour, eight at once: scheduled a second",
        "",
    ),
    "spread_year_per_s": ("the same over a year", ""),
    "spread_century_per_s": ("the same over 100 years", ""),
    "spread_elections": ("elections meanwhile", "0"),
    "recovery_10m_s": ("`kill -9` with 10 M pending, start to the next acknowledged schedule, s", "≤ 10"),
    "idle_cpu_percent": ("CPU of the busiest of three nodes, 10,000 pending, all far away, %", "< 1"),
    "idle_write_bytes": ("bytes that three such nodes wrote in 10 s", "0"),
}


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table of a run; an older run may not have every figure."""
    lines = ["| what | aim | measured |", "| --- | --- | --- |"]
    lines += [f"| {said} | {aim} | {found[key]:,} |" for key, (said, aim) in KEYS.items() if key in found]
    return "\n".join([*lines, "", caption(found["machine"])])


def main(
    messages: Annotated[int, typer.Option(help="Pending in the largest runs.")] = MESSAGES,
    folder: Annotated[Path | None, typer.Option(help="Where the temporary folder goes.")] = None,
    out: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("out"),
) -> None:
    """Measure everything, print a table, and last one JSON object."""
    began, measured_on, stolen = time.perf_counter(), machine(), Stolen()
    with tempfile.TemporaryDirectory(prefix="tarry-bench-", dir=folder) as made:
        scratch = Path(made)
        WORDS.print("three nodes")
        with serving(3, folder=scratch) as cluster:
            figures = asyncio.run(of_three(cluster))
        WORDS.print("one node")
        with serving(1, folder=scratch) as cluster:
            figures |= asyncio.run(of_one(cluster, messages))
        WORDS.print("the wheel alone")
        figures |= of_wheel(scratch, messages)
    found = {key: float(f"{figures[key]:.4g}") for key in KEYS}
    table = Table("figure", "what", "aim", "measured")
    for key, (said, aim) in KEYS.items():
        table.add_row(key, said, aim, f"{found[key]:,}")
    Console(width=None if os.isatty(1) else 160).print(table)
    WORDS.print(f"{time.perf_counter() - began:.0f} s")
    out.mkdir(parents=True, exist_ok=True)
    name = "wheel_nodes" if messages == MESSAGES else "wheel_nodes_part"
    measured_on["stolen_percent"] = stolen.percent()
    whole = json.dumps({**found, "machine": measured_on}, indent=1)
    (out / f"{name}.json").write_text(whole + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
