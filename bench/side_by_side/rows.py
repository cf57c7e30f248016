"""The rows of the comparison: which work, for which systems, and which figure speaks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tarry.bench.side_by_side import workloads
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.workloads import Turn


@dataclass(frozen=True, slots=True)
class Row:
    """`work(system, quick)` runs one turn; `figure` is its main figure."""

    name: str
    title: str
    figure: str
    unit: str
    work: Callable[[System, bool], Awaitable[Turn]]
    fits: Callable[[System], bool] = lambda system: True
    more_is_better: bool = False
    turns_max: int = 10
    in_full: bool = True
    quick: tuple[str, ...] = ()  # the systems that a quick run measures; with none it leaves the row out
    seconds_max: float = 90.0


def _schedule(batch: int, size: int, in_flight: int) -> Callable[[System, bool], Awaitable[Turn]]:
    return lambda system, quick: workloads.schedule(
        system, batch=batch, size=size, in_flight=in_flight, seconds=0.4 if quick else 1.2
    )


def _single(tasks: int) -> Callable[[System, bool], Awaitable[Turn]]:
    return lambda system, quick: workloads.single(
        system, size=100, tasks=tasks, seconds=0.4 if quick else 1.2
    )


def _steady(rate: int) -> Callable[[System, bool], Awaitable[Turn]]:
    return lambda system, quick: workloads.steady(system, rate=rate, size=100, seconds=1.0 if quick else 2.5)


def _mass(count: int) -> Callable[[System, bool], Awaitable[Turn]]:
    return lambda system, quick: workloads.mass(system, count=count, size=100)


def _pending(system: System, quick: bool) -> Awaitable[Turn]:
    count, seconds = (400_000, 4.0) if quick else (1_000_000, 10.0)
    return workloads.pending(system, count=count, size=100, seconds=seconds)


def _cancel(system: System, quick: bool) -> Awaitable[Turn]:
    return workloads.cancel(system, count=5_000, size=100, seconds=2.0)


def _failover(system: System, quick: bool) -> Awaitable[Turn]:
    return workloads.failover(system, size=100)


def _hundreds(system: System) -> bool:
    return system.batch_max >= 100


def _batches(system: System) -> bool:
    return system.batch_max >= 1_000


OURS: Final = ("tarry",)
LOGS: Final = ("tarry", "etcd3")
QUEUES: Final = ("tarry", "rabbit_quorum")
REPLICATED: Final = ("tarry", "etcd3", "rabbit_quorum")
rate = partial(Row, figure="per_s", unit="/s", more_is_better=True)

ROWS: Final[tuple[Row, ...]] = (
    rate("schedule_1000x100", "schedule, 1,000 × 100 B, 32 in flight", work=_schedule(1_000, 100, 32),
         fits=_batches, quick=REPLICATED),
    rate("schedule_1000x1k", "schedule, 1,000 × 1 KiB, 32 in flight", work=_schedule(1_000, 1_024, 32),
         fits=_batches, quick=LOGS),
    rate("schedule_100x100", "schedule, 100 × 100 B, 32 in flight", work=_schedule(100, 100, 32),
         fits=_hundreds, quick=LOGS),
    rate("schedule_1000x100_alone", "schedule, 1,000 × 100 B, 1 in flight", work=_schedule(1_000, 100, 1),
         fits=_batches, in_full=False),
    rate("schedule_100x100_alone", "schedule, 100 × 100 B, 1 in flight", work=_schedule(100, 100, 1),
         fits=_batches, in_full=False),
    rate("schedule_100x1k", "schedule, 100 × 1 KiB, 32 in flight", work=_schedule(100, 1_024, 32),
         fits=_batches, in_full=False),
    rate("schedule_tasks32", "schedule, 1 × 100 B from 32 tasks", work=_single(32), quick=REPLICATED),
    Row("schedule_one", "schedule, 1 × 100 B, one after another, p50", "p50_ms", "ms", _single(1),
        quick=REPLICATED),
    Row("lateness_1k", "lateness at 1,000 a second, p99", "p99_ms", "ms", _steady(1_000),
        lambda system: system.delivers, quick=QUEUES),
    Row("lateness_5k", "lateness at 5,000 a second, p99", "p99_ms", "ms", _steady(5_000),
        lambda system: system.delivers and _batches(system), quick=OURS),
    Row("mass_100k", "100,000 due at one instant, to the last acknowledgement", "s", "s", _mass(100_000),
        lambda system: system.delivers and _batches(system), quick=OURS),
    Row("pending", "memory per message pending", "ram_bytes", "B", _pending, _batches, turns_max=1,
        quick=OURS, seconds_max=150),
    rate("cancel", "cancel, batches of 1,000", work=_cancel, fits=lambda system: system.cancels),
    Row("failover", "leader killed, to the next answer", "s", "s", _failover,
        lambda system: system.fails_over),
    Row("mass_1m", "1,000,000 due at one instant, to the last acknowledgement", "s", "s", _mass(1_000_000),
        lambda system: system.delivers and _batches(system), in_full=False, seconds_max=300),
)  # fmt: skip


def row_of(name: str) -> Row:
    """Return the row of that name; raise KeyError naming those there are."""
    for row in ROWS:
        if row.name == name:
            return row
    raise KeyError(f"no row {name}; there are {', '.join(row.name for row in ROWS)}")
