"""`make soak MINUTES=60`: three real nodes under a steady load, watched for what grows.

    |-- warm-up --|-- first window --|----- … -----|-- last window --|-- all delivered --|
    0            1/6                2/6           5/6               6/6  of the time

A producer sends messages of 100 bytes with delays at random, two consumers of one group acknowledge them.
Kept for a twelfth of the time, released messages and the ledger are deleted in all windows alike. Broken is:
a message not taken, lost or early, an election, a node whose highest memory of the last window exceeds that
of the first by a tenth, a disk beyond what retention explains. Exit code 1 where anything is, and the nodes'
logs stay below `out/`. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from tarry.chaos.cluster.cluster import Cluster, now_ms
from tarry.chaos.cluster.footprint import Footprint, footprint
from tarry.chaos.cluster.heap import grown, heap, traced
from tarry.client.aio import Client, connect
from tarry.client.errors import TarryError
from tarry.client.local.cluster import LocalNode, Setting

TOPIC, GROUP, CONSUMERS = "soak", "soakers", ("one", "two")
BODY = np.dtype([("token", "<u8"), ("rest", "V92")])  # 100 bytes
TURN_S = 0.02
SAMPLE_S = 1.0
PROGRESS_S = 60.0
PATIENCE_S = 60.0
GROWTH_MAX: Final = 1.1  # of memory, from the first window to the last
FILES_GROWTH_MAX: Final = 1.5  # the ledger's segments go one by one; pages of a checkpoint are used again
FILES_SPARE_BYTES: Final = 4 << 20
JOURNAL_SEGMENT_BYTES: Final = 16 << 20
READY_UNIT_BYTES: Final = 32
MESSAGE_BYTES_MAX: Final = 256  # of a message of 100 bytes: its record and its index unit
READY_SEGMENT_BYTES: Final = READY_UNIT_BYTES << 20
MIB: Final = 1 << 20
OUT: Final = Path("out")

Window: TypeAlias = Mapping[str, Footprint]
"""Of each node, the highest of each figure in a window."""

console = Console(stderr=True, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """A load, its time, and the time for which nodes keep it."""

    seconds: float
    rate: int  # messages a second
    consensus: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def kept_ms(self) -> int:
        """Time for which released messages and the ledger are kept."""
        return int(min(300.0, self.seconds / 12) * 1_000)

    @property
    def check_ms(self) -> int:
        """Time between two looks at what may be deleted."""
        return max(1_000, self.kept_ms // 5)

    @property
    def delay_ms_max(self) -> int:
        return min(60_000, self.kept_ms)

    @property
    def journal_bytes(self) -> int:
        """Size of the journal that is kept: so small that it is reached in the warm-up."""
        return int(min(64.0, self.seconds / 60) * MIB)

    @property
    def settings(self) -> dict[str, Any]:
        """Configuration of the nodes; all else is as it is by default."""
        return {
            "dispatch": {
                "retention_ms": self.kept_ms,
                "idempotency_window_ms": self.kept_ms,  # hours are kept for it, too
                "retention_check_ms": self.check_ms,
                "journal_retained_bytes": self.journal_bytes,
            },
            "ledger": {"retention_ms": self.kept_ms, "segment_ms": max(1_000, self.kept_ms // 5)},
        }

    def window(self, at_s: float) -> str | None:
        """Return which window a moment is in: first, last or none."""
        sixth = int(6 * at_s / self.seconds)
        return {1: "first", 5: "last"}.get(sixth)

    def disk_max(self) -> dict[str, int]:
        """Return how many bytes of a node's disk each part may take at most."""
        late_s = (self.kept_ms + 3 * self.check_ms + self.delay_ms_max) / 1_000
        return {
            "journal": self.journal_bytes + 4 * JOURNAL_SEGMENT_BYTES,  # begun, made ahead, not yet dropped
            "ready": int(late_s * self.rate) * READY_UNIT_BYTES + READY_SEGMENT_BYTES,
            "hours": int((3_600 + late_s) * self.rate) * MESSAGE_BYTES_MAX,  # an hour goes whole
        }

    def hours_overdue(self, data: Path, at_s: float) -> list[str]:
        """Return folders of hours that should be deleted by now. `at_s`: since the epoch."""
        kept_s = (self.kept_ms + 3 * self.check_ms + 60_000) / 1_000  # and the last acknowledgements
        oldest = time.strftime("%Y%m%d%H", time.gmtime(at_s - kept_s))
        return sorted(path.name for path in data.glob("state-*/hours/*") if path.name < oldest)


