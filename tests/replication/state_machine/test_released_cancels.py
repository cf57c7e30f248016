"""Cancels of released messages, as applied: whatever else happens, a dictionary says who is to get what."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.proto.tarry_message_pb2 import Retried
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Cancelled
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import CancelOutcome, MessageState
from tests.replication.commands import NOW_MS, ack, release, retry, schedule, subscribe, trim
from tests.replication.state_machine.test_machine import fresh, machine, run

__all__ = ["fresh"]

RAISE = encode(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS))
EARLIEST = GroupStart(at=StartAt.START_AT_EARLIEST)
OUTCOMES = {number: name.removeprefix("CANCEL_OUTCOME_") for name, number in pb.CancelOutcome.items()}


def cancel_released(
    opened: Machine, offsets: Sequence[int], *, queue: int = 0, had_by: Sequence[str] = ()
) -> bytes:
    """The leader's command for offsets of a queue; where it has none, for ids that nobody has."""
    known = opened.queues[queue]
    units = np.zeros(len(offsets), known.read(0, 0).dtype)
    for place, offset in enumerate(offsets):
        if known.first <= offset < known.units:
            units[place] = known.read(offset, 1)[0]
    return encode(
        log_pb.CancelReleasedCommand(
            queue=queue,
            offset=np.array(offsets, "<u8").tobytes(),
            hour=units["hour"].astype("<u4").tobytes(),
            global_index=units["global_index"].astype("<u4").tobytes(),
            due_ms=units["due_ms"].astype("<i8").tobytes(),
            had_by=had_by,
            now_ms=NOW_MS,
        )
    )


def outcomes(opened: Machine, command: bytes) -> list[str]:
    (outcome,) = opened.apply(opened.applied_index + 1, 1, [command])
    assert isinstance(outcome, Cancelled), outcome
    return [OUTCOMES[number] for number in outcome.outcomes.tolist()]


def left(opened: Machine, group: str, queue: int = 0) -> list[int]:
    known = opened.queues.acknowledged[group, queue]
    return known.missing(known.floor, opened.queues[queue].units).tolist()


def ready(opened: Machine, count: int) -> None:
    run(opened, [RAISE, subscribe(), schedule([NOW_MS + n for n in range(count)]), release(NOW_MS + count)])


def test_the_wheel_s_outcomes_have_the_numbers_of_the_protocol() -> None:
    assert {one.name: one.value for one in CancelOutcome}.items() <= {
        name: number for number, name in OUTCOMES.items()
    }.items()


def test_what_is_cancelled_no_group_is_to_get_also_one_made_later_or_moved_back(fresh: Machine) -> None:
    ready(fresh, 5)
    assert outcomes(fresh, cancel_released(fresh, [1, 3])) == ["CANCELLED"] * 2
    assert left(fresh, "g") == [0, 2, 4]
    run(fresh, [encode(log_pb.SubscribeCommand(topic="t", group="late", start=EARLIEST))])
    assert left(fresh, "late") == [0, 2, 4]
    run(fresh, [ack([0, 2])])
    assert left(fresh, "g") == [4]
    run(fresh, [encode(log_pb.SeekCommand(topic="t", group="g", offset=0, now_ms=NOW_MS))])
    assert left(fresh, "g") == [0, 2, 4]
    units = fresh.queues[0].read(0, 5)
    ids = [(int(unit["hour"]), int(unit["global_index"])) for unit in units]
    states = [fresh.wheel.state(*one) for one in ids]
    assert [state is MessageState.CANCELLED for state in states] == [False, True, False, True, False]


def test_of_a_topic_without_groups_it_is_cancelled_for_those_that_come(fresh: Machine) -> None:
    run(fresh, [RAISE, schedule([NOW_MS + 1, NOW_MS + 2]), release(NOW_MS + 2)])
    assert outcomes(fresh, cancel_released(fresh, [0])) == ["CANCELLED"]
    run(fresh, [encode(log_pb.SubscribeCommand(topic="t", group="g", start=EARLIEST))])
    assert (fresh.queues.acknowledged["g", 0].floor, left(fresh, "g")) == (1, [1])


def test_what_another_group_has_had_goes_on_there_and_nowhere_else(fresh: Machine) -> None:
    ready(fresh, 3)
    run(fresh, [encode(log_pb.SubscribeCommand(topic="t", group="other", start=EARLIEST))])
    assert outcomes(fresh, cancel_released(fresh, [1], had_by=["g"])) == ["CANCELLED"]
    assert (left(fresh, "g"), left(fresh, "other")) == ([0, 1, 2], [0, 2])
    run(fresh, [encode(log_pb.SubscribeCommand(topic="t", group="late", start=EARLIEST))])
    assert left(fresh, "late") == [0, 2]
    (done,) = fresh.apply(fresh.applied_index + 1, 1, [ack([1])])
    assert done.stale.tolist() == []


