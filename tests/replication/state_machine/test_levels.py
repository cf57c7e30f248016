"""What a replica may apply, write and read at a level of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.commands import PAYLOADS, encode
from tarry.replication.state_machine.levels import AnotherVersion, LevelTooLow
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Changed
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.delay_log import THIN_NAME
from tests.replication.commands import NOW_MS, ack, far_due, release, schedule, subscribe
from tests.replication.state_machine.test_machine import fresh, machine, run

__all__ = ["fresh"]

DIGEST_OF_0_2_0 = "eed790a73acfb2f91844033b74158f00"
RAISE = encode(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS))


@contextmanager
def before_levels(folder: Path) -> Iterator[Machine]:
    """Yield a machine of a version that applies level 1 only."""
    opened = Machine(folder, MachineSettings(applies=1))
    try:
        yield opened
    finally:
        opened.close()


def bytes_of(folder: Path) -> dict[Path, bytes]:
    """Return the files' content, without LMDB's lock, which is of those who have it open."""
    return {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock.mdb"
    }


def test_every_kind_of_command_and_every_file_of_a_state_has_a_level(fresh: Machine, tmp_path: Path) -> None:
    assert levels.OF_COMMANDS.keys() == set(PAYLOADS.values())
    assert {1, levels.HIGHEST} <= set(levels.OF_COMMANDS.values()) <= set(range(1, levels.HIGHEST + 1))
    run(fresh, [subscribe(), schedule([NOW_MS + 5] * 100), schedule(far_due()), release(NOW_MS + 5)])
    fresh.write(fresh.capture())
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(names) > 5
    assert [name for name in names if not any(fnmatch(name, known) for known in levels.OF_FILES)] == []
    assert levels.OF_FILES[f"hours/*/{THIN_NAME}"] == levels.THINNED


def test_a_raise_is_of_the_state_of_its_checkpoint_and_of_its_digest(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe()])
        assert first.write(first.capture())
        digest = first.digest()
        assert (first.level, first.may_propose(1), first.may_propose(2)) == (1, True, False)
        assert first.apply(2, 1, [RAISE]) == [Changed(2)]
        assert (first.level, first.may_propose(2), first.may_propose(3)) == (2, True, False)
        lower = encode(log_pb.RaiseLevelCommand(level=1, now_ms=NOW_MS))
        assert first.apply(3, 1, [lower]) == [Changed(2)]
        assert log_pb.Checkpoint.FromString(first.write(first.capture())).apply_version == 3
        raised = first.digest()
        first.applied_index, first.level = 1, 1
        assert first.digest() == digest
        first.level = 2
        assert first.digest() != digest
    with machine(tmp_path) as again:
        assert (again.level, again.digest()) == (2, raised)


def test_at_the_first_level_nothing_is_written_that_versions_before_levels_do_not_know(
    tmp_path: Path,
) -> None:
    """Of 0.2.0: the versions of checkpoints that it reads, and its digest of this state."""
    with machine(tmp_path) as first:
        run(first, [subscribe(), schedule([NOW_MS + 1])])
        assert first.digest().hex() == DIGEST_OF_0_2_0
        assert log_pb.Checkpoint.FromString(first.write(first.capture())).apply_version == 1
        first.apply(3, 1, [schedule(far_due())])
        assert log_pb.Checkpoint.FromString(first.write(first.capture())).apply_version == 2


@pytest.mark.parametrize(
    "unknown", [RAISE, b"\x63hello", b"\xff\xff", b""], ids=["raise", "later", "absurd", "empty"]
)
def test_a_version_before_a_command_stops_at_its_entry_and_has_applied_nothing_of_it(
    tmp_path: Path, unknown: bytes
) -> None:
    with before_levels(tmp_path) as old:
        run(old, [subscribe()])
        digest = old.digest()
        with pytest.raises(AnotherVersion, match="upgrade this node"):
            old.apply(2, 1, [schedule([NOW_MS + 5]), unknown])
        assert (old.applied_index, old.digest(), old.wheel.pending) == (1, digest, 0)
        old.write(old.capture())
    with machine(tmp_path) as new:
        assert new.applied_index == 1


def test_a_raise_beyond_what_a_version_can_apply_stops_it_likewise(fresh: Machine) -> None:
    further = encode(log_pb.RaiseLevelCommand(level=3, now_ms=NOW_MS))
    with pytest.raises(AnotherVersion, match="of level 3, and this tarry applies 2 at most"):
        fresh.apply(1, 1, [subscribe(), RAISE, further])
    assert (fresh.applied_index, fresh.level, len(list(fresh.queues))) == (0, 1, 0)
    fresh.capture()


def test_a_state_of_a_higher_level_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe(), schedule([NOW_MS + 5] * 100), release(NOW_MS + 5), RAISE])
        first.write(first.capture())
        run_on = [schedule([NOW_MS + 9]), schedule(far_due())]
        for index, command in enumerate(run_on, 5):
            first.apply(index, 1, [command])
    held = bytes_of(tmp_path)
    with pytest.raises(
        AnotherVersion, match="of level 2, and this tarry applies 1 at most: start the version"
    ):
        Machine(tmp_path, MachineSettings(applies=1))
    assert bytes_of(tmp_path) == held
    with machine(tmp_path) as again:
        assert (again.applied_index, again.level) == (4, 2)


def test_a_field_of_a_higher_level_is_proposed_only_after_the_raise(
    fresh: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(levels.OF_FIELDS, log_pb.AckCommand, {"queue": 2})
    monkeypatch.setitem(levels.OF_FIELDS, log_pb.TopicCommand, {"settings.pending_max": 2})
    usual, new = log_pb.AckCommand(group="g"), log_pb.AckCommand(group="g", queue=1)
    nested = log_pb.TopicCommand(topic="t")
    nested.settings.pending_max = 1
    run(fresh, [subscribe()])
    assert fresh.encode(usual) == encode(usual)
    for command in (new, nested):
        with pytest.raises(LevelTooLow, match="needs level 2") as refused:
            fresh.encode(command)
        assert refused.value.refused.reason is Reason.LEVEL_TOO_LOW
    fresh.apply(2, 1, [RAISE])
    assert [fresh.encode(command) for command in (new, nested)] == [encode(new), encode(nested)]


def test_what_a_leaders_bug_logs_before_the_raise_changes_nothing_anywhere(
    fresh: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(fresh, [subscribe(), schedule([NOW_MS + 5]), release(NOW_MS + 5)])
    monkeypatch.setitem(levels.OF_COMMANDS, log_pb.AckCommand, 2)
    monkeypatch.setitem(levels.OF_COMMANDS, log_pb.ScheduleCommand, 2)
    for outcome in fresh.apply(4, 1, [ack([0]), schedule([NOW_MS + 5])]):
        assert isinstance(outcome, Refusal)
        assert outcome.reason is Reason.LEVEL_TOO_LOW
    assert (fresh.queues.unacknowledged(), fresh.wheel.pending) == (1, 0)