@dataclass(slots=True)
class Record:
    """Messages acknowledged and received, by token."""

    acknowledged: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1 << 16, bool))
    received: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << 16, "u1"))
    failed: int = 0  # not acknowledged, however often the client repeated the request
    early: int = 0
    stop: bool = False

    def take(self, tokens: range) -> None:
        """Make room for tokens that are sent now."""
        if tokens.stop > len(self.received):
            self.acknowledged = np.concatenate([self.acknowledged, np.zeros_like(self.acknowledged)])
            self.received = np.concatenate([self.received, np.zeros_like(self.received)])
            self.take(tokens)

    def receive(self, tokens: NDArray[np.uint64]) -> None:
        """Count one delivery of each; 255 are as good as more."""
        np.add.at(self.received, tokens[self.received[tokens] < 255], 1)

    @property
    def missing(self) -> int:
        """Acknowledged messages that have not come."""
        return int((self.acknowledged & (self.received == 0)).sum())

    @property
    def told(self) -> str:
        return f"{self.acknowledged.sum():,} acknowledged, {(self.received > 0).sum():,} received"


@dataclass(frozen=True, slots=True)
class Result:
    """The last line."""

    minutes: float
    messages_per_s: int
    acknowledged: int
    failed: int
    received: int
    lost: int
    early: int
    repeated: int
    elections: int
    memory_growth_max: float  # of a node: the highest of the last window over that of the first
    nodes: dict[str, dict[str, tuple[int, int]]]  # the highest of each figure, of both windows
    heap: dict[str, dict[str, int]]  # bytes by which lines grew from window to window; of --heap
    broken: list[str]

    @property
    def kept(self) -> bool:
        """True if every promise was kept."""
        return not self.broken


def highest(seen: Sequence[Footprint]) -> Footprint:
    """Return the highest of each figure."""
    return Footprint(
        **{each.name: max(getattr(one, each.name) for one in seen) for each in fields(Footprint)}
    )


def broken(plan: Plan, first: Window, last: Window) -> list[str]:
    """Return in words what a node's memory or disk took and should not have."""
    found = []
    for name, after in last.items():
        before = first[name]
        for figure, most in (
            ("rss", GROWTH_MAX * before.rss),
            ("ledger", FILES_GROWTH_MAX * before.ledger + FILES_SPARE_BYTES),
            ("checkpoint", FILES_GROWTH_MAX * before.checkpoint + FILES_SPARE_BYTES),
        ):
            low, high = getattr(before, figure), getattr(after, figure)
            if high > most:
                found.append(
                    f"{name}: {figure} grew from {low:,} to {high:,} bytes; grown: {parts(before, after)}"
                )
        for part, bytes_max in plan.disk_max().items():
            if getattr(after, part) > bytes_max:
                found.append(f"{name}: {part} takes {getattr(after, part):,} bytes, of {bytes_max:,} at most")
    return found


def pairs(before: Footprint, after: Footprint) -> dict[str, tuple[int, int]]:
    """Return each figure of both."""
    return {each.name: (getattr(before, each.name), getattr(after, each.name)) for each in fields(Footprint)}


def parts(before: Footprint, after: Footprint) -> str:
    """Return in words which figures grew by more than a tenth."""
    return ", ".join(
        f"{name} {low:,} to {high:,}"
        for name, (low, high) in pairs(before, after).items()
        if high > GROWTH_MAX * low
    )


