"""A ready queue hands out what was appended, or says that it is damaged; never anything else."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.checkpoint import CheckpointStore
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS, QueueProof
from tarry.replication.state_machine.ready_queue import (
    SEGMENT_UNITS,
    TAIL_UNITS,
    UNIT,
    UNIT_BYTES,
    QueueDamaged,
    ReadyQueue,
    UnitsDamaged,
    scan,
)
from tests.node.decay import turn_bit
from tests.node.test_cost import counted
from tests.replication.commands import NOW_MS, ack, release, schedule, subscribe, trim

UNITS = 5 * BLOCK_UNITS + 7
MIDDLE = 2 * BLOCK_UNITS + 100


def some(count: int, first: int = 0) -> np.ndarray:
    units = np.zeros(count, UNIT)
    units["due_ms"] = np.arange(first, first + count)
    return units


def filled(folder: Path, *counts: int) -> ReadyQueue:
    queue = ReadyQueue(folder, 0, "t")
    for count in counts:
        queue.append(some(count, queue.units))
    return queue


def segment(queue: ReadyQueue, number: int = 0) -> Path:
    return queue.folder / f"{number * SEGMENT_UNITS:016x}.ready"


def recovered(folder: Path, first: int, proof: QueueProof) -> ReadyQueue:
    queue = ReadyQueue(folder, 0, "t")
    queue.recover(first, proof)
    return queue


@pytest.mark.parametrize("counts", [(UNITS,), (1, BLOCK_UNITS - 1, 1, BLOCK_UNITS, 2 * BLOCK_UNITS), (5,)])
def test_units_come_back_as_they_were_appended_also_after_a_restart(tmp_path: Path, counts: tuple) -> None:
    queue = filled(tmp_path, *counts)
    queue.take_changes().write()
    again = recovered(tmp_path, 0, queue.proof.copy())
    for opened in (queue, again):
        assert opened.read(0, queue.units)["due_ms"].tolist() == list(range(sum(counts)))
        assert opened.read(queue.units - 1, 9)["due_ms"].tolist() == [queue.units - 1]
        offsets = np.array([queue.units - 1, 0, queue.units // 2], np.uint64)
        assert opened.at(offsets)["due_ms"].tolist() == offsets.tolist()
    again.append(some(3, queue.units))
    queue.append(some(3, queue.units))
    assert again.proof.serialize() == queue.proof.serialize()


@pytest.mark.parametrize("first", [0, SEGMENT_UNITS - 3])
def test_units_that_are_in_memory_alone_are_read_and_a_thread_writes_them_while_more_come(
    tmp_path: Path, first: int
) -> None:
    queue = ReadyQueue(tmp_path, 0, "t")
    queue.units = first
    queue.proof = QueueProof(first)
    for _ in range(TAIL_UNITS):
        queue.append(some(1, queue.units))
    assert not queue.folder.exists()
    taken, state = queue.take_changes(), (first, queue.proof.copy())
    queue.append(some(2 * TAIL_UNITS, queue.units))  # as many as are written at once
    after = queue.units
    queue.append(some(5, after))
    assert {path.stat().st_size for path in map(segment, [queue], [(after - 1) // SEGMENT_UNITS])} == {
        (after % SEGMENT_UNITS) * UNIT_BYTES
    }
    written = taken.write()  # only now: what it writes is there already
    assert written == [segment(queue, number) for number in range(after // SEGMENT_UNITS + 1)]
    for offset, count in ((first, 10**9), (after - 2, 4), (after, 2), (after + 4, 1), (first, 2)):
        expected = list(range(offset, min(offset + count, queue.units)))
        assert queue.read(offset, count)["due_ms"].tolist() == expected
    again = recovered(tmp_path, *state)
    assert again.read(first, 10**9)["due_ms"].tolist() == list(range(first, first + TAIL_UNITS))


def test_a_deleted_queue_leaves_nothing_to_write_but_its_folder_to_remove(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.delete()
    taken = queue.take_changes()
    assert taken.write() == []
    assert list(taken.obsolete) == [tmp_path / "0"]


@pytest.mark.parametrize("field", UNIT.names or ())
@pytest.mark.parametrize("restarted", [False, True])
def test_a_unit_with_a_flipped_bit_is_never_read_and_the_other_blocks_are(
    tmp_path: Path, field: str, restarted: bool
) -> None:
    queue = filled(tmp_path, UNITS)
    if restarted:
        queue = recovered(tmp_path, 0, queue.proof.copy())
    turn_bit(segment(queue), MIDDLE * UNIT_BYTES + (UNIT.fields or {})[field][1])
    for offset, count in ((MIDDLE, 1), (MIDDLE + 1, 1), (0, UNITS)):
        with pytest.raises(UnitsDamaged, match="offsets 2048 to 3071") as caught:
            queue.read(offset, count)
        assert [stretch.first for stretch in caught.value.stretches] == [2 * BLOCK_UNITS]
    with pytest.raises(UnitsDamaged):
        queue.at(np.array([0, MIDDLE, UNITS - 1], np.uint64))
    assert queue.read(0, 2 * BLOCK_UNITS)["due_ms"][-1] == 2 * BLOCK_UNITS - 1
    assert queue.read(3 * BLOCK_UNITS, UNITS)["due_ms"][-1] == UNITS - 1


def test_a_file_cut_short_while_in_use_is_damage_of_what_was_cut(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    with segment(queue).open("r+b") as file:
        file.truncate(4 * BLOCK_UNITS * UNIT_BYTES + 9)
    with pytest.raises(UnitsDamaged, match="4096 to 5119, 5120 to 5126"):
        queue.read(0, UNITS)
    assert len(queue.read(0, 4 * BLOCK_UNITS)) == 4 * BLOCK_UNITS


def test_a_file_that_is_shorter_than_its_checkpoint_says_is_not_opened(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    state = queue.first, queue.proof
    queue.close()
    os.truncate(segment(queue), (UNITS - 1) * UNIT_BYTES)
    with pytest.raises(QueueDamaged, match="checkpoint says"):
        recovered(tmp_path, *state)


def test_all_files_that_were_written_are_synced_also_those_that_nothing_is_in_memory_of(
    tmp_path: Path,
) -> None:
    queue = filled(tmp_path, UNITS)
    queue.flush()
    changes = queue.take_changes()
    assert changes.tail == b""
    assert changes.write() == [segment(queue)]
    assert queue.take_changes().write() == []
    queue.append(some(3, queue.units))
    changes = queue.take_changes()
    assert len(changes.tail) == 3 * UNIT_BYTES
    assert changes.write() == [segment(queue)]
    assert segment(queue).stat().st_size == (UNITS + 3) * UNIT_BYTES


def test_a_queue_without_the_file_that_it_goes_on_in_is_not_opened(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    state = queue.first, queue.proof
    queue.close()
    segment(queue).unlink()
    with pytest.raises(QueueDamaged, match="is missing"):
        recovered(tmp_path, *state)


def test_what_is_trimmed_goes_by_whole_files(tmp_path: Path) -> None:
    queue = filled(tmp_path, SEGMENT_UNITS + 10)
    queue.trim(SEGMENT_UNITS - 1)
    assert list(queue.take_changes().obsolete) == []
    queue.trim(SEGMENT_UNITS)
    assert list(queue.take_changes().obsolete) == [segment(queue)]
    assert len(queue.read(SEGMENT_UNITS, 10)) == 10


def test_a_segment_gives_back_what_a_durable_checkpoint_trims_but_for_the_block_it_goes_on_in(
    tmp_path: Path,
) -> None:
    machine = machine_with_released(tmp_path)
    machine.apply(2, 1, [schedule([NOW_MS] * 3_000), release(NOW_MS), ack(range(4_500))])
    machine.write(machine.capture())
    queue = machine.queues[0]
    path, left = segment(queue), queue.read(4_200, 800)
    assert allocated(path) == -(-5_000 * UNIT_BYTES // 4_096) * 4_096
    machine.apply(3, 1, [trim([0], [4_200])])
    captured = machine.capture()
    assert allocated(path) == -(-5_000 * UNIT_BYTES // 4_096) * 4_096
    machine.snapshots += 1
    machine.write(captured)
    assert allocated(path) == -(-5_000 * UNIT_BYTES // 4_096) * 4_096  # a replica is sent it
    machine.snapshots -= 1
    machine.apply(4, 1, [trim([0], [4_300])])
    machine.write(machine.capture())
    assert allocated(path) == -(-(5_000 - 4 * BLOCK_UNITS) * UNIT_BYTES // 4_096) * 4_096
    machine.close()
    again = Machine(tmp_path, MachineSettings())
    assert again.queues[0].read(4_300, 700).tolist() == left[100:].tolist()
    assert not [damaged for _, damaged in scan(queue.folder, 4_300, queue.proof) if damaged]
    again.close()


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_what_has_been_given_back_is_not_given_back_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, SEGMENT_UNITS + 5 * BLOCK_UNITS)
    block = BLOCK_UNITS * UNIT_BYTES
    for first, hole in (
        (BLOCK_UNITS - 1, None),
        (3 * BLOCK_UNITS + 1, (segment(queue), (0, 3 * block))),
        (4 * BLOCK_UNITS, (segment(queue), (3 * block, 4 * block))),
        (4 * BLOCK_UNITS + 1, None),
        (SEGMENT_UNITS + 2, None),  # the first segment goes whole
        (SEGMENT_UNITS + 2 * BLOCK_UNITS, (segment(queue, 1), (0, 2 * block))),
    ):
        queue.trim(first)
        assert queue.take_changes().hole == hole


def test_damaged_units_are_mended_by_their_own_bytes_and_by_no_others(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    own = segment(queue).read_bytes()
    turn_bit(segment(queue), MIDDLE * UNIT_BYTES)
    with pytest.raises(UnitsDamaged) as caught:
        queue.read(MIDDLE, 1)
    (stretch,) = caught.value.stretches
    queue.take_changes()
    assert queue.is_damaged(stretch)
    assert not queue.mend(stretch, own[: BLOCK_UNITS * UNIT_BYTES])
    assert not queue.mend(stretch, b"")
    assert queue.mend(stretch, own[stretch.first * UNIT_BYTES : stretch.end * UNIT_BYTES])
    assert not queue.is_damaged(stretch)
    assert queue.take_changes().write() == [segment(queue)]  # the next checkpoint syncs it
    assert queue.read(0, UNITS)["due_ms"].tolist() == list(range(UNITS))


def test_what_a_file_has_lost_of_units_in_memory_is_written_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 5)
    queue.take_changes().write()
    turn_bit(segment(queue), 2 * UNIT_BYTES)
    ((_, (stretch,)),) = scan(queue.folder, 0, queue.proof)
    assert not queue.is_damaged(stretch)
    assert list(scan(queue.folder, 0, queue.proof)) == [(5 * UNIT_BYTES, [])]
    assert queue.take_changes().write() == [segment(queue)]  # the next checkpoint syncs it


def test_what_was_trimmed_is_proven_no_more_and_the_rest_still_is(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    before = len(queue.proof.serialize())
    queue.trim(MIDDLE)
    assert before - len(queue.proof.serialize()) == 2 * 4
    turn_bit(segment(queue), 0)
    again = recovered(tmp_path, queue.first, queue.proof.copy())
    for opened in (queue, again):
        assert opened.read(MIDDLE, UNITS)["due_ms"].tolist() == list(range(MIDDLE, UNITS))
        assert [found for _, found in scan(queue.folder, queue.first, queue.proof.copy())] == [[]]


def test_a_queue_trimmed_to_its_end_still_names_the_file_that_proves_its_block(tmp_path: Path) -> None:
    queue = filled(tmp_path, UNITS)
    queue.trim(UNITS)
    assert queue.files(queue.first, queue.units) == [(segment(queue), UNITS * UNIT_BYTES)]


def test_a_scan_finds_what_is_damaged_in_each_file_in_portions(tmp_path: Path) -> None:
    queue = filled(tmp_path, SEGMENT_UNITS - 10, 40_000)
    for number, unit in ((0, 5), (0, SEGMENT_UNITS - 1), (1, 3)):
        turn_bit(segment(queue, number), unit * UNIT_BYTES)
    looked = list(scan(queue.folder, 0, queue.proof.copy()))
    assert [stretch.first for _, found in looked for stretch in found] == [
        0,
        SEGMENT_UNITS - BLOCK_UNITS,
        SEGMENT_UNITS,
    ]
    assert sum(size for size, _ in looked) == queue.units * UNIT_BYTES
    assert max(size for size, _ in looked) == 1 << 20
    segment(queue, 1).unlink()
    (lost,) = [found for size, found in scan(queue.folder, SEGMENT_UNITS + 32_768, queue.proof.copy())]
    assert (lost[0].first, lost[-1].end) == (SEGMENT_UNITS + 32_768, queue.units)


def test_units_of_a_version_without_checksums_are_read_and_later_ones_are_proven(tmp_path: Path) -> None:
    old = filled(tmp_path, 1_500)
    queue = recovered(tmp_path, 0, QueueProof(old.units, old.proof.crc))
    queue.append(some(1_500, 1_500))
    again = recovered(tmp_path, 0, queue.proof.copy())
    for opened in (queue, again):
        assert opened.read(0, 3_000)["due_ms"].tolist() == list(range(3_000))
        assert opened.read(10, 20)["due_ms"].tolist() == list(range(10, 30))
    turn_bit(segment(queue), 1_500 * UNIT_BYTES)
    assert len(queue.read(0, 1_500)) == 1_500
    with pytest.raises(UnitsDamaged, match="1500 to 2047"):
        queue.read(1_499, 2)


def test_checksums_that_are_not_as_many_as_the_blocks_are_refused() -> None:
    for base, crcs in ((0, b"1234"), (0, b"123"), (5_000, b"1234")):
        with pytest.raises(ValueError, match=r"checksums|size"):
            QueueProof(2_000, 1, base, crcs)


def test_appending_costs_lines_by_the_block_and_not_by_the_message(tmp_path: Path) -> None:
    lines: Counter[str] = Counter()
    queue = filled(tmp_path, 1)
    units = some(64 * BLOCK_UNITS)
    with counted(lines, "append"):
        queue.append(units)
    assert lines["append"] < 64 * 12 + 100


def machine_with_released(folder: Path) -> Machine:
    machine = Machine(folder, MachineSettings())
    machine.events.wanted = True
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS] * 2_000), release(NOW_MS)])
    return machine


def save(folder: Path, checkpoint: log_pb.Checkpoint) -> None:
    store = CheckpointStore(folder / "checkpoint")
    store.save(checkpoint.SerializeToString())
    store.close()


def test_a_checkpoint_without_checksums_opens_and_digests_do_not_tell_which_it_was(tmp_path: Path) -> None:
    machine = machine_with_released(tmp_path)
    written = log_pb.Checkpoint.FromString(machine.write(machine.capture()))
    before = machine.digest()
    machine.close()
    written.ClearField("queue_proofs")
    save(tmp_path, written)
    old = Machine(tmp_path, MachineSettings())
    assert old.queues[0].proof.base == 2_000
    assert old.digest() == before
    old.write(old.capture())
    old.close()
    assert Machine(tmp_path, MachineSettings()).queues[0].proof.base == 2_000


def test_checksums_that_do_not_fit_their_queue_end_the_start(tmp_path: Path) -> None:
    machine = machine_with_released(tmp_path)
    written = log_pb.Checkpoint.FromString(machine.write(machine.capture()))
    written.queue_proofs[0].crcs += b"1234"
    machine.close()
    save(tmp_path, written)
    with pytest.raises(QueueDamaged, match="ready queue 0"):
        Machine(tmp_path, MachineSettings())


def test_an_ack_of_damaged_units_is_applied_and_told_as_of_unknown_messages(tmp_path: Path) -> None:
    machine = machine_with_released(tmp_path)
    machine.take_events()
    turn_bit(machine.queues[0].folder / f"{0:016x}.ready", 3 * UNIT_BYTES)
    (outcome,) = machine.apply(2, 1, [ack([1, 2])])
    assert len(outcome.stale) == 0
    (event,) = machine.take_events()
    assert event.hour is not None
    assert (event.n, event.hour.tolist()) == (2, [-1, -1])
    (damage,) = machine.queues.damaged
    assert (damage.queue, damage.stretches[0].first) == (0, 0)