def test_what_is_trimmed_cancelled_or_not_there_is_an_outcome_and_nothing_else(fresh: Machine) -> None:
    ready(fresh, 6)
    run(fresh, [ack([0, 1]), trim([0], [2])])
    assert outcomes(fresh, cancel_released(fresh, [1, 3, 3, 9, 2**64 - 1])) == [
        "ALREADY_DONE", "CANCELLED", "ALREADY_CANCELLED", "NOT_FOUND", "NOT_FOUND",
    ]  # fmt: skip
    assert outcomes(fresh, cancel_released(fresh, [3])) == ["ALREADY_CANCELLED"]
    run(fresh, [ack([2]), trim([0], [4])])
    assert not fresh.queues.cancelled.of(0)
    unknown = encode(log_pb.CancelReleasedCommand(queue=77, now_ms=NOW_MS))
    (refused,) = fresh.apply(fresh.applied_index + 1, 1, [unknown])
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.QUEUE_UNKNOWN


def test_a_letter_that_is_sent_back_while_its_cancel_is_under_way_is_not_cancelled(fresh: Machine) -> None:
    ready(fresh, 2)
    run(fresh, [retry([0, 1], NOW_MS, dead=True), release(NOW_MS + 10)])
    letters = fresh.queues.of("dlq.g.t").queue
    run(fresh, [encode(log_pb.SubscribeCommand(topic="dlq.g.t", group="~redrive", start=EARLIEST))])
    command = cancel_released(fresh, [0, 1], queue=letters)
    run(fresh, [ack([0], group="~redrive", queue=letters)])
    assert outcomes(fresh, command) == ["ALREADY_DELIVERED", "CANCELLED"]


def test_a_cancelled_retry_opens_the_lane_that_waits_for_it(fresh: Machine) -> None:
    ready(fresh, 2)
    run(fresh, [retry([0], NOW_MS + 5, lane=9), release(NOW_MS + 10)])
    assert fresh.queues.blocked.retry(1, 9) is not None
    assert outcomes(fresh, cancel_released(fresh, [0], queue=1)) == ["CANCELLED"]
    assert (fresh.queues.blocked.retry(1, 9), left(fresh, "g", 1)) == (None, [])
    assert 1 in fresh.queues.take_changed()


@pytest.mark.parametrize("had_by", [[], ["g"]])
def test_it_is_told_once_or_of_each_group_that_goes_on(fresh: Machine, had_by: list[str]) -> None:
    ready(fresh, 3)
    for group in ("h", "i"):
        run(fresh, [encode(log_pb.SubscribeCommand(topic="t", group=group, start=EARLIEST))])
    fresh.events.wanted = True
    outcomes(fresh, cancel_released(fresh, [1, 2], had_by=had_by))
    told = fresh.take_events()
    assert {event.kind for event in told} == {Kind.CANCELLED}
    assert [event.group for event in told] == (["h", "i"] if had_by else [None])
    for event in told:
        assert event.offset is not None
        assert event.due_ms is not None
        assert (event.offset.tolist(), event.due_ms.tolist()) == ([1, 2], [NOW_MS + 1, NOW_MS + 2])


def test_a_cancelled_copy_is_told_as_the_message_that_it_is_of(fresh: Machine) -> None:
    ready(fresh, 1)
    copy = Retried(record=b"r", hour=7, global_index=8, attempt=2, topic="t", group="g").SerializeToString()
    command = log_pb.RetryCommand(
        group="g", offset=bytes(8), due_ms=np.array([NOW_MS], "<i8").tobytes(), tag_mask=bytes(8),
        records=[copy], target_topic="t", target_group="g", now_ms=NOW_MS,
    )  # fmt: skip
    run(fresh, [encode(command), release(NOW_MS + 10)])
    fresh.events.wanted = True
    outcomes(fresh, cancel_released(fresh, [0], queue=1))
    (event,) = fresh.take_events()
    assert event.hour is not None
    assert event.global_index is not None
    assert event.attempt is not None
    assert (event.hour[0], event.global_index[0], event.attempt[0]) == (7, 8, 2)


def test_applying_reads_no_unit(fresh: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(fresh, 3)
    command = cancel_released(fresh, [1])

    def read(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(type(fresh.queues[0]), "read", read)
    assert outcomes(fresh, command) == ["CANCELLED"]


def test_below_level_two_it_is_not_in_the_log(fresh: Machine) -> None:
    run(fresh, [subscribe(), schedule([NOW_MS]), release(NOW_MS)])
    (refused,) = fresh.apply(fresh.applied_index + 1, 1, [cancel_released(fresh, [0])])
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.LEVEL_TOO_LOW
    assert left(fresh, "g") == [0]


GROUPS = ("g", "h")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("release"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.sampled_from(GROUPS), st.integers(0, 12)),
        st.tuples(st.just("cancel"), st.sets(st.integers(0, 14), min_size=1, max_size=4), st.booleans()),
        st.tuples(
            st.just("cancel"), st.sets(st.integers(0, 14), min_size=1, max_size=4), st.just(value=False)
        ),
        st.tuples(st.just("seek"), st.sampled_from(GROUPS), st.integers(0, 14)),
        st.tuples(st.just("subscribe"), st.sampled_from(GROUPS), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS)),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("crash")),
    ),
    max_size=30,
)


