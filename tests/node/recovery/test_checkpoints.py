"""Checkpoints: one at a time, each to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.client.local.free_ports import free_ports
from tarry.node.app import Node
from tarry.node.config import Dispatch, NodeConfig
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.checkpoint import CheckpointDamaged, CheckpointRefused, CheckpointStore
from tarry.replication.state_machine.machine import FEW_FILES, Machine, MachineSettings
from tarry.replication.state_machine.queue_checksums import UNIT_BYTES
from tarry.replication.state_machine.ready_queue import TAIL_UNITS
from tests.replication.commands import NOW_MS, release, schedule, subscribe


async def test_a_checkpoint_whose_caller_is_cancelled_is_written_before_the_next_begins(
    tmp_path: Path,
) -> None:
    """Or what it alone was to sync is never synced, though the next one names it."""
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS]), release(NOW_MS + 1)])
    begun, go_on = asyncio.Event(), asyncio.Event()
    synced: list[tuple[int, list[int]]] = []

    async def before() -> None:
        begun.set()
        await go_on.wait()

    async def run_blocking(work: Callable[[], Any]) -> Any:
        captured = work.args[0]  # type: ignore[attr-defined]
        units = [len(changes.tail) // UNIT_BYTES for changes in captured.queues]
        synced.append((captured.applied_index, units))
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
    assert synced == [(1, [1]), (2, [])]
    machine.close()


async def test_once_a_checkpoint_has_failed_this_process_writes_no_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS]), release(NOW_MS)])
    machine.queues[0].flush()
    (segment,) = machine.folder.glob("ready/0/*.ready")
    segment.rename(segment.with_suffix(".away"))  # cannot be synced
    checkpoints = Checkpoints(machine, Dispatch(checkpoint_ms=10), lambda index: None)
    with pytest.raises(FileNotFoundError):
        await checkpoints.write()
    segment.with_suffix(".away").rename(segment)
    with pytest.raises(CheckpointRefused):
        await checkpoints.write()
    checkpoints._written = (
        machine.applied_index
    )  # nothing is applied, as where this node is to give its state
    async with asyncio.timeout(10):
        with pytest.raises(CheckpointRefused):  # the process must end, whoever had asked for the first one
            await checkpoints.run()
    await checkpoints.close(write=False)
    machine.close()
    assert stored(machine.folder).applied_index == 0


async def test_a_node_that_ends_in_the_middle_of_an_entry_does_not_make_half_of_it_durable(
    tmp_path: Path,
) -> None:
    node = Node(alone(tmp_path))
    running = asyncio.ensure_future(node.run())
    await _until(node.driver.may_serve, running)
    (tmp_path / "state-1" / "ready" / "0").touch()  # in the way of the queue's folder
    for command in (subscribe(), schedule([NOW_MS] * 2 * TAIL_UNITS)):  # more than waits in memory
        await node.driver.propose(command)
    with pytest.raises(OSError, match="ready"):
        await running
    assert stored(tmp_path / "state-1").applied_index == 0


async def test_a_node_that_lost_its_checkpoint_and_the_log_before_it_is_refused_with_its_data_left(
    tmp_path: Path,
) -> None:
    config = alone(tmp_path, Dispatch(checkpoint_ms=20, journal_retained_bytes=1))
    node = Node(config)
    running = asyncio.ensure_future(node.run())
    await _until(node.driver.may_serve, running)
    await node.driver.propose(schedule([NOW_MS]))
    await _until(lambda: stored_hours(tmp_path) and node.journal.first_index > 1, running)
    node.stop()
    await running
    (tmp_path / "state-1" / "checkpoint" / "data.mdb").write_bytes(b"")
    hours = stored_hours(tmp_path)
    with pytest.raises(CheckpointDamaged):
        Node(config)
    assert stored_hours(tmp_path) == hours


def alone(data: Path, dispatch: Dispatch | None = None) -> NodeConfig:
    address, peer_address = (f"127.0.0.1:{port}" for port in free_ports(2))
    return NodeConfig(
        node="a",
        data=data,
        listen=address,
        peer_listen=peer_address,
        members={"a": address},
        dispatch=dispatch or Dispatch(),
    )


def stored_hours(data: Path) -> list[Path]:
    return sorted(data.glob("state-1/hours/*/delay.log"))


async def _until(condition: Callable[[], object], running: asyncio.Future[None]) -> None:
    """Wait for something of a node, unless that ends before."""
    while not condition() and not running.done():  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0.01)
    if running.done():
        await running


def stored(folder: Path) -> log_pb.Checkpoint:
    store = CheckpointStore(folder / "checkpoint")
    checkpoint = store.load()
    store.close()
    return log_pb.Checkpoint.FromString(checkpoint or b"")


async def test_the_files_of_many_queues_are_forced_to_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, synced = Machine(tmp_path, MachineSettings()), []
    commands = [schedule([NOW_MS], topic=f"t{number}") for number in range(FEW_FILES)]
    machine.apply(1, 1, [*commands, release(NOW_MS)])
    fsync = os.fsync
    monkeypatch.setattr("os.fsync", lambda fd: [synced.append(fd), fsync(fd)])
    monkeypatch.setattr(machine.wheel._durability, "sync_filesystem", lambda: synced.append(-1) or True)
    machine.write(machine.capture())
    assert -1 in synced
    assert len(synced) < FEW_FILES
    machine.close()
    again = Machine(tmp_path, MachineSettings())
    assert [queue.units for queue in again.queues] == [1] * FEW_FILES
    again.close()
