"""The rows of the comparison: their work, their systems, and the main figure of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from tarry.bench.side_by_side import workloads
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.workloads import Turn

Work: TypeAlias = Callable[[System, float], Awaitable[Turn]]


@dataclass(frozen=True, slots=True)
class Row:
    """`work(system, share)` runs one turn, or a share of it; `figure` is its main figure."""

    name: str
    title: str
    figure: str
    unit: str
    work: Work
    fits: Callable[[System], bool] = lambda system: True
    seconds: float = 1.3  # a whole turn's on a quiet machine of two cores, the systems' mean: the plan's
    more_is_better: bool = False
    in_full: bool = True
    quick: tuple[str, ...] = ()  # the systems that a quick run measures; with none it leaves the row out
    seconds_max: float = 60.0
    turns_fewer: int = 0  # than others get: of what takes long and hardly differs

    def turns(self, turns: int) -> int:
        """Return how many turns it gets where others get `turns`."""
        return max(1, turns - self.turns_fewer)


def _schedule(batch: int, size: int, in_flight: int) -> Work:
    return partial(workloads.schedule, batch=batch, size=size, in_flight=in_flight)


def _hundreds(system: System) -> bool:
    return system.batch_max >= 100


def _batches(system: System) -> bool:
    return system.batch_max >= 1_000


def _delivers_batches(system: System) -> bool:
    return system.delivers and _batches(system)


def _takes_batches(system: System) -> bool:
    """Leave out RocketMQ where larger bodies are what matters: it has no batches at all."""
    return _batches(system) and system.name != "rocketmq"


def _keeps(system: System) -> bool:
    """Leave out the second Redis: its sync interval does not change how much it keeps."""
    return _batches(system) and system.name != "redis_everysec"


OURS: Final = ("tarry",)
LOGS: Final = ("tarry", "etcd3")
REPLICATED: Final = ("tarry", "etcd3", "rabbit_quorum")
rate = partial(Row, figure="per_s", unit="/s", more_is_better=True)

ROWS: Final[tuple[Row, ...]] = (
    rate("schedule_1000x100", "schedule, 1,000 × 100 B, 32 in flight", work=_schedule(1_000, 100, 32),
         fits=_batches, quick=REPLICATED, seconds=1.7),
    rate("schedule_1000x1k", "schedule, 1,000 × 1 KiB, 32 in flight", work=_schedule(1_000, 1_024, 32),
         fits=_takes_batches, quick=LOGS, seconds=1.9),
    rate("schedule_100x100", "schedule, 100 × 100 B, 32 in flight", work=_schedule(100, 100, 32),
         fits=_hundreds, quick=LOGS),
    rate("schedule_1000x100_alone", "schedule, 1,000 × 100 B, 1 in flight", work=_schedule(1_000, 100, 1),
         fits=_batches, in_full=False),
    rate("schedule_100x100_alone", "schedule, 100 × 100 B, 1 in flight", work=_schedule(100, 100, 1),
         fits=_batches, in_full=False),
    rate("schedule_100x1k", "schedule, 100 × 1 KiB, 32 in flight", work=_schedule(100, 1_024, 32),
         fits=_batches, in_full=False),
    rate("schedule_tasks32", "schedule, 1 × 100 B from 32 tasks", work=partial(workloads.single, tasks=32),
         quick=LOGS),
    Row("schedule_one", "schedule, 1 × 100 B, one after another, p50", "p50_ms", "ms",
        partial(workloads.single, tasks=1), quick=LOGS),
    Row("lateness_1k", "lateness at 1,000 a second, p99", "p99_ms", "ms",
        partial(workloads.steady, rate=1_000), lambda system: system.delivers, quick=OURS, seconds=3.6),
    Row("lateness_5k", "lateness at 5,000 a second, p99", "p99_ms", "ms",
        partial(workloads.steady, rate=5_000), _delivers_batches, quick=OURS, seconds=3.6),
    Row("mass_100k", "100,000 due at one instant, to the last acknowledgement", "s", "s",
        partial(workloads.mass, count=100_000), _delivers_batches, quick=OURS, seconds=5.0),
    Row("pending", "memory per message pending", "ram_bytes", "B", workloads.pending, _keeps, quick=OURS,
        seconds=12.0, seconds_max=120, turns_fewer=1),
    rate("cancel", "cancel, batches of 1,000", work=workloads.cancel, fits=lambda system: system.cancels),
    Row("failover", "leader killed, to the next answer", "s", "s", workloads.failover,
        lambda system: system.fails_over, seconds=3.0),
    Row("mass_1m", "1,000,000 due at one instant, to the last acknowledgement", "s", "s",
        partial(workloads.mass, count=1_000_000), _delivers_batches, in_full=False, seconds=25.0,
        seconds_max=300),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of the whole system and its client for 100,000 messages, in the turns of `row`."""

    name: str
    title: str
    row: str
    figure: str = "cpu_s"
    unit: str = "s"
    more_is_better: bool = False


COSTS: Final[tuple[Cost, ...]] = (
    Cost("cpu_schedule_one", "CPU of 100,000 scheduled one after another", "schedule_one"),
    Cost("cpu_schedule_tasks32", "CPU of 100,000 scheduled by 32 tasks", "schedule_tasks32"),
    Cost("cpu_schedule_100", "CPU of 100,000 scheduled in batches of 100", "schedule_100x100"),
    Cost("cpu_schedule_1000", "CPU of 100,000 scheduled in batches of 1,000", "schedule_1000x100"),
    Cost("cpu_steady_5k", "CPU of 100,000 scheduled and delivered at 5,000 a second", "lateness_5k"),
    Cost("cpu_delivery", "CPU of 100,000 delivered that are due at one instant", "mass_100k"),
)


def row_of(name: str) -> Row:
    """Return the row of that name; raise KeyError naming those there are."""
    for row in ROWS:
        if row.name == name:
            return row
    raise KeyError(f"no row {name}; there are {', '.join(row.name for row in ROWS)}")
