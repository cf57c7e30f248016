"""Reschedules, as applied: due at another time under the same id, once; everything else is an outcome."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Retried
from tarry.replication.state_machine import lanes
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Cancelled, Rescheduled
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.reschedules import MOVED_MEANWHILE
from tarry.wheel.state import HOUR_MS, CancelOutcome, MessageState
from tests.replication.commands import NOW_MS, ack, admin, cancel, record, release, schedule, subscribe, trim
from tests.replication.state_machine.test_machine import fresh, ids, machine, run

__all__ = ["fresh"]

RAISE = encode(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS))
OUTCOMES = {number: name.removeprefix("CHANGE_OUTCOME_") for name, number in pb.ChangeOutcome.items()}
OUTCOMES[MOVED_MEANWHILE] = "MOVED_MEANWHILE"
HOUR = NOW_MS // HOUR_MS

Id = tuple[int, int]


def u4(numbers: Sequence[int]) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def places(opened: Machine, names: Sequence[Id]) -> list[Id]:
    if not names:
        return []
    hour, index = opened.wheel.places_of(
        *(np.array(column, np.uint32) for column in zip(*names, strict=True))
    )
    return list(zip(hour.tolist(), index.tolist(), strict=True))


def command(
    opened: Machine, names: Sequence[Id], due_ms: Sequence[int], **more: Any
) -> log_pb.RescheduleCommand:
    """The leader's command: each record is read where the message rests."""
    at = list(names) if more.get("copies") else places(opened, names)
    told = {
        "hour": u4([hour for hour, _ in names]),
        "global_index": u4([index for _, index in names]),
        "place_hour": u4([hour for hour, _ in at]),
        "place_index": u4([index for _, index in at]),
        "due_ms": np.array(due_ms, "<i8").tobytes(),
        "records": [read(opened, place) for place in at],
        "now_ms": NOW_MS,
    }
    return log_pb.RescheduleCommand(**{**told, **more})


def read(opened: Machine, at: Id) -> bytes:
    if not opened.wheel.known(*(np.array([part], np.uint32) for part in at)).all():
        return b""
    (found,) = opened.wheel.read(*(np.array([part], np.uint32) for part in at))
    return found or b""


def apply(opened: Machine, payload: log_pb.RescheduleCommand) -> list[tuple[str, int]]:
    (outcome,) = opened.apply(opened.applied_index + 1, 1, [encode(payload)])
    assert isinstance(outcome, Rescheduled), outcome
    return [
        (OUTCOMES[number], due)
        for number, due in zip(outcome.outcomes.tolist(), outcome.due_ms.tolist(), strict=True)
    ]


def scheduled(opened: Machine, due_ms: Sequence[int], **more: Any) -> list[Id]:
    (outcome,) = opened.apply(opened.applied_index + 1, 1, [schedule(due_ms, **more)])
    hour, index = ids(outcome)
    return list(zip(hour, index, strict=True))


def told(opened: Machine) -> list[tuple[Kind, list[Id]]]:
    return [
        (event.kind, list(zip(event.hour.tolist(), event.global_index.tolist(), strict=True)))
        for event in opened.take_events()
        if event.hour is not None and event.global_index is not None
    ]


def test_a_message_is_due_earlier_or_later_under_its_id_and_is_released_then_alone(fresh: Machine) -> None:
    fresh.events.wanted = True
    run(fresh, [RAISE, subscribe()])
    one, two, three = scheduled(fresh, [NOW_MS + 500, NOW_MS + 9 * HOUR_MS, NOW_MS + 700])
    due = [NOW_MS + 5 * HOUR_MS, NOW_MS + 600, NOW_MS - 1]
    changed = apply(fresh, command(fresh, [one, two, three], due))
    assert changed == [("CHANGED", due[0]), ("CHANGED", due[1]), ("CHANGED", NOW_MS)]
    run(fresh, [release(NOW_MS + HOUR_MS)])
    assert fresh.queues[0].units == 2
    assert places(fresh, [two])[0][0] == HOUR
    told(fresh)
    run(fresh, [release(NOW_MS + 5 * HOUR_MS)])
    assert told(fresh) == [(Kind.RELEASED, [one])]


def test_the_ledger_is_told_of_ids_whatever_happens_to_a_moved_message(fresh: Machine) -> None:
    run(fresh, [RAISE, subscribe()])
    one, two = scheduled(fresh, [NOW_MS + 500, NOW_MS + 600])
    fresh.events.wanted = True
    apply(fresh, command(fresh, [one, two], [NOW_MS + 50, NOW_MS + 2 * HOUR_MS]))
    run(fresh, [release(NOW_MS + 50), ack([0]), cancel([two])])
    assert told(fresh) == [
        (Kind.RESCHEDULED, [one, two]),
        (Kind.RELEASED, [one]),
        (Kind.ACKED, [one]),
        (Kind.CANCELLED, [two]),
    ]


