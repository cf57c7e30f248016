"""The cost of the wheel, empty, with a million and with ten million messages pending.

    python -m tarry.bench.wheel [--messages 10000000] [--folder DIR]

Each size runs in a process of its own, so that memory is that size's. Bodies are 100 bytes, batches 1,000
messages, due times random over a day. The last line is one JSON object; times are the processor's, in µs per
message unless the name says otherwise. Generated data goes to a temporary folder, which is removed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import numpy as np
import psutil
import typer

from tarry.wheel.state import HOUR_MS, SECOND_MS, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel

Size = TypeVar("Size")
Result = TypeVar("Result")
START_MS: Final = 1_795_219_200_000  # 2026-11-21T00:00Z
BODY_BYTES: Final = 100
BATCH: Final = 1_000
COMPARED_TURNS: Final = 15
FILL_BATCH: Final = 4_096
DAY_MS: Final = 24 * HOUR_MS
SPREADS: Final = {
    "second": SECOND_MS,
    "hour": HOUR_MS,
    "day": DAY_MS,
    "year": 365 * DAY_MS,
    "century": 36_499 * DAY_MS,
}
PLANTED: Final = {"1": 1, "1k": 1_000, "100k": 100_000}


class Load:
    """Seeded messages for one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.random = np.random.default_rng(7)
        bodies = random.Random(7)
        self.records = [bodies.randbytes(BODY_BYTES) for _ in range(100_000)]
        self.topic = np.zeros(len(self.records), np.uint32)
        self.tag_mask = np.zeros(len(self.records), np.uint64)

    def due(self, count: int, begin_ms: int, spread_ms: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return begin_ms + self.random.integers(0, spread_ms, count)

    def append(self, due_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Any:
        count = len(due_ms)
        return self.wheel.append(due_ms, self.topic[:count], self.tag_mask[:count], self.records[:count])

    def fill(self, count: int) -> None:
        for left in range(count, 0, -FILL_BATCH):
            self.append(self.due(min(left, FILL_BATCH), START_MS, DAY_MS))


def timed_us(action: Callable[[], Result]) -> tuple[Result, float]:
    """Do an action; return its result and its time, by the processor's clock: others share the machine."""
    before = time.process_time_ns()
    result = action()
    return result, (time.process_time_ns() - before) / 1_000


def median_us(action: Callable[[], Any], repeats: int) -> float:
    """Return the median time of an action."""
    return statistics.median(timed_us(action)[1] for _ in range(repeats))


def compare(folder: Path, sizes: dict[str, int]) -> dict[str, float]:
    """Measure inserts into wheels that hold so many, turn by turn, and collecting from the last one."""
    loads = {}
    for name, messages in sizes.items():
        loads[name] = load = Load(Wheel(folder / name, WheelSettings()))
        load.wheel.take(START_MS - 1, 1)
        load.append(load.due(BATCH, START_MS, DAY_MS))
        load.fill(messages)
    os.sync()
    blocks = sum(path.stat().st_blocks for path in (folder / name).rglob("*"))
    figures = {"disk_bytes_per_pending": blocks * 512 / max(messages, BATCH)}
    first = next(iter(sizes))
    for spread, spread_ms in SPREADS.items():
        turns = [
            {name: insert_us(load, spread_ms) for name, load in loads.items()}
            for _ in range(COMPARED_TURNS + 1)
        ][1:]
        for name in sizes:
            figures[f"insert_{spread}_us_{name}"] = statistics.median(turn[name] for turn in turns)
            ratios = [turn[name] / turn[first] for turn in turns]
            figures[f"insert_{spread}_ratio_{name}_vs_{first}"] = statistics.median(ratios)
    return figures | release(loads[name])


def insert_us(load: Load, spread_ms: int) -> float:
    """Return a batch's time, per message."""
    due_ms = load.due(BATCH, START_MS + 6 * HOUR_MS, spread_ms)
    return median_us(lambda: load.append(due_ms), 1) / BATCH


def rss_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def measure(folder: Path, messages: int) -> dict[str, float]:
    """Measure everything, with so many messages pending."""
    wheel = Wheel(folder, WheelSettings())
    wheel.take(START_MS - 1, 1)
    load = Load(wheel)
    load.append(load.due(BATCH, START_MS, DAY_MS))
    before = rss_bytes()
    seconds = time.perf_counter()
    load.fill(messages)
    os.sync()  # its write-back is not to be measured with what follows
    seconds = time.perf_counter() - seconds
    figures = {"fill_s": seconds, "rss_bytes": rss_bytes(), "rss_grown_bytes": rss_bytes() - before}
    blocks = sum(path.stat().st_blocks for path in folder.rglob("*"))
    figures["disk_bytes_per_pending"] = blocks * 512 / max(messages, BATCH)
    for name, spread_ms in SPREADS.items():

        def insert(spread_ms: int = spread_ms) -> None:
            load.append(load.due(BATCH, START_MS + 6 * HOUR_MS, spread_ms))

        insert()
        figures[f"insert_{name}_us"] = median_us(insert, 9 if spread_ms > DAY_MS else 101) / BATCH
    figures["insert_one_us"] = median_us(lambda: load.append(load.due(1, START_MS + 6 * HOUR_MS, 1)), 101)
    return figures | release(load) | recovery(folder, wheel, messages)


def release(load: Load) -> dict[str, float]:
    """Measure collecting a second of each size, planted among the others; taking, reading, cancelling."""
    figures = {}
    wheel = load.wheel
    at = START_MS + 10 * HOUR_MS
    for name, count in PLANTED.items():
        load.append(np.full(count, at))
        wheel.take(at - 1, 100_000_000)
        taken, figures[f"collect_us_{name}"] = timed_us(partial(wheel.take, at, count))
        assert len(taken) == count
        at += 60 * SECOND_MS
    wheel.take(at, 100_000_000)
    steps, released = [], 0
    for until in range(at, at + 60 * SECOND_MS, 50):
        taken, step_us = timed_us(partial(wheel.take, until, 4_096))
        released += len(taken)
        steps.append(step_us)
    figures["take_step_us"] = statistics.median(steps)
    figures["take_step_max_us"] = max(steps)
    figures["take_us"] = sum(steps) / max(released, 1)
    taken, flush_us = timed_us(lambda: wheel.take(START_MS + 13 * HOUR_MS, 100_000))
    figures["flush_us"] = flush_us / len(taken) if len(taken) else 0.0
    hour, index = taken.hour[:BATCH], taken.global_index[:BATCH]
    if len(hour):
        figures["read_scattered_us"] = median_us(lambda: wheel.read(hour, index), 11) / len(hour)
    where = load.append(load.due(BATCH, START_MS + 14 * HOUR_MS, HOUR_MS))
    figures["read_sequential_us"] = median_us(lambda: wheel.read(where.hour, where.global_index), 11) / BATCH
    figures["cancel_us"] = median_us(lambda: wheel.cancel(where.hour, where.global_index), 1) / BATCH
    return figures


def recovery(folder: Path, wheel: Wheel, messages: int) -> dict[str, float]:
    """Measure a checkpoint and, after a crash, the time until the wheel releases its first message."""
    before = time.perf_counter()
    state: WheelState = wheel.capture()
    captured = time.perf_counter()
    wheel.sync(state)
    synced = time.perf_counter()
    wheel.append(  # ahead of the checkpoint: to be cut off, and its hour's slots to be rebuilt
        np.full(1, START_MS + 13 * HOUR_MS + 1), np.zeros(1, np.uint32), np.zeros(1, np.uint64), [b""]
    )
    crashed = time.perf_counter()
    again = Wheel.recover(folder, WheelSettings(), state)
    assert again.pending == state.pending
    again.take(START_MS + 14 * HOUR_MS, 1)
    recovered = time.perf_counter() - crashed
    again.close()
    return {
        "capture_s": captured - before,
        "sync_s": synced - captured,
        "recovery_s": recovered,
        "pending": messages,
    }


def in_process(
    action: Callable[[Path, Size], dict[str, float]], folder: Path, size: Size
) -> dict[str, float]:
    """Run an action in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(action, (folder, size))


def summary(sizes: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return the figures of a run, by the names they are compared by."""
    small, large = min(sizes), max(sizes)
    first, last = sizes[small], sizes[large]
    names = {0: "empty", 100_000: "100k", 1_000_000: "1m", 10_000_000: "10m"}
    result: dict[str, float] = {"pending": large}
    for messages, figures in sizes.items():
        for spread in SPREADS:
            result[f"insert_{spread}_us_{names.get(messages, messages)}"] = figures[f"insert_{spread}_us"]
        result[f"insert_us_{names.get(messages, messages)}"] = figures["insert_hour_us"]
    result["insert_ratio_full_vs_empty"] = last["insert_hour_us"] / first["insert_hour_us"]
    reference = sizes.get(100_000, first)
    result["rss_ratio_10m_vs_100k"] = last["rss_bytes"] / reference["rss_bytes"]
    result["ram_bytes_per_pending"] = last["rss_grown_bytes"] / large
    result["recovery_10m_s"] = last["recovery_s"]
    for name in sorted(last.keys() - {"rss_grown_bytes", "recovery_s", "pending"}):
        if not name.startswith("insert_") or name == "insert_one_us":
            result[name] = last[name]
    return {name: round(value, 3) for name, value in result.items()}


def main(
    messages: Annotated[int, typer.Option(help="Pending in the largest run.")] = 10_000_000,
    folder: Annotated[Path | None, typer.Option(help="Where the temporary folder goes.")] = None,
) -> None:
    """Measure the wheel, print a table, and last one JSON object."""
    sizes = {}
    for pending in sorted({0, min(100_000, messages), min(1_000_000, messages), messages}):
        scratch = Path(tempfile.mkdtemp(prefix="tarry-bench-", dir=folder))
        try:
            sizes[pending] = in_process(measure, scratch / "hours", pending)
        finally:
            shutil.rmtree(scratch)
        print(
            f"{pending:>12,} pending: " + ", ".join(f"{k} {v:,.3f}" for k, v in sizes[pending].items()),
            flush=True,
        )
    print(json.dumps({"bench": "wheel", "cpus": os.cpu_count(), **summary(sizes)}))


if __name__ == "__main__":
    typer.run(main)
