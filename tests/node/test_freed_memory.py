"""Memory that a node has freed goes back to the system."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tarry.node import freed_memory
from tarry.replication.durations import Durations

PIECES = 400
PIECE_BYTES = 100_000
PROGRAM = f"""
import ctypes, re
from tarry.node.freed_memory import trim

if not hasattr(ctypes.CDLL(None), "malloc_trim"):
    raise SystemExit(3)

def anonymous_bytes():
    rollup = open("/proc/self/smaps_rollup").read()
    return int(re.search(r"Anonymous: *(\\d+) kB", rollup)[1]) << 10

before = anonymous_bytes()
made = [b"x" * {PIECE_BYTES} for _ in range({PIECES})]
last = b"x" * {PIECE_BYTES}
made = None
freed = anonymous_bytes() - before
trim()()
print(freed, anonymous_bytes() - before)
"""


def test_what_is_freed_between_pieces_in_use_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    if ran.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert ran.returncode == 0, ran.stderr
    freed, given_back = map(int, ran.stdout.split())
    assert freed > PIECES * PIECE_BYTES * 0.9
    assert given_back < freed / 10


async def test_it_is_given_back_once_after_each_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    given, looked = list[float](), asyncio.Event()
    checkpoints = Durations()
    monkeypatch.setattr(freed_memory, "trim", lambda: lambda: given.append(checkpoints.sum_s))
    pauses = 0

    async def sleep(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses in (2, 5):
            checkpoints.add(1.0)
        if pauses == 8:
            looked.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    running = asyncio.create_task(freed_memory.run(checkpoints, 1_000))
    await looked.wait()
    running.cancel()
    assert given == [1.0, 2.0]