def test_the_ledger_is_told_of_ids_also_by_the_entry_that_drops_the_hour_of_the_place(fresh: Machine) -> None:
    run(fresh, [RAISE, subscribe()])
    one, two = scheduled(fresh, [NOW_MS + 9 * HOUR_MS, NOW_MS + 9 * HOUR_MS])
    apply(fresh, command(fresh, [one, two], [NOW_MS + 600, NOW_MS + 600]))
    run(fresh, [release(NOW_MS + 3 * HOUR_MS)])
    fresh.events.wanted = True
    fresh.apply(fresh.applied_index + 1, 1, [ack([0]), trim([0], [2], [HOUR])])
    assert fresh.wheel.units_in_hour(HOUR) == 0
    assert told(fresh) == [(Kind.ACKED, [one]), (Kind.EXPIRED, [two])]


def test_what_is_past_is_told_as_rescheduled_and_then_released(fresh: Machine) -> None:
    run(fresh, [RAISE, release(NOW_MS)])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    fresh.events.wanted = True
    assert apply(fresh, command(fresh, [one], [NOW_MS - 5])) == [("CHANGED", NOW_MS)]
    assert told(fresh) == [(Kind.RESCHEDULED, [one]), (Kind.RELEASED, [one])]


def test_a_repeated_command_changes_nothing_and_one_for_another_due_time_neither(fresh: Machine) -> None:
    run(fresh, [RAISE])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    expected = np.array([NOW_MS + 500], "<i8").tobytes()
    again = command(fresh, [one], [NOW_MS + 900], if_due_ms=expected)
    assert apply(fresh, again) == [("CHANGED", NOW_MS + 900)]
    digest = fresh.wheel.digest()
    assert apply(fresh, again) == [("ALREADY_SO", NOW_MS + 900)]
    other = command(fresh, [one], [NOW_MS + 901], if_due_ms=expected)
    assert apply(fresh, other) == [("DUE_DIFFERS", NOW_MS + 900)]
    assert fresh.wheel.digest() == digest


def test_a_record_that_was_read_before_the_message_moved_does_not_replace_a_newer_one(fresh: Machine) -> None:
    run(fresh, [RAISE])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    late = command(fresh, [one], [NOW_MS + 900])
    update = command(fresh, [one], [NOW_MS + 500], records=[record(b"new")], tag_mask=bytes(8))
    assert apply(fresh, update) == [("CHANGED", NOW_MS + 500)]
    assert apply(fresh, late) == [("MOVED_MEANWHILE", NOW_MS + 500)]
    assert apply(fresh, update) == [("ALREADY_SO", NOW_MS + 500)]
    assert read(fresh, places(fresh, [one])[0]) == record(b"new")


def test_what_is_not_pending_is_an_outcome(fresh: Machine) -> None:
    run(fresh, [RAISE])
    released, cancelled, pending = scheduled(fresh, [NOW_MS, NOW_MS + 50, NOW_MS + 60])
    run(fresh, [release(NOW_MS), cancel([cancelled])])
    names = [released, cancelled, pending, pending, (HOUR, 99), (HOUR + 70, 0), (2**32 - 1, 2**32 - 1)]
    changed = apply(fresh, command(fresh, names, [NOW_MS + 70] * 7))
    assert [outcome for outcome, _ in changed] == [
        "ALREADY_RELEASED", "ALREADY_CANCELLED", "CHANGED", "MOVED_MEANWHILE", *["NOT_FOUND"] * 3,
    ]  # fmt: skip


def test_the_place_of_a_moved_message_is_nobodys_id(fresh: Machine) -> None:
    run(fresh, [RAISE])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    apply(fresh, command(fresh, [one], [NOW_MS + 900]))
    (at,) = places(fresh, [one])
    for _ in ("it rests there", "it did"):
        assert apply(fresh, command(fresh, [at], [NOW_MS + 1_000])) == [("NOT_FOUND", 0)]
        (outcome,) = fresh.apply(fresh.applied_index + 1, 1, [cancel([at])])
        assert isinstance(outcome, Cancelled)
        assert outcome.outcomes.tolist() == [CancelOutcome.NOT_FOUND]
        apply(fresh, command(fresh, [one], [NOW_MS + 950]))
    (outcome,) = fresh.apply(fresh.applied_index + 1, 1, [cancel([one])])
    assert isinstance(outcome, Cancelled)
    assert outcome.outcomes.tolist() == [CancelOutcome.CANCELLED]
    assert fresh.wheel.pending == 0


