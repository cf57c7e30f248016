"""A replica's state, brought to another one and swapped in."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from tarry.node.config import Limits
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import GroupStart
from tarry.proto.tarry_peer_pb2 import SnapshotFile, SnapshotManifest
from tarry.replication.loop_holds import Holds
from tarry.replication.snapshot.state_damage import StateDamage
from tarry.replication.snapshot.state_files import CHECKPOINT_NAME, FilesSnapshot, StateSink, StateSource
from tarry.replication.snapshot.state_folder import PointerDamaged, StateFolder
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.state_machine import commands
from tarry.replication.state_machine.checkpoint import CheckpointDamaged, CheckpointRefused
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.queue_checksums import QueueProof
from tarry.replication.state_machine.ready_queue import UNIT
from tarry.replication.state_machine.segment_files import OPEN_MAX
from tarry.wheel.far_segment import segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.decay import turn_bit
from tests.replication.commands import NOW_MS, ack, cancel, far_due, release, retry, schedule, subscribe


def replica(root: Path) -> tuple[StateFolder, Machine]:
    folder = StateFolder(root)
    return folder, Machine(folder.path, MachineSettings())


def load(machine: Machine) -> None:
    machine.apply(1, 1, [subscribe(), subscribe("u", "h")])
    machine.apply(2, 1, [schedule([NOW_MS + d * 40_000 for d in range(200)], producer="p", sequence=1)])
    machine.apply(3, 1, [schedule([NOW_MS + d for d in range(50)], topic="u")])
    machine.apply(4, 1, [cancel([(NOW_MS // 3_600_000, 3)]), release(NOW_MS + 4_000_000), ack([1, 2, 5])])
    machine.apply(
        5, 1, [retry([7], NOW_MS + 9_000_000), schedule([NOW_MS + d * 24 * HOUR_MS for d in range(1, 20)])]
    )


async def opened(
    machine: Machine, on_damage: Callable[[StateDamage], None] = lambda _: None
) -> FilesSnapshot:
    async def checkpoint() -> bytes:
        return machine.write(machine.capture())

    return await StateSource(machine, checkpoint, on_damage=on_damage).open_snapshot()


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


def test_a_state_of_many_queues_is_opened_beside_the_event_loop(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    for number in range(Limits().queues_max // 2):
        giver.queues.subscribe(f"t{number}", "g", GroupStart())
    giver.apply(1, 1, [schedule([NOW_MS])])

    async def act(steps: cost.Steps, _: Holds) -> None:
        with tempfile.TemporaryDirectory() as folder:
            state, taker = replica(Path(folder))
            sink = StateSink(taker, state)
            for replaced in ("an empty state", "a state of many queues"):
                carry(await opened(giver), sink, chunk=1 << 20)
                sink.install()
                async with steps.step(f"replace {replaced}"):
                    await sink.adopt()
                assert taker.digest() == giver.digest()
                for queue in list(taker.queues)[-OPEN_MAX:]:
                    queue.append(np.zeros(64, UNIT))  # more than are kept in memory: it has an open file
            taker.close()

    assert cost.too_long(act) == {}
    giver.close()


async def test_a_state_of_many_lanes_and_producers_is_freed_in_parts_when_another_takes_its_place(
    tmp_path: Path,
) -> None:
    _, giver = replica(tmp_path / "a")
    folder, taker = replica(tmp_path / "b")
    for lane in range(1, 300_001):
        taker.queues.blocked.add(1, lane, (5, lane))
    for number in range(1_000):
        taker.apply(number + 1, 1, [schedule([NOW_MS + 1], producer=f"p{number}", sequence=1)])
    blocked, producers = taker.queues.blocked, taker.producers
    sink = StateSink(taker, folder)
    carry(await opened(giver), sink)
    sink.install()
    await sink.adopt()
    began_s = time.thread_time()
    del blocked, producers  # what is left of them holds the GIL for so long
    assert time.thread_time() - began_s < cost.bound_s(0.004)
    taker.close()
    giver.close()


async def test_nothing_of_the_old_state_is_missed_before_the_new_one_is_there(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    taker.apply(1, 1, [subscribe(), schedule([NOW_MS + 1]), release(NOW_MS + 1)])
    taker.events.wanted = True
    before, events = taker.digest(), taker.events
    seen = []

    async def looked(work: Callable[[], object]) -> object:
        done = work()
        seen.append((taker.digest(), len(taker.queues.of("t").at(np.zeros(1, np.uint64)))))
        return done

    sink = StateSink(taker, folder, run_blocking=looked)
    carry(await opened(giver), sink)
    sink.install()
    await sink.adopt()
    assert seen == [(before, 1), (giver.digest(), 1)]
    taker.apply(6, 1, [schedule([NOW_MS + 5_000_000])])
    assert taker.events is events
    assert len(taker.take_events()) == 1
    giver.close()
    taker.close()


async def test_a_state_of_a_higher_level_than_the_taker_applies_is_not_installed(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    giver.apply(6, 1, [commands.encode(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS))])
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder, applies=1)
    carry(await opened(giver), sink)
    with pytest.raises(AnotherVersion, match="the state that came is of level 2"):
        sink.prove()
    StateSink(taker, folder).prove()
    for machine in (giver, taker):
        machine.close()


async def test_who_is_cancelled_while_a_state_is_opened_leaves_nothing_of_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    before, open_other, others = taker.digest(), taker.opened, list[Machine]()

    def noted(path: Path) -> Machine:
        others.append(open_other(path))
        return others[-1]

    monkeypatch.setattr(taker, "opened", noted)

    async def cancelled(work: Callable[[], object]) -> object:
        work()
        raise asyncio.CancelledError

    sink = StateSink(taker, folder, run_blocking=cancelled)
    carry(await opened(giver), sink)
    sink.install()
    with pytest.raises(asyncio.CancelledError):
        await sink.adopt()
    assert taker.digest() == before
    again = Machine(folder.path, MachineSettings())  # LMDB refuses what is open already
    assert again.digest() == giver.digest()
    for machine in (giver, taker, again):
        machine.close()


async def test_a_state_with_far_messages_goes_on_where_it_was_taken(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    due = far_due()
    giver.apply(1, 1, [subscribe(), schedule(due)])
    giver.apply(2, 1, [cancel([(at // HOUR_MS, 0) for at in due[::7]]), schedule(due[:100])])
    folder, taker = replica(tmp_path / "b")
    snapshot = await opened(giver)
    sink = StateSink(taker, folder)
    carry(snapshot, sink)
    sink.install()
    await sink.adopt()
    assert taker.wheel.upkeep.far_segments()
    assert (taker.applied_index, taker.digest()) == (2, giver.digest())
    for machine in (giver, taker):
        machine.apply(3, 1, [release(due[150]), cancel([(at // HOUR_MS, 0) for at in due[200:210]])])
        machine.apply(4, 1, [schedule(due[100:]), release(due[250])])
    assert taker.digest() == giver.digest()
    assert taker.queues[0].units == giver.queues[0].units > 250
    for machine in (giver, taker):
        machine.close()


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
    sink.begin(SnapshotManifest(files=[files[place]]))
    assert [(file.name, file.size_bytes) for file in sink.kept()] == [(files[place].name, 1_000)]
    sink.begin(
        SnapshotManifest(files=[SnapshotFile(name=files[place].name, size_bytes=10)])
    )  # another's, and shorter
    assert [file.size_bytes for file in sink.kept()] == [0]
    snapshot.close()
    for machine in (giver, taker):
        machine.close()


@pytest.mark.parametrize(
    "names", [("../../evil",), ("/evil",), ("",), (".",), ("a\0b",), ("a", "a/b"), ("a/b", "a")]
)
def test_a_name_that_is_none_of_a_file_in_the_folder_is_refused(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    folder, machine = replica(tmp_path)
    files = [SnapshotFile(name=name, size_bytes=1) for name in names]
    with pytest.raises(SnapshotFailed, match=r"is no file of a state|leads out of the folder"):
        StateSink(machine, folder).begin(SnapshotManifest(files=files))
    machine.close()


async def test_a_snapshot_opens_one_file_at_a_time(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    for hour in range(60):
        giver.apply(hour + 1, 1, [schedule([NOW_MS + hour * HOUR_MS])])
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
    giver.apply(6, 1, [commands.encode(deleted), commands.encode(log_pb.TrimCommand(hour=first_hour))])

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


HOUR_FOLDER = f"hours/{folder_name(NOW_MS // HOUR_MS)}"
FAR_FOLDER = f"hours/{segment_name(0)}"
READY = f"ready/0/{0:016x}.ready"


INDICES = [f"{HOUR_FOLDER}/delay.index", f"{FAR_FOLDER}/delay.index"]


@pytest.mark.parametrize("name", [*INDICES, READY])
async def test_a_state_with_a_damaged_index_or_queue_is_not_given(tmp_path: Path, name: str) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    turn_bit(giver.folder / name, 40)
    told: list[StateDamage] = []
    with pytest.raises(SnapshotFailed, match="before it is mended"):
        await opened(giver, told.append)
    (damage,) = told
    assert name in str(damage) or name == READY
    assert len(damage.hours) + len(damage.segments) + len(damage.queues) == 1
    assert giver.snapshots == 0
    turn_bit(giver.folder / name, 40)
    (await opened(giver)).close()
    giver.close()


@pytest.mark.parametrize("name", [*INDICES, READY, CHECKPOINT_NAME])
async def test_a_state_that_came_damaged_is_not_used(tmp_path: Path, name: str) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    taker.apply(1, 1, [schedule([NOW_MS + 1])])
    before = taker.digest()
    told: list[StateDamage] = []
    sink = StateSink(taker, folder, on_damage=told.append)
    snapshot = await opened(giver)
    carry(snapshot, sink)
    sink.prove()
    turn_bit(folder.side / name, 0 if name == CHECKPOINT_NAME else 40)
    with pytest.raises(SnapshotFailed, match="what came is"):
        sink.prove()
    assert len(told) == (name != CHECKPOINT_NAME)
    assert (taker.digest(), folder.path.name) == (before, "state-1")
    for machine in (giver, taker):
        machine.close()


async def test_a_damaged_record_travels_and_is_known_as_such(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    hour = np.full(2, NOW_MS // HOUR_MS, np.uint32)
    turn_bit(giver.folder / HOUR_FOLDER / "delay.log", 5)  # of the first record
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder)
    carry(await opened(giver), sink)
    sink.prove()
    sink.install()
    await sink.adopt()
    records = taker.wheel.read(hour, np.array([0, 1], np.uint32))
    assert [record is None for record in records] == [True, False]
    for machine in (giver, taker):
        machine.close()


async def test_damaged_slots_are_not_sent(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    giver.apply(1, 1, [subscribe(), schedule([NOW_MS + n for n in range(1_500)]), release(NOW_MS + 9)])
    giver.write(giver.capture())
    slots = giver.folder / HOUR_FOLDER / "slots"
    turn_bit(slots, NOW_MS % HOUR_MS // 1_000 * 16)
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder)
    carry(await opened(giver), sink)
    sink.prove()
    sink.install()
    await sink.adopt()
    assert taker.digest() == giver.digest()
    assert len(taker.wheel.take(NOW_MS + 5_000, 5_000)) == 1_490
    for machine in (giver, taker):
        machine.close()


def test_a_stored_checkpoint_with_a_flipped_bit_is_refused_at_the_start(tmp_path: Path) -> None:
    _, machine = replica(tmp_path)
    load(machine)
    written = machine.write(machine.capture())
    machine.close()
    stored = tmp_path / "state-1" / "checkpoint" / "data.mdb"
    turn_bit(stored, stored.read_bytes().index(written[:64]) + 20)
    with pytest.raises(CheckpointDamaged):
        replica(tmp_path)


async def test_a_state_of_a_version_without_checksums_of_queues_is_taken(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    for queue in giver.queues:
        queue.proof = QueueProof(queue.units, queue.proof.crc)
        queue.drop_misfired(0)  # so that its part of the checkpoint is built anew
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder)
    carry(await opened(giver), sink)
    sink.prove()
    sink.install()
    await sink.adopt()
    assert taker.digest() == giver.digest()
    for machine in (giver, taker):
        machine.close()


def test_states_that_no_pointer_names_are_not_removed(tmp_path: Path) -> None:
    folder, machine = replica(tmp_path)
    machine.close()
    folder.side.mkdir()
    folder.promote()
    (tmp_path / "current").unlink()
    with pytest.raises(PointerDamaged, match="state-2"):
        StateFolder(tmp_path)
    assert folder.path.exists()


def test_a_state_is_not_removed_for_a_pointer_that_decayed_to_name_another(tmp_path: Path) -> None:
    folder, machine = replica(tmp_path)
    machine.close()
    (tmp_path / "current").write_text("state-3")  # "1" with one bit turned
    with pytest.raises(PointerDamaged, match="state-3"):
        StateFolder(tmp_path)
    assert (folder.path / "checkpoint").exists()


async def test_a_state_is_given_after_a_topic_with_messages_was_deleted(tmp_path: Path) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    giver.apply(6, 1, [commands.encode(log_pb.DeleteTopicCommand(topic="u"))])
    giver.write(giver.capture())  # its files are removed
    folder, taker = replica(tmp_path / "b")
    sink = StateSink(taker, folder)
    carry(await opened(giver), sink)
    sink.install()
    await sink.adopt()
    assert taker.digest() == giver.digest()
    giver.close()
    taker.close()


@pytest.mark.parametrize("writes", [1, 99])
async def test_who_writes_into_a_replaced_state_ends_nothing_and_the_next_start_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    _, giver = replica(tmp_path / "a")
    load(giver)
    folder, taker = replica(tmp_path / "b")
    replaced, left = folder.path, list[OSError]()
    rmdir, written = os.rmdir, list[str]()

    def late(path: Any, **more: Any) -> None:
        """Remove a folder, behind a write into it by somebody else."""
        if len(written) < writes and Path(path).name == replaced.name:
            written.append("late")
            (replaced / f"late-{len(written)}").touch()
        rmdir(path, **more)

    sink = StateSink(taker, folder, on_left=left.append)
    carry(await opened(giver), sink)
    sink.install()
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", late)
        await sink.adopt()
    assert taker.digest() == giver.digest()
    assert len(left) == (writes > 1)
    assert replaced.exists() == (writes > 1)
    StateFolder(tmp_path / "b")
    assert not replaced.exists()
    for machine in (giver, taker):
        machine.close()


async def test_where_no_checkpoint_can_be_written_no_state_is_given_and_who_asks_asks_again(
    tmp_path: Path,
) -> None:
    _, machine = replica(tmp_path)

    async def refused() -> bytes:
        raise CheckpointRefused("a checkpoint could not be written")

    with pytest.raises(SnapshotFailed, match="could not be written"):
        await StateSource(machine, refused).open_snapshot()
    assert machine.snapshots == 0
    machine.close()