class Watch:
    """Looks at every node once a second, and tells once a minute what it sees."""

    def __init__(self, plan: Plan, cluster: Cluster, record: Record, *, with_heap: bool) -> None:
        self._plan = plan
        self._nodes = list(cluster.local.nodes.values())
        self._record = record
        self._with_heap = with_heap
        self._asked: dict[str, asyncio.Future[list[dict[str, int]]]] = {}  # by window
        self._asking = asyncio.Lock()
        self.seen: dict[str, dict[str, list[Footprint]]] = {
            window: {node.name: [] for node in self._nodes} for window in ("first", "last")
        }
        self.overdue: set[str] = set()

    async def run(self) -> None:
        """Look until the time is over. Raises OSError if a node has ended."""
        started_s, told_s = time.monotonic(), 0.0
        while (at_s := time.monotonic() - started_s) < self._plan.seconds:
            now = {node.name: await asyncio.to_thread(_look, node) for node in self._nodes}
            window = self._plan.window(at_s)
            if window is not None:
                for name, one in now.items():
                    self.seen[window][name].append(one)
                if self._with_heap and window not in self._asked:
                    self._asked[window] = asyncio.ensure_future(self._heaps())
            for node in self._nodes:
                late = self._plan.hours_overdue(node.folder, time.time())
                self.overdue.update(f"{node.name}: the hour {hour} is not deleted" for hour in late)
            if at_s - told_s >= PROGRESS_S:
                told_s = at_s
                self._tell(at_s, now)
            await asyncio.sleep(SAMPLE_S)

    async def _heaps(self) -> list[dict[str, int]]:
        async with self._asking:  # a busy node's earlier answer would be taken for the later one
            return await asyncio.gather(*map(heap, self._nodes))

    def _tell(self, at_s: float, now: Window) -> None:
        console.print(f"minute {at_s / 60:.0f}: {self._record.told}", highlight=False)
        for name, one in now.items():
            figures = asdict(one)
            files = figures.pop("open_files")
            sizes = ", ".join(f"{figure} {size / MIB:.1f}" for figure, size in figures.items())
            console.print(f"  {name}: MiB of {sizes}; {files} open files", highlight=False)

    def window(self, name: str) -> dict[str, Footprint]:
        """Return the highest figures of a window, by node. Raises ValueError if it was never looked at."""
        return {node: highest(seen) for node, seen in self.seen[name].items()}

    async def heap_growth(self) -> dict[str, dict[str, int]]:
        """Return by how many bytes lines of each node grew from window to window. Raises TimeoutError."""
        if not self._with_heap:
            return {}
        before, after = await self._asked["first"], await self._asked["last"]
        nodes = zip(self._nodes, before, after, strict=True)
        return {node.name: grown(first, last) for node, first, last in nodes}


def _look(node: LocalNode) -> Footprint:
    assert node.process is not None
    return footprint(node.process.pid, node.folder)


async def produce(client: Client, record: Record, plan: Plan) -> None:
    """Schedule so many a second, due within the longest delay at random, until told to stop."""
    producer = client.producer()
    chance = np.random.default_rng(1)

    async def send(tokens: range) -> None:
        due_ms = now_ms() + chance.integers(0, plan.delay_ms_max, len(tokens))
        bodies = np.zeros(len(tokens), dtype=BODY)
        bodies["token"] = tokens
        try:
            await producer.schedule_batch(TOPIC, [body.tobytes() for body in bodies], due_ms=due_ms)
        except TarryError as error:
            record.failed += len(tokens)
            console.print(f"not scheduled: {error}", highlight=False)
        else:
            record.acknowledged[tokens.start : tokens.stop] = True

    token, started_s = 0, time.monotonic()
    async with asyncio.TaskGroup() as sending:
        while not record.stop:
            wanted = int((time.monotonic() - started_s) * plan.rate)
            if wanted > token:
                record.take(range(token, wanted))
                sending.create_task(send(range(token, wanted)))
                token = wanted
            await asyncio.sleep(TURN_S)