def test_a_second_without_room_refuses_what_comes_to_it_and_not_what_stays_in_it(fresh: Machine) -> None:
    run(fresh, [RAISE])
    one, two = scheduled(fresh, [NOW_MS + 5_000, NOW_MS + 5_001])
    (other,) = scheduled(fresh, [NOW_MS + 90_000])
    (refused,) = fresh.apply(
        fresh.applied_index + 1,
        1,
        [encode(command(fresh, [one, other], [NOW_MS + 5_500] * 2, second_messages_max=2))],
    )
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.facts["position"]) == (Reason.SECOND_FULL, "1")
    within = command(fresh, [one, two], [NOW_MS + 5_500] * 2, second_messages_max=2)
    assert [outcome for outcome, _ in apply(fresh, within)] == ["CHANGED", "CHANGED"]


def test_a_full_topic_still_reschedules_what_it_has(fresh: Machine) -> None:
    run(fresh, [RAISE, admin(log_pb.TopicCommand(topic="t", settings={"pending_max": 1}, now_ms=NOW_MS))])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    assert apply(fresh, command(fresh, [one], [NOW_MS + 900])) == [("CHANGED", NOW_MS + 900)]
    assert fresh.wheel.pending_of(0) == 1


def test_a_retry_is_moved_with_the_lane_that_it_blocks(fresh: Machine) -> None:
    run(fresh, [RAISE, subscribe(), schedule([NOW_MS]), release(NOW_MS)])
    copy = Retried(record=b"r", hour=7, global_index=8, attempt=2, topic="t", group="g").SerializeToString()
    retry = log_pb.RetryCommand(
        group="g", offset=bytes(8), due_ms=np.array([NOW_MS + 500], "<i8").tobytes(), tag_mask=bytes(8),
        records=[copy], target_topic="t", target_group="g", now_ms=NOW_MS, lane=u4([5]),
    )  # fmt: skip
    run(fresh, [encode(retry)])
    at = (HOUR, 1)
    assert apply(fresh, command(fresh, [at], [NOW_MS + 900])) == [("NOT_FOUND", 0)]  # not by its place
    fresh.events.wanted = True
    later = command(fresh, [at], [NOW_MS + 2 * HOUR_MS], copies=True)
    assert apply(fresh, later) == [("CHANGED", NOW_MS + 2 * HOUR_MS)]
    (event,) = fresh.take_events()
    assert (event.kind, event.queue, event.hour, event.global_index, event.attempt) == (
        Kind.RESCHEDULED,
        1,
        7,
        8,
        2,
    )
    assert fresh.queues.blocked.any_of(1)
    again = command(fresh, [(HOUR + 2, 0)], [NOW_MS - 1], copies=True)
    assert apply(fresh, again) == [("CHANGED", NOW_MS)]
    run(fresh, [release(NOW_MS)])
    (unit,) = fresh.queues[1].read(0, 1)
    assert (int(unit["lane"]), fresh.wheel.pending, fresh.wheel.moved) == (5, 0, 0)
    run(fresh, [ack([0], queue=1)])
    assert not fresh.queues.blocked.any_of(1)


def test_new_tags_leave_the_lane(fresh: Machine) -> None:
    run(fresh, [RAISE, subscribe()])
    keyed = log_pb.ScheduleCommand(
        now_ms=NOW_MS,
        lane=u4([77]),
        request=log_pb.ScheduleColumns(
            topics=["t"],
            due_ms=np.array([NOW_MS + 5], "<i8").tobytes(),
            records=[record(b"b")],
            tag_mask=np.array([4], "<u8").tobytes(),
        ),
    )
    run(fresh, [encode(keyed)])
    name = (HOUR, 0)
    update = command(
        fresh, [name], [NOW_MS + 5], records=[record(b"c")], tag_mask=np.array([8], "<u8").tobytes()
    )
    assert apply(fresh, update) == [("CHANGED", NOW_MS + 5)]
    unit = fresh.wheel.units(*(np.array([part], np.uint32) for part in places(fresh, [name])[0]))
    queue, mask, lane = lanes.unpack(unit["topic"], unit["tag_mask"])
    assert isinstance(lane, np.ndarray)
    assert (queue[0], lane[0], mask[0] & np.uint64(12)) == (0, 77, 8)


def test_columns_of_different_lengths_are_refused(fresh: Machine) -> None:
    run(fresh, [RAISE])
    (one,) = scheduled(fresh, [NOW_MS + 500])
    for more in ({"records": []}, {"place_index": b""}, {"if_due_ms": bytes(16)}, {"tag_mask": bytes(16)}):
        payload = command(fresh, [one], [NOW_MS + 900], **more)
        (refused,) = fresh.apply(fresh.applied_index + 1, 1, [encode(payload)])
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.COLUMNS_DIFFER


def test_below_level_two_it_is_not_in_the_log(fresh: Machine) -> None:
    (one,) = scheduled(fresh, [NOW_MS + 500])
    (refused,) = fresh.apply(fresh.applied_index + 1, 1, [encode(command(fresh, [one], [NOW_MS + 900]))])
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.LEVEL_TOO_LOW
    assert fresh.wheel.moved == 0


