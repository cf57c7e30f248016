"""More producers than are remembered for ever: whom the state machine forgets, and whom it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.replication.state_machine.producer_answers import FORGOTTEN_AT_ONCE_MAX, PRODUCERS_KEPT
from tarry.replication.state_machine.refusal import Refusal
from tests.replication.commands import NOW_MS, admin, schedule

SILENT_MS = 60_000
DUE_MS = NOW_MS + 10_000_000


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "state", MachineSettings())
    yield machine
    machine.close()


def bounded(producer: str, at_ms: int = 0, *, most: int = 100_000, sequence: int = 1) -> bytes:
    """A request, at so many milliseconds after NOW_MS."""
    plain = schedule([DUE_MS], producer=producer, sequence=sequence, now_ms=NOW_MS + at_ms)
    command = log_pb.ScheduleCommand.FromString(plain[1:])
    command.producers_max, command.producer_silent_ms = most, SILENT_MS
    return admin(command)


def said(outcome: object) -> str:
    if isinstance(outcome, Refusal):
        return outcome.reason
    assert isinstance(outcome, Scheduled | Repeated)
    return "repeated" if isinstance(outcome, Repeated) else "scheduled"


def results(machine: Machine, commands: Sequence[bytes]) -> list[str]:
    return [said(outcome) for outcome in machine.apply(machine.applied_index + 1, 1, commands)]


def kept(machine: Machine) -> list[str]:
    """Who is remembered, the stalest first."""
    return [log_pb.ProducerCheckpoint.FromString(one).producer for one in machine.producers.capture()]


def test_a_retry_behind_more_other_producers_than_are_kept_is_answered_as_repeated(fresh: Machine) -> None:
    assert results(fresh, [bounded("p")]) == ["scheduled"]
    others = [bounded(str(number), SILENT_MS) for number in range(PRODUCERS_KEPT + 1)]
    for start in range(0, len(others), 200):
        assert set(results(fresh, others[start : start + 200])) == {"scheduled"}
    assert results(fresh, [bounded("p", SILENT_MS)]) == ["repeated"]
    assert fresh.wheel.pending == PRODUCERS_KEPT + 2


def test_an_entry_from_before_the_bound_does_what_it_did(fresh: Machine) -> None:
    fresh.producers._producers_kept = 2
    old = [schedule([DUE_MS], producer=producer, sequence=1) for producer in "abc"]
    assert results(fresh, [*old, old[0]]) == ["scheduled"] * 4


def test_who_is_silent_for_longer_makes_room_and_nobody_else(fresh: Machine) -> None:
    fresh.producers._producers_kept = 1
    assert results(fresh, [bounded("a"), bounded("b", 1)]) == ["scheduled"] * 2
    assert results(fresh, [bounded("c", SILENT_MS), bounded("a", SILENT_MS)]) == ["scheduled", "repeated"]
    assert results(fresh, [bounded("d", SILENT_MS + 1)]) == ["scheduled"]
    assert kept(fresh) == ["b", "c", "d"]


def test_a_producer_that_goes_on_is_not_silent(fresh: Machine) -> None:
    fresh.producers._producers_kept = 1
    results(fresh, [bounded("a"), bounded("b", 1), bounded("a", 9, sequence=2)])
    assert results(fresh, [bounded("c", SILENT_MS + 9)]) == ["scheduled"]
    assert kept(fresh) == ["a", "c"]


def test_a_clock_that_is_set_back_makes_nobody_silent_sooner(fresh: Machine) -> None:
    fresh.producers._producers_kept = 1
    results(fresh, [bounded("a", 9), bounded("a", 0, sequence=2)])
    results(fresh, [bounded("b", SILENT_MS + 9)])
    assert kept(fresh) == ["a", "b"]


def test_new_producers_of_one_entry_are_counted_together(fresh: Machine) -> None:
    outcomes = results(fresh, [bounded(producer, most=2) for producer in "abcd"])
    assert outcomes == ["scheduled"] * 2 + ["TOO_MANY_PRODUCERS"] * 2
    assert kept(fresh) == ["a", "b"]


def test_there_are_no_more_than_the_limit_also_where_more_would_be_remembered(fresh: Machine) -> None:
    results(fresh, [bounded("a"), bounded("b", 1)])
    results(fresh, [bounded("c", SILENT_MS + 1, most=2)])
    assert kept(fresh) == ["b", "c"]


@pytest.mark.parametrize("together", [True, False], ids=["in one entry", "one by one"])
def test_new_producers_are_refused_at_the_limit_until_one_has_been_silent(
    fresh: Machine, *, together: bool
) -> None:
    commands = [bounded(producer, most=3) for producer in "abca"]
    commands += [bounded("d", SILENT_MS, most=3), bounded("a", SILENT_MS, most=3, sequence=2)]
    commands += [bounded("d", SILENT_MS + 1, most=3), bounded("e", SILENT_MS + 1, most=4)]
    entries = [commands] if together else [[command] for command in commands]
    refused = "TOO_MANY_PRODUCERS"
    assert [one for entry in entries for one in results(fresh, entry)] == [
        *("scheduled", "scheduled", "scheduled", "repeated"),
        *(refused, "scheduled"),
        *("scheduled", "scheduled"),
    ]


def test_a_refused_producer_leaves_nothing_and_is_told_when_to_try_again(fresh: Machine) -> None:
    results(fresh, [bounded("a", most=1)])
    before = fresh.producers.capture()
    (refused,) = fresh.apply(2, 1, [bounded("b", most=1)])
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.retry_ms) == (Reason.TOO_MANY_PRODUCERS, 1_000)
    assert refused.facts == {"producers_max": "1", "producer_silent_ms": str(SILENT_MS)}
    assert (fresh.producers.capture(), fresh.wheel.pending) == (before, 1)
    assert results(fresh, [schedule([DUE_MS]), bounded("b", most=2)]) == ["scheduled"] * 2


def test_many_that_were_silent_are_forgotten_a_few_at_a_time(fresh: Machine) -> None:
    fresh.producers._producers_kept = 1
    results(fresh, [bounded(str(number)) for number in range(20)])
    results(fresh, [bounded("p", SILENT_MS + 1)])
    assert len(fresh.producers.capture()) == 21 - FORGOTTEN_AT_ONCE_MAX


def test_a_replica_that_started_again_forgets_and_refuses_the_same(tmp_path: Path) -> None:
    one, other = (Machine(tmp_path / name, MachineSettings()) for name in ("one", "other"))
    first = [bounded("old", -SILENT_MS), schedule([DUE_MS], producer="older", sequence=1), bounded("young")]
    for machine in (one, other):
        machine.producers._producers_kept = 2
        results(machine, first)
    other.write(other.capture())
    other.close()
    other = Machine(tmp_path / "other", MachineSettings())
    other.producers._producers_kept = 2
    more = [bounded("new", 1, most=2), bounded("newer", 1, most=2), bounded("young", 1)]
    assert results(one, more) == results(other, more) == ["scheduled", "TOO_MANY_PRODUCERS", "repeated"]
    assert one.digest() == other.digest()
    one.close()
    other.close()