async def consume(client: Client, name: str, record: Record) -> None:
    """Take batches and acknowledge them, until cancelled."""
    async with client.consumer(TOPIC, GROUP, name=name, credit=10_000) as consumer:
        async for batch in consumer.batches():
            record.receive(np.frombuffer(b"".join(batch.bodies), dtype=BODY)["token"])
            record.early += int((np.asarray(batch.received_ms) < np.asarray(batch.due_ms)).sum())
            batch.ack_soon()


async def run(plan: Plan, folder: Path, *, with_heap: bool) -> Result:
    """Do it all on a cluster of three."""
    record = Record()
    cluster = Cluster(3, folder, consensus=plan.consensus, **plan.settings)
    if with_heap:
        for node in cluster.local.nodes.values():
            traced(node)
    async with cluster, connect(cluster.addresses) as client, asyncio.TaskGroup() as tasks:
        watch = Watch(plan, cluster, record, with_heap=with_heap)
        term = await cluster.term()
        consumers = [tasks.create_task(consume(client, name, record)) for name in CONSUMERS]
        producer = tasks.create_task(produce(client, record, plan))
        await watch.run()
        lines = await watch.heap_growth()
        record.stop = True
        await producer
        until = time.monotonic() + plan.delay_ms_max / 1_000 + PATIENCE_S
        while record.missing and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        elections = await cluster.term() - term
        for task in consumers:
            task.cancel()
    return judge(plan, record, watch, elections, lines)


def judge(
    plan: Plan, record: Record, watch: Watch, elections: int, lines: dict[str, dict[str, int]]
) -> Result:
    """Return what was kept and what was broken."""
    first, last = watch.window("first"), watch.window("last")
    counts = {
        "failed": record.failed, "lost": record.missing, "early": record.early, "elections": elections
    }  # fmt: skip
    return Result(
        minutes=round(plan.seconds / 60, 2),
        messages_per_s=plan.rate,
        acknowledged=int(record.acknowledged.sum()),
        received=int((record.received > 0).sum()),
        repeated=int((record.received > 1).sum()),
        failed=counts["failed"],
        lost=counts["lost"],
        early=counts["early"],
        elections=counts["elections"],
        memory_growth_max=round(max(last[name].rss / first[name].rss for name in last), 3),
        nodes={name: pairs(first[name], last[name]) for name in last},
        heap=lines,
        broken=[
            *(f"{what}: {count:,}" for what, count in counts.items() if count),
            *broken(plan, first, last),
            *sorted(watch.overdue),
        ],
    )


def keep_logs(folder: Path) -> list[Path]:
    """Copy the nodes' logs to where a run's results go; return their paths."""
    to = OUT / time.strftime("soak-%Y%m%d-%H%M%S")
    to.mkdir(parents=True)
    return [Path(shutil.copy(log, to)) for log in sorted(folder.rglob("*.log")) if log.parent == folder]


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long messages are sent.")] = 60.0,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 2_000,
    heap: Annotated[
        bool, typer.Option("--heap", help="Also name the lines whose allocations grew (tracemalloc; slower).")
    ] = False,
) -> None:
    """Run three nodes under a steady load; exit code 1 where a promise is broken."""
    with tempfile.TemporaryDirectory(prefix="tarry-soak-") as folder:
        result = asyncio.run(run(Plan(minutes * 60, rate), Path(folder), with_heap=heap))
        kept = [] if result.kept else keep_logs(Path(folder))
    for line in result.broken:
        console.print(f"[bold red]broken[/]: {line}", highlight=False)
    for path in kept:
        console.print(f"log: {path}", highlight=False)
    print(json.dumps(asdict(result)))
    sys.exit(0 if result.kept else 1)


if __name__ == "__main__":
    typer.run(main)
