"""A replica's state, brought to another one and swapped in."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication import command
from tarry.replication.machine import Machine, MachineSettings
from tarry.replication.snapshot import Manifest, SnapshotFailed, SnapshotFile
from tarry.replication.state_folder import PointerDamaged, StateFolder
from tarry.replication.state_transfer import FilesSnapshot, StateSink, StateSource
from tarry.wheel.state import HOUR_MS
from tests.replication.commands import NOW_MS, ack, cancel, release, retry, schedule, subscribe


def replica(root: Path) -> tuple[StateFolder, Machine]:
    folder = StateFolder(root)
    return folder, Machine(folder.path, MachineSettings())


def load(machine: Machine) -> None:
    machine.apply(1, 1, [subscribe(), subscribe("u", "h")])
    machine.apply(2, 1, [schedule([NOW_MS + d * 40_000 for d in range(200)], producer="p", sequence=1)])
    machine.apply(3, 1, [schedule([NOW_MS + d for d in range(50)], topic="u")])
    machine.apply(4, 1, [cancel([(NOW_MS // 3_600_000, 3)]), release(NOW_MS + 4_000_000), ack([1, 2, 5])])
    machine.apply(5, 1, [retry([7], NOW_MS + 9_000_000)])


async def opened(machine: Machine) -> FilesSnapshot:
    async def checkpoint() -> bytes:
        return machine.write(machine.capture())

    return await StateSource(machine, checkpoint).open_snapshot()


def carry(snapshot: FilesSnapshot, sink: StateSink, chunk: int = 1_000) -> None:
    sink.begin(snapshot.manifest)
    for place, file in enumerate(snapshot.manifest.files):
        for offset in range(0, file.size_bytes, chunk):
            size = min(chunk, file.size_bytes - offset)
            sink.write(place, offset, snapshot.read(place, offset, size))
    snapshot.close()


async def test_a_state_swapped_in_is_the_state_that_was_given(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    taker.apply(1, 1, [schedule([NOW_MS + 1])])
    snapshot = await opened(giver)
    given = giver.digest()
    giver.apply(6, 1, [schedule([NOW_MS + 5_000_000] * 10), release(NOW_MS + 8_000_000)])  # goes on meanwhile
    sink = StateSink(taker, folder)
    carry(snapshot, sink)
    sink.install()
    await sink.adopt()
    assert (taker.applied_index, taker.digest()) == (5, given)
    taker.apply(6, 1, [schedule([NOW_MS + 5_000_000] * 10), release(NOW_MS + 8_000_000)])
    assert taker.digest() == giver.digest()
    taker.close()
    _, again = replica(tmp_path / "b")
    assert (again.applied_index, again.digest()) == (5, given)
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["current", "state-2"]
    again.close()
    giver.close()


async def test_an_interrupted_arrival_leaves_the_old_state_in_use(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    taker.apply(1, 1, [schedule([NOW_MS + 1])])
    taker.write(taker.capture())
    before = taker.digest()
    carry(await opened(giver), StateSink(taker, folder))
    taker.close()  # crashed before it was installed
    _, again = replica(tmp_path / "b")
    assert again.digest() == before
    assert not (tmp_path / "b" / "state-2").exists()
    again.close()
    giver.close()


async def test_an_arrival_that_was_interrupted_keeps_what_came_and_no_other_file(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    snapshot = await opened(giver)
    files = snapshot.manifest.files
    place = next(n for n, file in enumerate(files) if file.size_bytes > 1_000)
    sink = StateSink(taker, folder)
    sink.begin(snapshot.manifest)
    sink.write(place, 0, snapshot.read(place, 0, 1_000))
    assert [(file.name, file.size_bytes) for file in sink.kept() if file.size_bytes] == [
        (files[place].name, 1_000)
    ]
    sink.begin(Manifest(6, [files[place]]))
    assert [(file.name, file.size_bytes) for file in sink.kept()] == [(files[place].name, 1_000)]
    sink.begin(Manifest(7, [SnapshotFile(files[place].name, 10, 0)]))  # another's, and shorter
    assert [file.size_bytes for file in sink.kept()] == [0]
    snapshot.close()
    for machine in (giver, taker):
        machine.close()


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder, taker = replica(tmp_path)
    with pytest.raises(SnapshotFailed):
        StateSink(taker, folder).begin(Manifest(1, [SnapshotFile("../../evil", 1, 0)]))
    taker.close()


async def test_a_snapshot_opens_one_file_at_a_time(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    giver.apply(1, 1, [schedule([NOW_MS + hour * HOUR_MS for hour in range(60)])])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "free").open("w") as free:
        first_free = free.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + 20, hard))
    try:
        snapshot = await opened(giver)
        read = [snapshot.read(n, 0, file.size_bytes) for n, file in enumerate(snapshot.manifest.files)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(read) == 1 + 2 * 60
    assert [google_crc32c.value(data) for data in read] == [file.crc32c for file in snapshot.manifest.files]
    snapshot.close()
    giver.close()


async def test_what_a_snapshot_names_is_deleted_only_once_it_is_given(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    snapshot, other = await opened(giver), await opened(giver)
    deleted = log_pb.DeleteTopicCommand(topic="u")
    first_hour = np.array([NOW_MS // HOUR_MS], "<u4").tobytes()
    giver.apply(6, 1, [command.encode(deleted), command.encode(log_pb.TrimCommand(hour=first_hour))])

    def checkpoints() -> None:
        for _ in range(3):
            giver.write(giver.capture())

    checkpoints()
    snapshot.close()
    snapshot.close()  # counts once
    checkpoints()
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder)
    files = [giver.folder / file.name for file in other.manifest.files[1:]]
    carry(other, sink)
    sink.install()
    await sink.adopt()
    assert taker.applied_index == 5
    checkpoints()
    left = {path.relative_to(giver.folder).parts[1] for path in files if path.exists()}
    assert len(left) < len({path.relative_to(giver.folder).parts[1] for path in files}) - 1
    for machine in (giver, taker):
        machine.close()


async def test_a_snapshot_whose_files_are_gone_fails_and_holds_nothing(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    snapshot = await opened(giver)
    place = len(snapshot.manifest.files) - 1
    shutil.rmtree((giver.folder / snapshot.manifest.files[place].name).parent)
    with pytest.raises(SnapshotFailed, match="No such file"):
        snapshot.read(place, 0, 1)
    snapshot.close()
    with pytest.raises(SnapshotFailed, match="No such file"):
        await opened(giver)
    assert giver.snapshots == 0
    giver.close()


def test_states_that_no_pointer_names_are_not_removed(tmp_path: Path) -> None:
    folder, machine = replica(tmp_path)
    machine.close()
    folder.side.mkdir()
    folder.promote()
    (tmp_path / "current").unlink()
    with pytest.raises(PointerDamaged, match="state-2"):
        StateFolder(tmp_path)
    assert folder.path.exists()
