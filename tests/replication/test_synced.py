"""What is told to be durable has been synced, and an error of a sync ends it before anything rests on it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from tarry.node.config import Dispatch
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.journal.records import Batch
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.state_machine.checkpoint import CheckpointRefused, CheckpointStore
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel import durability
from tarry.wheel.state import HOUR_MS
from tests.replication.commands import NOW_MS, release, schedule


def test_each_commit_of_the_checkpoint_is_synced(tmp_path: Path) -> None:
    flags = CheckpointStore(tmp_path / "env")._env.flags()
    assert (flags["sync"], flags["metasync"]) == (True, True)
    assert not flags["map_async"]


def test_each_batch_of_the_journal_is_synced_and_a_segment_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, synced = WriteAheadLog(tmp_path, segment_bytes=4_096), []

    def note(fd: int) -> None:
        synced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    second = f"{2:016x}"
    log.write(Batch(None, [(1, bytes(3_000))], None, b"head", 0, 0))
    assert synced == ["next.new", "next.new", "."]
    synced.clear()
    log.upkeep()
    assert synced == ["next.new"]
    log.write(Batch(None, [(2, bytes(3_000))], 2, b"head", 0, 0))
    assert synced == ["next.new", "next.new", "."]
    log.write(Batch(None, [(3, b"c")], None, b"head", 0, 0))
    assert synced == ["next.new", "next.new", ".", f"{second}.wal"]
    synced.clear()
    log.upkeep()
    assert synced == [".", "next.new"]
    assert {path.name for path in tmp_path.iterdir()} == {"next.new", f"{second}.wal"}
    log.close()


def test_the_last_batch_of_the_journal_is_written_and_synced_again_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process before may have been killed before the sync of it, or ended by an error of that sync."""
    log, done = WriteAheadLog(tmp_path), []
    for index in (1, 2):
        log.write(Batch(None, [(index, b"entry %d" % index)], None, b"head", 0, 0))
    log.close()
    write = os.pwrite

    def note_write(fd: int, data: bytes, at: int) -> int:
        done.append(b"entry 2" in bytes(data) and b"entry 1" not in bytes(data))
        return write(fd, data, at)

    def note(fd: int) -> None:
        done.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))

    monkeypatch.setattr(os, "pwrite", note_write)
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    WriteAheadLog(tmp_path).close()
    assert done == [True, f"{1:016x}.wal", ".", ".."]


def test_the_names_of_all_new_folders_are_synced_up_to_one_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(fd: int) -> None:
        synced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))

    monkeypatch.setattr(os, "fsync", note)
    WriteAheadLog(tmp_path / "new" / "data" / "journal")
    assert {".", "new", "new/data"} <= set(synced)
    CheckpointStore(tmp_path / "new" / "data" / "checkpoint")
    assert "new/data/checkpoint" in synced
    synced.clear()
    StateFolder(tmp_path / "other" / "data")
    assert {".", "other", "other/data"} <= set(synced)


def test_a_state_that_came_is_on_disk_before_it_is_named_and_then_so_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, synced = StateFolder(tmp_path), []
    (folder.side / "ready").mkdir(parents=True)
    (folder.side / "ready" / "units").write_bytes(b"units")

    def note(fd: int) -> None:
        synced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))

    monkeypatch.setattr(os, "fsync", note)
    folder.promote()
    assert set(synced[:-3]) == {"state-2", "state-2/ready", "state-2/ready/units"}
    assert synced[-3:] == [".", ".current.new", "."]


def test_a_checkpoint_forces_queues_that_have_grown_to_disk_and_the_names_that_lead_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    machine, file = Machine(tmp_path, MachineSettings()), f"ready/0/{0:016x}.ready"

    def write() -> set[str]:
        synced.clear()
        machine.write(machine.capture())
        return {name for name in synced if name.startswith("ready")}

    def note(fd: int) -> None:
        synced.add(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))

    monkeypatch.setattr(os, "fsync", note)
    machine.apply(1, 1, [schedule([NOW_MS, NOW_MS + 1]), release(NOW_MS)])
    assert write() == {"ready", "ready/0", file}
    assert write() == set()
    machine.apply(2, 1, [release(NOW_MS + 1)])
    assert file in write()
    machine.close()


@contextmanager
def failing(what: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the disk fail: one file's sync, that of all files, or the writing of the checkpoint."""
    if what == "checkpoint":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "not written back")

    with monkeypatch.context() as patched:
        if what == "file":
            patched.setattr(os, "fsync", fail)
        else:
            patched.setattr(durability, "_syncfs", lambda fd: -1)
        yield


@pytest.mark.parametrize(("what", "hours"), [("file", 1), ("all files", 100), ("checkpoint", 1)])
async def test_after_a_sync_that_failed_nothing_is_committed_or_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, hours: int
) -> None:
    machine, trimmed = Machine(tmp_path, MachineSettings()), []
    checkpoints = Checkpoints(machine, Dispatch(), trimmed.append)
    machine.apply(1, 1, [schedule([NOW_MS])])
    await checkpoints.write()
    each = [
        schedule([NOW_MS + HOUR_MS * hour]) for hour in range(hours)
    ]  # in a batch they were far, in one log
    for index, command in enumerate([*each, release(NOW_MS)], 2):
        machine.apply(index, 1, [command])
    with failing(what, monkeypatch), pytest.raises((OSError, lmdb.Error)):
        await checkpoints.write()
    with pytest.raises(CheckpointRefused):  # a second sync would not tell the error again
        await checkpoints.write()
    assert trimmed == [1]
    machine.close()
    store = CheckpointStore(tmp_path / "checkpoint")
    assert log_pb.Checkpoint.FromString(store.load() or b"").applied_index == 1