def test_an_id_outlives_its_hour_in_a_checkpoint(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [RAISE])
        (one,) = scheduled(first, [NOW_MS + 500])
        apply(first, command(first, [one], [NOW_MS + 9 * HOUR_MS]))
        run(first, [release(NOW_MS + 2 * HOUR_MS), trim([], [], [HOUR])])
        assert first.wheel.units_in_hour(HOUR) == 0
        first.write(first.capture())
        digest, at = first.digest(), places(first, [one])
    with machine(tmp_path) as again:
        assert (again.digest(), places(again, [one])) == (digest, at)
        assert apply(again, command(again, [one], [NOW_MS + 3 * HOUR_MS])) == [
            ("CHANGED", NOW_MS + 3 * HOUR_MS)
        ]


offsets_ms = st.sampled_from([-5_000, 0, 1, 999, 5_000, HOUR_MS, 3 * HOUR_MS, 900 * HOUR_MS])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.lists(offsets_ms, min_size=1, max_size=5)),
        st.tuples(
            st.just("move"), st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True), offsets_ms
        ),
        st.tuples(
            st.just("move"), st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True), offsets_ms
        ),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("release"), st.sampled_from([0, 1_000, HOUR_MS, 4 * HOUR_MS])),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("crash")),
    ),
    max_size=25,
)


class Played:
    """A machine, and what a dictionary says of its messages."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.machine = self.open()
        self.entries: list[bytes] = []
        self.due: dict[Id, int] = {}
        self.released: dict[Id, int] = {}
        self.gone: set[Id] = set()
        self.now_ms = NOW_MS

    def open(self) -> Machine:
        opened = Machine(Path(self.folder), MachineSettings())
        opened.events.wanted = True
        return opened

    def do(self, payload: bytes) -> Any:
        self.entries.append(payload)
        (outcome,) = self.machine.apply(self.machine.applied_index + 1, 1, [payload])
        for event in self.machine.take_events():
            if event.kind is Kind.RELEASED:
                columns = (event.hour, event.global_index, event.due_ms)
                for hour, index, due in zip(*(column.tolist() for column in columns), strict=True):  # type: ignore[union-attr]
                    assert (hour, index) not in self.released
                    self.released[hour, index] = due
        return outcome

    def schedule(self, after_ms: list[int]) -> None:
        due = [self.now_ms + ms for ms in after_ms]
        names = zip(*ids(self.do(schedule(due, now_ms=self.now_ms))), strict=True)
        self.due.update(zip(names, (max(self.now_ms, ms) for ms in due), strict=True))

    def move(self, chosen: list[int], after_ms: int) -> None:
        names = [list(self.due)[place] for place in chosen if place < len(self.due)]
        due = self.now_ms + after_ms
        outcome = self.do(encode(command(self.machine, names, [due] * len(names), now_ms=self.now_ms)))
        for name, number in zip(names, outcome.outcomes.tolist(), strict=True):
            if name not in self.gone and self.due[name] > self.now_ms:
                assert OUTCOMES[number] in ("CHANGED", "ALREADY_SO")
            if OUTCOMES[number] == "CHANGED":
                self.due[name] = max(self.now_ms, due)

    def cancel(self, place: int) -> None:
        if place < len(self.due):
            name = list(self.due)[place]
            if self.do(cancel([name])).outcomes[0] == CancelOutcome.CANCELLED:
                assert name not in self.released
                self.gone.add(name)

    def release(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.do(release(self.now_ms, now_ms=self.now_ms))
        late = {name for name, due in self.due.items() if due <= self.now_ms}
        assert late <= self.released.keys() | self.gone

    def checkpoint(self) -> None:
        self.machine.write(self.machine.capture())
        self.entries.clear()

    def crash(self) -> None:
        digest = self.machine.digest()
        self.machine.close()
        self.machine = self.open()
        for payload in self.entries:
            self.machine.apply(self.machine.applied_index + 1, 1, [payload])
        self.machine.take_events()
        assert self.machine.digest() == digest

    def check(self) -> None:
        assert all(self.due[name] == due for name, due in self.released.items())
        assert not self.gone & self.released.keys()
        for name in self.due:
            expected = MessageState.CANCELLED if name in self.gone else MessageState.PENDING
            expected = MessageState.RELEASED if name in self.released else expected
            assert self.machine.wheel.state(*places(self.machine, [name])[0]) is expected


@given(steps=steps)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_done_each_message_is_released_once_at_its_last_due_time(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        played = Played(folder)
        played.do(RAISE)
        for name, *values in steps:
            getattr(played, name)(*values)
        played.check()
        played.machine.close()
