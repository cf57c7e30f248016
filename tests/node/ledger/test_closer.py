"""The process that closes segments: it costs nobody time, and nothing is lost with it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tarry.node.ledger.closer import GROUP_NICE, NICE, Closer
from tarry.proto.ledger.segment import OpenSegment, closed
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, schedule

PATIENCE_S = 120  # it yields to whatever else the machine does


@pytest.fixture
async def left(tmp_path: Path) -> OpenSegment:
    """An open segment of three rows."""
    replica = Replica(tmp_path / "n1")
    replica.apply(schedule([NOW_MS + 1, NOW_MS + 2]), schedule([NOW_MS + 3], topic="other"))
    await replica.ledger.write(sync=True)
    replica.machine.close()
    assert replica.ledger.disk.open is not None
    return replica.ledger.disk.open


@contextmanager
def resting(closer: Closer) -> Iterator[Closer]:
    try:
        yield closer
    finally:
        closer.rest()


def topics(left: OpenSegment) -> list[str]:
    ((path, _),) = closed(left.ledger)
    return [row["topic"] for row in pq.read_table(path).to_pylist()]


def waits_for_a_lock(pid: int) -> bool:
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(pid) in line.split() for line in lines)


def nice_of_group(pid: int) -> int:
    """Return the nice value of the kernel's group of a session; where it has none, the expected."""
    group = Path(f"/proc/{pid}/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else GROUP_NICE


async def until_it_waits_for_the_lock(closer: Closer) -> subprocess.Popen[bytes]:
    """Return the process, once it waits for the segment, which the test has locked."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(0)
            process = closer.process
            if process is not None and waits_for_a_lock(process.pid):
                return process


async def test_it_has_a_low_priority_among_sessions_too(left: OpenSegment) -> None:
    with resting(Closer(apart=True)) as closer:
        with left.locked():
            closing = asyncio.create_task(asyncio.to_thread(closer.close, left, NOW_MS))
            process = await until_it_waits_for_the_lock(closer)
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == NICE == 19
            assert os.getsid(process.pid) == process.pid
            assert nice_of_group(process.pid) == GROUP_NICE
        assert [await closing] == closed(left.ledger)
    assert topics(left) == ["t", "t", "other"]


async def test_one_process_closes_all_that_waits_and_ends(left: OpenSegment, tmp_path: Path) -> None:
    second = OpenSegment(left.ledger, left.source, left.run, left.segment + 1, left.covered)
    (payload,) = left.payloads()
    second.append(payload, left.rows, left.covered + 2)
    closer = Closer(apart=True)
    assert closer.process is None
    await asyncio.to_thread(closer.close, left, NOW_MS)
    process = closer.process
    await asyncio.to_thread(closer.close, second, NOW_MS)
    assert process is not None
    assert closer.process is process
    assert [manifest["rows"] for _, manifest in closed(left.ledger)] == [3, 3]
    await asyncio.to_thread(closer.rest)
    assert process.returncode == 0


async def test_when_it_is_killed_in_the_middle_of_a_segment_another_closes_that(left: OpenSegment) -> None:
    with resting(Closer(apart=True)) as closer:
        with left.locked():
            closing = asyncio.create_task(asyncio.to_thread(closer.close, left, NOW_MS))
            process = await until_it_waits_for_the_lock(closer)
            process.kill()
            assert await asyncio.to_thread(process.wait) == -9
        assert [await closing] == closed(left.ledger)
    assert topics(left) == ["t", "t", "other"]


async def test_when_it_is_killed_before_it_can_say_that_a_segment_is_closed_that_is_found(
    left: OpenSegment,
) -> None:
    class Mute(Closer):
        lost = False

        def _ask(self, told: bytes) -> dict[str, str] | None:
            answer = super()._ask(told)
            lost, self.lost = not self.lost, True
            if lost:
                self.rest()
            return None if lost else answer

    with resting(Mute(apart=True)) as closer:
        done = await asyncio.to_thread(closer.close, left, NOW_MS)
    assert [done] == closed(left.ledger)
    assert topics(left) == ["t", "t", "other"]


async def test_a_node_that_stops_waits_for_no_process_of_low_priority(left: OpenSegment) -> None:
    closer = Closer(apart=True)
    with left.locked():
        closing = asyncio.create_task(asyncio.to_thread(closer.close, left, NOW_MS))
        process = await until_it_waits_for_the_lock(closer)
        closer.hurry()
        assert await asyncio.to_thread(process.wait) == -9
    assert [await closing] == closed(left.ledger)
    assert closer.process is None
    assert topics(left) == ["t", "t", "other"]


async def test_it_closes_nothing_once_the_node_has_ended(left: OpenSegment) -> None:
    told = json.dumps({**asdict(left), "ledger": str(left.ledger), "now_ms": NOW_MS}).encode()
    command = [sys.executable, "-m", "tarry.node.ledger.closer"]
    with left.locked():
        orphan = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        output, _ = await orphan.communicate(told + b"\n")
    assert (orphan.returncode, output) == (0, b"")
    assert closed(left.ledger) == []
    assert left.path.exists()


def aborting(module: str) -> list[str]:
    """Return the command of a module in an interpreter whose end aborts, as pyarrow's threads may have it."""
    ready = "import atexit, os, runpy, sys; atexit.register(os.abort)"
    return [sys.executable, "-c", f"{ready}; runpy.run_module(sys.argv[1], run_name='__main__')", module]


async def test_processes_whose_answers_are_written_end_well_though_an_interpreter_s_end_would_abort(
    left: OpenSegment,
) -> None:
    plain = {**asdict(left), "ledger": str(left.ledger)}
    wanted = {"found": [plain], "message": [1, 1], "times": [0, NOW_MS * 2]}
    gone = {
        "found": [{**plain, "ledger": str(left.ledger / "none")}],
        "message": [1, 1],
        "times": [0, NOW_MS * 2],
    }
    for module, asked, code, answer in (
        ("history_search", wanted, 0, '"complete": true'),
        ("history_search", gone, 1, ""),
        ("closer", {**plain, "now_ms": NOW_MS}, 0, ""),
    ):
        process = await asyncio.create_subprocess_exec(
            *aborting(f"tarry.node.ledger.{module}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        lines = await process.stdout.readline() if module == "closer" else await process.stdout.read()
        process.stdin.close()
        assert (await process.wait(), answer in lines.decode()) == (code, True)


async def test_what_the_disk_does_not_take_is_told_and_taken_once_it_can_be(left: OpenSegment) -> None:
    obstacle = left.ledger / f"date={datetime.fromtimestamp(NOW_MS / 1000, UTC).date()}"
    obstacle.touch()
    with resting(Closer(apart=True)) as closer:
        with pytest.raises(OSError, match="FileExistsError"):
            await asyncio.to_thread(closer.close, left, NOW_MS)
        assert left.path.exists()
        obstacle.unlink()
        assert [await asyncio.to_thread(closer.close, left, NOW_MS)] == closed(left.ledger)
    assert topics(left) == ["t", "t", "other"]
