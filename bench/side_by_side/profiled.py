"""A profile: flame graphs of leader, follower and client under one row, and the cost of a message.

    python -m tarry.bench.side_by_side.profiled --row schedule_1000x100 --out out

Writes `profile-ROW-{leader,follower,client}.svg` (py-spy, only what holds the interpreter's lock). The last
line is JSON, per message: CPU µs by process and kind of thread, bytes handed to the disk, bytes and packets
on the loopback (each counted once, those of other programs too).

Of a row that receives, it says what messages later than 3 ms waited for: ms by cause, and for how many
each was the largest (`waits`). With `--after schedule_1000x100` that row comes first, and the nodes do in the
background what it has left.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer
from numpy.typing import NDArray

from tarry.bench.side_by_side import turn_trace
from tarry.bench.side_by_side.messages import HEADER
from tarry.bench.side_by_side.peers.tarry import Tarry
from tarry.bench.side_by_side.rows import Row, row_of
from tarry.bench.side_by_side.system import Take
from tarry.bench.side_by_side.waits import Spans, waits

TICKS_S = os.sysconf("SC_CLK_TCK")
RATE = 200
Sample = Counter[str]


def thread_ticks(pids: dict[str, int]) -> Sample:
    """Return CPU ticks by process and thread name; "main" is the event loop's."""
    ticks: Sample = Counter()
    for name, pid in pids.items():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                head, _, tail = (thread / "stat").read_text().rpartition(")")
            except OSError:
                continue  # it has just ended
            kind = "main" if thread.name == str(pid) else head.partition("(")[2]
            user, system = tail.split()[11:13]
            ticks[f"{name} {kind}"] += int(user) + int(system)
    return ticks


def written_bytes(pids: dict[str, int]) -> Sample:
    """Return bytes that each process has sent to the disk."""
    return Counter({name: psutil.Process(pid).io_counters().write_bytes for name, pid in pids.items()})


def loopback() -> Sample:
    """Return bytes and packets of the loopback so far."""
    found = psutil.net_io_counters(pernic=True)["lo"]
    return Counter({"bytes": found.bytes_sent, "packets": found.packets_sent})


class Traced(Tarry):
    """tarry, whose nodes record their turns, and what came when."""

    def __init__(self) -> None:
        self.came: list[tuple[list[bytes], float]] = []

    async def start(self, folder: Path) -> None:
        """Start the nodes with a module that site.py imports."""
        folder.joinpath("sitecustomize.py").write_text(f"import {turn_trace.__name__}\n")
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {turn_trace.FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        await super().start(folder)

    async def receive(self, lane: str, take: Take) -> None:
        """Receive, and note what comes."""

        def noted(bodies: list[bytes], received_ms: float | None = None) -> bool:
            self.came.append((bodies, time.time_ns() / 1e6))
            return take(bodies, received_ms)

        await super().receive(lane, noted)

    def due_and_came_ms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the due times and arrivals of what came."""
        due = [np.frombuffer(body, HEADER, 1)["due_ms"][0] for bodies, _ in self.came for body in bodies]
        came = [at_ms for bodies, at_ms in self.came for _ in bodies]
        return np.array(due, np.float64), np.array(came)


async def cost(row: Row, system: Traced, pids: dict[str, int]) -> dict[str, Any]:
    """Run a turn and return what a message of it cost, one that came or was left pending."""
    system.came.clear()
    before = thread_ticks(pids), written_bytes(pids), loopback(), await system.pending()
    turn = await row.work(system, 1.0)
    came = sum(len(bodies) for bodies, _ in system.came)
    count = max(1, came, await system.pending() - before[3])
    cpu, disk, wire = thread_ticks(pids) - before[0], written_bytes(pids) - before[1], loopback() - before[2]
    return {
        "row": row.name,
        "messages": count,
        **{name: round(value, 3) for name, value in turn.figures.items()},
        "cpu_us": {name: round(ticks / TICKS_S / count * 1e6, 2) for name, ticks in cpu.most_common()},
        "disk_bytes": {name: round(value / count) for name, value in disk.items()},
        "loopback": {name: round(value / count, 3) for name, value in wire.items()},
    }


async def flames(row: Row, system: Tarry, pids: dict[str, int], out: Path) -> None:
    """Run turns under py-spy."""
    spies = []
    for name, pid in pids.items():
        command = [f"{sys.prefix}/bin/py-spy", "record", "--gil", "--nonblocking", "-r", str(RATE), "-d", "4"]
        target = ["-p", str(pid), "-o", str(out / f"profile-{row.name}-{name}.svg")]
        spies.append(await asyncio.create_subprocess_exec(*command, *target, stderr=subprocess.DEVNULL,
                                                          stdout=subprocess.DEVNULL))  # fmt: skip
    await asyncio.sleep(0.5)
    while any(spy.returncode is None for spy in spies):
        await row.work(system, 1.0)


async def profile(row: Row, first: Sequence[Row], out: Path | None) -> dict[str, Any]:
    """Start a cluster, warm it up, measure, then draw, if there is a folder for it."""
    with tempfile.TemporaryDirectory(prefix="profiled-") as folder:
        system = Traced()
        await system.start(Path(folder))
        try:
            pids = {**system.pids(), "client": os.getpid()}
            await row.work(system, 0.4)
            for one in first:
                await one.work(system, 1.0)
            found = await cost(row, system, pids)
            due_ms, came_ms = system.due_and_came_ms()
            if out is not None:
                await flames(row, system, pids, out)
            await system.halt()  # writes what the nodes have recorded
            if len(due_ms):
                found["waits"] = waits(Spans.of_leader(Path(folder)), due_ms, came_ms)
        finally:
            await system.stop()
    return found


def main(
    row: Annotated[str, typer.Option(help="the row to run")] = "schedule_1000x100",
    after: Annotated[list[str] | None, typer.Option(help="rows to run before it")] = None,
    draw: Annotated[bool, typer.Option(help="make flame graphs, which needs py-spy")] = True,
    out: Annotated[Path, typer.Option(help="folder of the flame graphs")] = Path("out"),
) -> None:
    """Say where the time of one row goes."""
    if draw:
        out.mkdir(parents=True, exist_ok=True)
    first = [row_of(name) for name in after or []]
    print(json.dumps(asyncio.run(profile(row_of(row), first, out if draw else None))))


if __name__ == "__main__":
    typer.run(main)
