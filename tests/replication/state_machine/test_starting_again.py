"""What a replica starts again from, and what it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.checkpoint import CheckpointDamaged, CheckpointRefused
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Released
from tarry.replication.state_machine.ready_queue import TAIL_UNITS
from tarry.wheel import hour_partition, hour_wheel
from tests.replication.commands import NOW_MS, admin, far_due, release, schedule, subscribe
from tests.replication.state_machine.test_machine import fresh, machine, run

__all__ = ["fresh"]

MANY = 2 * TAIL_UNITS
"""Messages of a topic that do not stay in memory until the next checkpoint."""


def test_an_entry_that_a_disk_cut_short_goes_into_no_checkpoint_and_is_whole_when_it_is_replayed(
    tmp_path: Path,
) -> None:
    before = [subscribe("t"), subscribe("u"), *(schedule([NOW_MS + 5] * MANY, topic=topic) for topic in "tu")]
    with machine(tmp_path) as broken:
        run(broken, before)
        broken.write(broken.capture())
        in_the_way = tmp_path / "ready" / str(broken.queues.of("u").queue)
        in_the_way.touch()
        with pytest.raises(OSError, match=str(in_the_way)):
            broken.apply(5, 1, [release(NOW_MS + 5)])
        assert broken.queues.of("t").units == MANY
        with pytest.raises(CheckpointRefused, match="entry 5"):
            broken.capture()
    in_the_way.unlink()
    with machine(tmp_path) as again:
        assert again.apply(5, 1, [release(NOW_MS + 5)]) == [Released(2 * MANY)]
        assert [again.queues.of(topic).units for topic in "tu"] == [MANY, MANY]
        again.write(again.capture())


def test_a_replica_starts_though_a_power_cut_took_what_a_deleted_topic_had_just_got(tmp_path: Path) -> None:
    delete = admin(log_pb.DeleteTopicCommand(topic="t"))
    with machine(tmp_path) as cut:
        run(cut, [subscribe(), schedule([NOW_MS] * MANY), release(NOW_MS), delete])
        cut.snapshots += 1  # the files stay, as where the power goes before they are removed
        cut.write(cut.capture())
        digest = cut.digest()
    (segment,) = tmp_path.glob("ready/0/*.ready")
    segment.write_bytes(b"")
    with machine(tmp_path) as again:
        assert again.digest() == digest
        again.write(again.capture())
    assert not segment.parent.exists()


def test_without_a_checkpoint_only_a_log_from_its_start_takes_the_place_of_what_is_there(
    tmp_path: Path,
) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe(), schedule([NOW_MS, NOW_MS + 9_999_999]), release(NOW_MS)])
        first.write(first.capture())
    files = sorted(tmp_path.glob("[hr]*/*/*"))
    for lost in (tmp_path / "checkpoint").iterdir():
        lost.unlink()
    with pytest.raises(CheckpointDamaged, match="no checkpoint"):
        Machine(tmp_path, MachineSettings(), from_start=False)
    assert sorted(tmp_path.glob("[hr]*/*/*")) == files
    with machine(tmp_path) as again:
        assert (again.applied_index, again.wheel.pending) == (0, 0)


@pytest.mark.parametrize("unknown", [b"\x01\xff", b"\x03\x0a\x01"])
def test_a_command_that_cannot_be_read_ends_the_replica_and_is_not_skipped(
    fresh: Machine, unknown: bytes
) -> None:
    with pytest.raises(AnotherVersion, match="upgrade this node"):
        fresh.apply(1, 1, [unknown])
    assert fresh.applied_index == 0
    with pytest.raises(CheckpointRefused):
        fresh.capture()


def test_a_state_with_a_far_log_is_refused_by_versions_that_know_none(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe(), schedule([NOW_MS + 1])])
        assert apply_version(first) == 1  # of 0.1.0
        first.apply(first.applied_index + 1, 1, [schedule(far_due())])
        assert first.wheel.upkeep.far_segments()
        assert apply_version(first) == 2
        digest = first.digest()
    with machine(tmp_path) as again:
        assert again.digest() == digest


def apply_version(machine: Machine) -> int:
    """The version in a checkpoint of now, which is written."""
    return log_pb.Checkpoint.FromString(machine.write(machine.capture())).apply_version


def test_a_large_hour_is_proven_when_a_replica_starts_and_not_while_it_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hour_wheel, "_LARGE_UNITS", 1_500)
    with machine(tmp_path) as before:
        run(before, [subscribe(), schedule([NOW_MS + 5] * 2_000)])
        before.write(before.capture())
    proven: list[object] = []
    monkeypatch.setattr(hour_partition, "prove_index", proven.append)
    with machine(tmp_path) as again:
        assert len(proven) == 1
        assert again.apply(3, 1, [release(NOW_MS + 5)]) == [Released(2_000)]
    assert len(proven) == 1
