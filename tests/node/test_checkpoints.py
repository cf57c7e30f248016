"""Checkpoints: one at a time, each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarry.node.checkpoints import Checkpoints
from tarry.node.config import Dispatch
from tarry.replication.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, release, schedule


async def test_a_checkpoint_whose_caller_is_cancelled_is_written_before_the_next_begins(
    tmp_path: Path,
) -> None:
    """Or what it alone was to sync is never synced, though the next one names it."""
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS]), release(NOW_MS + 1)])
    begun, go_on = asyncio.Event(), asyncio.Event()
    synced: list[tuple[int, list[str]]] = []

    async def before() -> None:
        begun.set()
        await go_on.wait()

    async def run_blocking(work: Callable[[], Any]) -> Any:
        captured = work.args[0]  # type: ignore[attr-defined]
        synced.append((captured.applied_index, [path.name for path in captured.touched]))
        return work()

    checkpoints = Checkpoints(machine, Dispatch(), lambda index: None, run_blocking, before)
    first = asyncio.ensure_future(checkpoints.write())
    await begun.wait()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    machine.apply(2, 1, [schedule([NOW_MS + 9])])
    last = asyncio.ensure_future(checkpoints.write())
    await asyncio.sleep(0)
    go_on.set()
    assert (await last).applied_index == 2
    assert synced == [(1, [f"{0:016x}.ready"]), (2, [])]
    machine.close()