class Model:
    """Who is to get what: by group, offset -> whether it has yet to settle it."""

    def __init__(self) -> None:
        self.units = 0
        self.first = 0
        self.cancelled: set[int] = set()
        self.left: dict[str, set[int]] = {}

    def begin(self, group: str, offset: int) -> None:
        self.left[group] = set(range(max(offset, self.first), self.units)) - self.cancelled

    def release(self, count: int) -> None:
        fresh = range(self.units, self.units + count)
        self.units += count
        for known in self.left.values():
            known.update(fresh)

    def cancel(self, offset: int, had_by: Sequence[str]) -> str:
        if offset >= self.units:
            return "NOT_FOUND"
        if offset < self.first:
            return "ALREADY_DONE"
        if offset in self.cancelled:
            return "ALREADY_CANCELLED"
        self.cancelled.add(offset)
        for group, known in self.left.items():
            if group not in had_by:
                known.discard(offset)
        return "CANCELLED"

    def seek(self, group: str, offset: int) -> None:
        before = self.left[group]
        floor = min(before, default=self.units)
        within = max(self.first, min(offset, self.units))
        if within < floor:
            self.begin(group, within)
        else:
            self.left[group] = {one for one in before if one >= within}

    def trim(self, offset: int) -> None:
        self.first = max(self.first, min(offset, self.units))
        self.cancelled = {one for one in self.cancelled if one >= self.first}
        for known in self.left.values():
            known.difference_update(range(self.first))


def take(opened: Machine, model: Model, step: tuple[Any, ...]) -> list[bytes]:
    """Do a step in the model; return the commands that do it to a machine."""
    match step:
        case ("release", count):
            due = [NOW_MS + model.units + n for n in range(count)]
            model.release(count)
            return [schedule(due), release(max(due))]
        case ("ack", group, offset) if group in model.left and offset < model.units:
            model.left[group].discard(offset)
            return [ack([offset], group=group)]
        case ("cancel", offsets, others) if model.units:
            had_by = ["g"] if others else []
            command = cancel_released(opened, sorted(offsets), had_by=had_by)
            expected = [model.cancel(offset, had_by) for offset in sorted(offsets)]
            assert outcomes(opened, command) == expected
            return [command]
        case ("seek", group, offset) if group in model.left:
            model.seek(group, offset)
            return [encode(log_pb.SeekCommand(topic="t", group=group, offset=offset, now_ms=NOW_MS))]
        case ("subscribe", group, earliest) if group not in model.left and model.units:
            model.begin(group, 0 if earliest else model.units)
            start = EARLIEST if earliest else GroupStart(at=StartAt.START_AT_LATEST)
            return [encode(log_pb.SubscribeCommand(topic="t", group=group, start=start, now_ms=NOW_MS))]
        case ("delete", group) if group in model.left:
            del model.left[group]
            return [encode(log_pb.DeleteGroupCommand(topic="t", group=group, now_ms=NOW_MS))]
        case ("trim", offset) if model.units:
            model.trim(offset)
            return [trim([0], [offset])]
    return []


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_whatever_happens_a_dictionary_says_what_is_left_to_whom(taken: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened, model = Machine(Path(folder), MachineSettings()), Model()
        opened.apply(1, 1, [RAISE])
        opened.write(opened.capture())
        since: list[bytes] = []
        for step in taken:
            match step:
                case ("checkpoint",):
                    opened.write(opened.capture())
                    since.clear()
                case ("crash",):
                    before = opened.digest()
                    opened.close()
                    opened = Machine(Path(folder), MachineSettings())
                    for command in since:
                        opened.apply(opened.applied_index + 1, 1, [command])
                    assert opened.digest() == before
                case _:
                    commands = take(opened, model, step)
                    for command in commands if step[0] != "cancel" else ():
                        opened.apply(opened.applied_index + 1, 1, [command])
                    since += commands
            if model.units:
                assert set(opened.queues.cancelled.of(0)) == model.cancelled
            assert {group: set(left(opened, group)) for group in model.left} == model.left
            assert opened.queues.unacknowledged() == sum(map(len, model.left.values()))
        opened.close()


def test_the_state_of_a_checkpoint_has_what_was_cancelled(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        ready(first, 4)
        outcomes(first, cancel_released(first, [2]))
        first.write(first.capture())
        digest, states = first.digest(), first.wheel.digest()
    with machine(tmp_path) as again:
        assert (again.digest(), again.wheel.digest()) == (digest, states)
        assert outcomes(again, cancel_released(again, [2, 3])) == ["ALREADY_CANCELLED", "CANCELLED"]
