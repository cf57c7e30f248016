"""Checkpoints: one at a time, each to its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.node.app import Node
from tarry.node.checkpoints import Checkpoints
from tarry.node.config import Dispatch, NodeConfig
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.machine import Machine, MachineSettings
from tarry.replication.state_store import CheckpointRefused, StateStore
from tests.replication.commands import NOW_MS, release, schedule, subscribe


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
    assert log_pb.Checkpoint.FromString(await last).applied_index == 2
    assert synced == [(1, [f"{0:016x}.ready"]), (2, [])]
    machine.close()


async def test_once_a_checkpoint_has_failed_this_process_writes_no_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS]), release(NOW_MS)])
    (segment,) = machine.folder.glob("ready/0/*.ready")
    segment.rename(segment.with_suffix(".away"))  # cannot be synced
    checkpoints = Checkpoints(machine, Dispatch(), lambda index: None)
    with pytest.raises(FileNotFoundError):
        await checkpoints.write()
    segment.with_suffix(".away").rename(segment)
    with pytest.raises(CheckpointRefused):
        await checkpoints.write()
    await checkpoints.close(write=False)
    machine.close()
    assert stored(machine.folder).applied_index == 0


async def test_a_node_that_ends_in_the_middle_of_an_entry_does_not_make_half_of_it_durable(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    config = NodeConfig(node="a", data=tmp_path, listen=address, members={"a": address})
    node = Node(config)
    running = asyncio.ensure_future(node.run())
    while not node.driver.may_serve():  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0.01)
    (tmp_path / "state-1" / "ready").touch()  # in the way of the queue's folder
    for command in (subscribe(), schedule([NOW_MS])):
        await node.driver.propose(command)
    with pytest.raises(OSError, match="ready"):
        await running
    assert stored(tmp_path / "state-1").applied_index == 0


def stored(folder: Path) -> log_pb.Checkpoint:
    store = StateStore(folder / "checkpoint")
    checkpoint = store.load()
    store.close()
    return log_pb.Checkpoint.FromString(checkpoint or b"")
