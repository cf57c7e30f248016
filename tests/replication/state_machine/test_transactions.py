"""Transactions, as applied: half messages, their checks, and how they end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionEvent, transaction_in
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.proto.tarry_producer_pb2 import CHANGE_OUTCOME_NOT_FOUND
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Checked, Moved, Transacted
from tarry.replication.state_machine.queues import CHECKED, CHECKS
from tarry.replication.state_machine.refusal import Refusal
from tests.replication.commands import NOW_MS, cancel, record, release, schedule
from tests.replication.state_machine.test_machine import fresh, machine
from tests.replication.state_machine.test_reschedules import RAISE

__all__ = ["fresh"]

OPEN, COMMITTED = pb.TRANSACTION_STATE_OPEN, pb.TRANSACTION_STATE_COMMITTED
ROLLED_BACK, UNRESOLVED = pb.TRANSACTION_STATE_ROLLED_BACK, pb.TRANSACTION_STATE_UNRESOLVED
COMMIT, ROLLBACK = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ROLLBACK
CHECK_MS = NOW_MS + 60_000


def apply(opened: Machine, *payloads: Any) -> list[Any]:
    commands = [one if isinstance(one, bytes) else encode(one) for one in payloads]
    return opened.apply(opened.applied_index + 1, 1, commands)


def raised(opened: Machine) -> Machine:
    opened.apply(1, 1, [RAISE])
    return opened


def prepare(name: str = "o-1", group: str = "shop", **more: Any) -> log_pb.PrepareCommand:
    told = {"topic": "t", "record": record(b"order"), "check_ms": CHECK_MS, "now_ms": NOW_MS, **more}
    if "due_ms" not in told:
        told.setdefault("delay_ms", 0)
    return log_pb.PrepareCommand(producer_group=group, transaction=name, **told)


def state(opened: Machine, name: str = "o-1", group: str = "shop") -> log_pb.TransactionCheckpoint:
    row = opened.transactions.named(group, name)
    assert row is not None
    return row.state()


def end(opened: Machine, how: Any, name: str = "o-1", **more: Any) -> log_pb.EndCommand:
    """As the leader proposes it, which has just read the record."""
    one = state(opened, name)
    told = {"place_hour": one.place_hour, "place_index": one.place_index, "now_ms": NOW_MS, **more}
    return log_pb.EndCommand(number=one.number, end=how, record=told.pop("record", record(b"order")), **told)


def due_checks(opened: Machine) -> list[int]:
    queue = opened.queues.find(CHECKS, CHECKED)
    if queue is None:
        return []
    return opened.queues.acknowledged[CHECKED, queue.queue].missing(0, queue.units).tolist()


def check(opened: Machine, due_ms: int, name: str = "o-1", **more: Any) -> log_pb.CheckCommand:
    one = state(opened, name)
    planned = log_pb.PlannedCheck(
        number=one.number,
        place_hour=one.place_hour,
        place_index=one.place_index,
        record=record(b"order" if due_ms else b"letter"),
        due_ms=due_ms,
    )
    told = {"now_ms": CHECK_MS, **columns(opened, due_checks(opened)), **more}
    return log_pb.CheckCommand(checks=[planned], **told)


def columns(opened: Machine, offsets: list[int]) -> dict[str, bytes]:
    """Columns of a CheckCommand that is done with these offsets of the queue of checks."""
    units = opened.queues.checks().at(np.array(offsets, np.uint64))
    hour, index = units["hour"].astype("<u4"), units["global_index"].astype("<u4")
    return {
        "offset": np.array(offsets, "<u8").tobytes(),
        "hour": hour.tobytes(),
        "global_index": index.tobytes(),
    }


def ready(opened: Machine, topic: str = "t") -> int:
    queue = opened.queues.find(topic)
    return 0 if queue is None else queue.units


def test_a_half_message_is_given_to_nobody_and_a_commit_makes_it_a_message(fresh: Machine) -> None:
    (prepared,) = apply(raised(fresh), prepare(delay_ms=5_000))
    assert prepared == Transacted(state(fresh), repeated=False)
    apply(fresh, release(NOW_MS + 50_000))
    assert (ready(fresh), fresh.wheel.pending, len(fresh.transactions)) == (0, 1, 1)
    (committed,) = apply(fresh, end(fresh, COMMIT, now_ms=NOW_MS + 50_000))
    assert (committed.state.state, committed.state.next_ms) == (COMMITTED, NOW_MS + 55_000)
    assert (fresh.wheel.pending, len(fresh.transactions), fresh.transactions.ended) == (1, 0, 1)
    apply(fresh, release(NOW_MS + 54_999))
    assert ready(fresh) == 0
    apply(fresh, release(NOW_MS + 55_000))
    assert ready(fresh) == 1
    apply(fresh, release(CHECK_MS))
    assert due_checks(fresh) == []


def test_a_due_time_is_as_it_was_given_and_one_in_the_past_becomes_now(fresh: Machine) -> None:
    apply(raised(fresh), prepare("a", due_ms=NOW_MS + 9_000), prepare("b", due_ms=NOW_MS + 1_000))
    a, b = end(fresh, COMMIT, "a", now_ms=NOW_MS + 5_000), end(fresh, COMMIT, "b", now_ms=NOW_MS + 5_000)
    done = apply(fresh, a, b)
    assert [one.state.next_ms for one in done] == [NOW_MS + 9_000, NOW_MS + 5_000]


def test_a_rollback_leaves_nothing(fresh: Machine) -> None:
    apply(raised(fresh), prepare())
    (done,) = apply(fresh, end(fresh, ROLLBACK))
    assert (done.state.state, done.repeated, fresh.wheel.pending) == (ROLLED_BACK, False, 0)
    apply(fresh, release(CHECK_MS + 1))
    assert (ready(fresh), due_checks(fresh)) == (0, [])


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_a_second_end_answers_what_the_first_did_and_another_is_refused(
    fresh: Machine, first: Any, second: Any
) -> None:
    apply(raised(fresh), prepare())
    (done,) = apply(fresh, end(fresh, first))
    (again,) = apply(fresh, end(fresh, first, now_ms=NOW_MS + 1))
    assert again == Transacted(done.state, repeated=True)
    (refused,) = apply(fresh, end(fresh, second))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.TRANSACTION_ENDED
    assert fresh.wheel.pending == (first == COMMIT)


def test_a_repeated_prepare_is_answered_and_another_of_the_name_is_refused(fresh: Machine) -> None:
    (first,) = apply(raised(fresh), prepare())
    assert apply(fresh, prepare(now_ms=NOW_MS + 9)) == [Transacted(first.state, repeated=True)]
    differing: list[dict[str, Any]] = [{"record": record(b"x")}, {"topic": "u"}]
    differing += [{"delay_ms": 1}, {"due_ms": 0}]
    for more in differing:
        (refused,) = apply(fresh, prepare(**more))
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.TRANSACTION_DIFFERS
    (other,) = apply(fresh, prepare(group="other"))
    assert (other.repeated, other.state.number, fresh.wheel.pending) == (False, 2, 2)
    (done,) = apply(fresh, end(fresh, COMMIT))
    assert apply(fresh, prepare()) == [Transacted(done.state, repeated=True)]


def test_a_check_comes_due_in_the_wheel_and_goes_back_for_the_next(fresh: Machine) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS - 1))
    assert due_checks(fresh) == []
    apply(fresh, release(CHECK_MS))
    assert (due_checks(fresh), ready(fresh)) == ([0], 0)
    (done,) = apply(fresh, check(fresh, CHECK_MS + 5_000))
    assert isinstance(done, Checked)
    assert (state(fresh).checks, state(fresh).next_ms) == (1, CHECK_MS + 5_000)
    assert (due_checks(fresh), fresh.wheel.pending) == ([], 1)
    apply(fresh, release(CHECK_MS + 5_000))
    assert due_checks(fresh) == [1]


def test_a_check_that_is_due_already_comes_due_at_once(fresh: Machine) -> None:
    apply(raised(fresh), schedule([CHECK_MS]), release(CHECK_MS))
    apply(fresh, prepare(check_ms=NOW_MS))
    assert due_checks(fresh) == [0]


def test_after_the_last_check_the_message_is_a_dead_letter(fresh: Machine) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS))
    (done,) = apply(fresh, check(fresh, 0))
    assert done.states[0].state == UNRESOLVED
    assert (state(fresh).ended_ms, len(fresh.transactions), due_checks(fresh)) == (CHECK_MS, 0, [])
    apply(fresh, release(CHECK_MS + 1))
    assert (ready(fresh), ready(fresh, "dlq.transactions.t")) == (0, 1)
    for how in (COMMIT, ROLLBACK):
        (refused,) = apply(fresh, end(fresh, how))
        assert (refused.reason, refused.facts["state"]) == (Reason.TRANSACTION_ENDED, "UNRESOLVED")


def test_a_commit_that_has_read_the_record_before_a_check_reads_it_again(fresh: Machine) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS))
    before = end(fresh, COMMIT)
    apply(fresh, check(fresh, CHECK_MS + 5_000))
    assert apply(fresh, before) == [Moved()]
    assert (len(fresh.transactions), fresh.wheel.pending) == (1, 1)
    (done,) = apply(fresh, end(fresh, COMMIT, now_ms=CHECK_MS))
    assert done.state.state == COMMITTED
    apply(fresh, release(CHECK_MS + 9_000))
    assert (ready(fresh), due_checks(fresh)) == (1, [])


def test_a_check_that_was_planned_before_a_commit_does_nothing(fresh: Machine) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS))
    planned, last = check(fresh, CHECK_MS + 5_000), check(fresh, 0)
    apply(fresh, end(fresh, COMMIT, now_ms=CHECK_MS))
    assert apply(fresh, planned, last) == [Checked((None,)), Checked((None,))]
    apply(fresh, release(CHECK_MS + 9_000))
    assert (ready(fresh), ready(fresh, "dlq.transactions.t"), due_checks(fresh)) == (1, 0, [])


def test_a_check_that_was_planned_before_another_does_nothing(fresh: Machine) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS))
    planned = check(fresh, CHECK_MS + 5_000)
    assert apply(fresh, planned, planned)[1] == Checked((None,))
    assert (state(fresh).checks, fresh.wheel.pending) == (1, 1)


def test_what_is_committed_is_what_was_prepared(fresh: Machine) -> None:
    apply(raised(fresh), prepare())
    (refused,) = apply(fresh, end(fresh, COMMIT, record=record(b"other")))
    assert refused.reason is Reason.MESSAGE_DAMAGED
    assert (state(fresh).state, fresh.wheel.pending) == (OPEN, 1)


def test_open_transactions_have_a_limit_and_count_as_pending_of_their_topic(fresh: Machine) -> None:
    settings_of_topic = log_pb.TopicCommand(topic="t", settings=TopicSettings(pending_max=2), now_ms=NOW_MS)
    apply(raised(fresh), settings_of_topic, prepare("a"), prepare("b"))
    for refused in apply(fresh, prepare("c"), schedule([NOW_MS + 1])):
        assert (refused.reason, refused.facts["pending"]) == (Reason.TOPIC_FULL, "2")
    (refused,) = apply(fresh, prepare("d", topic="u", open_max=2))
    assert refused.reason is Reason.TOO_MANY_TRANSACTIONS
    apply(fresh, end(fresh, ROLLBACK, "a"), schedule([NOW_MS + 1]))
    (refused,) = apply(fresh, schedule([NOW_MS + 1]))
    assert refused.reason is Reason.TOPIC_FULL
    assert fresh.wheel.pending == 2


def test_the_latest_ends_are_remembered_and_no_more(fresh: Machine) -> None:
    names = [f"o-{number}" for number in range(5)]
    apply(raised(fresh), *map(prepare, names))
    for name in reversed(names):
        apply(fresh, end(fresh, ROLLBACK, name, ended_max=3))
    assert fresh.transactions.ended == 3
    assert [bool(fresh.transactions.named("shop", name)) for name in names] == [True] * 3 + [False] * 2
    (refused,) = apply(fresh, log_pb.EndCommand(number=5, end=COMMIT, now_ms=NOW_MS))
    assert refused.reason is Reason.TRANSACTION_UNKNOWN
    assert refused.facts == {"forgotten": "2", "remembered_ms": str(NOW_MS)}


def test_a_transaction_that_was_never_prepared_is_not_said_to_be_forgotten(fresh: Machine) -> None:
    apply(raised(fresh), prepare())
    apply(fresh, end(fresh, ROLLBACK))
    (refused,) = apply(fresh, log_pb.EndCommand(number=5, end=COMMIT, now_ms=NOW_MS))
    assert (refused.reason, refused.facts) == (Reason.TRANSACTION_UNKNOWN, {})
    assert "forgotten" not in refused.text


def test_a_half_message_that_is_cancelled_by_its_place_is_rolled_back(fresh: Machine) -> None:
    apply(raised(fresh), prepare())
    one = state(fresh)
    fresh.events.wanted = True
    apply(fresh, cancel([(one.place_hour, one.place_index)]))
    assert (state(fresh).state, fresh.wheel.pending) == (ROLLED_BACK, 0)
    assert [event.kind for event in fresh.take_events()] == [Kind.ROLLED_BACK]


@pytest.mark.parametrize("copies", [False, True])
def test_a_half_message_is_not_moved_by_its_place(fresh: Machine, copies: bool) -> None:
    apply(raised(fresh), prepare())
    one = state(fresh)
    hour, index = (np.array([part], "<u4").tobytes() for part in (one.place_hour, one.place_index))
    move = log_pb.RescheduleCommand(
        hour=hour,
        global_index=index,
        place_hour=hour,
        place_index=index,
        due_ms=np.array([CHECK_MS + 5_000], "<i8").tobytes(),
        records=[record(b"order")],
        copies=copies,
        now_ms=NOW_MS,
    )
    (moved,) = apply(fresh, move)
    assert moved.outcomes.tolist() == [CHANGE_OUTCOME_NOT_FOUND]
    apply(fresh, end(fresh, COMMIT), release(NOW_MS + 1), release(CHECK_MS + 10_000))
    assert (fresh.queues.of("t").units, due_checks(fresh)) == (1, [])


def test_below_its_level_nothing_is_prepared(fresh: Machine) -> None:
    for payload in (prepare(), log_pb.EndCommand(end=COMMIT), log_pb.CheckCommand()):
        (refused,) = apply(fresh, payload)
        assert refused.reason is Reason.LEVEL_TOO_LOW


@pytest.mark.parametrize(
    "payload",
    [
        prepare(""),
        prepare(group=""),
        prepare(topic=""),
        prepare(delay_ms=-1),
        prepare(due_ms=1, delay_ms=1),
        log_pb.EndCommand(),
        log_pb.EndCommand(end=9),  # type: ignore[arg-type]
    ],
)
def test_what_no_leader_proposes_is_refused(fresh: Machine, payload: Any) -> None:
    (refused,) = apply(raised(fresh), payload)
    assert refused.reason is Reason.TRANSACTION_INVALID


@pytest.mark.parametrize("column", ["offset", "hour", "global_index"])
def test_a_check_of_columns_that_differ_in_length_is_refused(fresh: Machine, column: str) -> None:
    apply(raised(fresh), prepare(), release(CHECK_MS))
    command = check(fresh, 0)
    command.ClearField(column)
    (refused,) = apply(fresh, command)
    assert refused.reason is Reason.COLUMNS_DIFFER
    assert (due_checks(fresh), state(fresh).state) == ([0], OPEN)


def test_a_check_of_offsets_past_the_end_settles_none(fresh: Machine) -> None:
    told = {"offset": np.array([7], "<u8").tobytes(), "hour": bytes(4), "global_index": bytes(4)}
    apply(raised(fresh), log_pb.CheckCommand(now_ms=NOW_MS, **told))
    apply(fresh, *[prepare(f"{n}") for n in range(9)], release(CHECK_MS))
    assert due_checks(fresh) == list(range(9))


def test_a_check_that_is_said_to_be_done_with_and_was_not_handed_over_stays_due(fresh: Machine) -> None:
    apply(raised(fresh), *[prepare(f"{n}") for n in range(3)], release(CHECK_MS))
    apply(fresh, end(fresh, ROLLBACK, "1"))
    apply(fresh, check(fresh, CHECK_MS + 9_000, "2"))
    assert due_checks(fresh) == [0]
    apply(fresh, check(fresh, CHECK_MS + 9_000, "0"))
    assert due_checks(fresh) == []


def test_a_message_tells_when_it_was_prepared_and_committed(fresh: Machine) -> None:
    apply(raised(fresh), prepare(born_ms=NOW_MS - 7))
    (again,) = apply(fresh, prepare(born_ms=NOW_MS + 9))
    assert (again.repeated, again.state.born_ms) == (True, NOW_MS - 7)
    (done,) = apply(fresh, end(fresh, COMMIT, now_ms=NOW_MS + 5))
    place = np.array([[done.state.place_hour], [done.state.place_index]], np.uint32)
    (kept,) = fresh.wheel.read(*place)
    assert Record.FromString(kept) == Record(body=b"order", born_ms=NOW_MS - 7, stored_ms=NOW_MS + 5)


def test_the_ledger_is_told_of_each_step_and_of_no_release_of_a_check(fresh: Machine) -> None:
    raised(fresh)
    fresh.events.wanted = True
    apply(fresh, prepare("a"), prepare("b"), prepare("c"), release(CHECK_MS))
    apply(fresh, check(fresh, CHECK_MS + 1, "a"), end(fresh, COMMIT, "b", now_ms=CHECK_MS))
    apply(fresh, check(fresh, 0, "c"))
    told = [(event.kind, event.detail) for event in fresh.take_events()]
    assert told == [
        *((Kind.PREPARED, f"HALF {number} shop {name}") for number, name in ((1, "a"), (2, "b"), (3, "c"))),
        (Kind.SCHEDULED, "COMMITTED 2 shop b"),
        (Kind.RELEASED, None),
        (Kind.ROLLED_BACK, "UNRESOLVED 3 shop c"),
        (Kind.SCHEDULED, "DEAD_LETTER"),
        (Kind.RELEASED, None),
    ]
    found = transaction_in(told[3][1])
    assert found is not None
    assert (found.event, found.number, found.name) == (TransactionEvent.COMMITTED, 2, "b")
    assert transaction_in("DEAD_LETTER") is None


class Model:
    """What transactions are by their definition, with the machine that is compared with it."""

    def __init__(self, opened: Machine) -> None:
        self.machine = opened
        self.states: dict[str, Any] = {}
        self.now_ms = NOW_MS

    def prepare(self, name: str) -> None:
        apply(self.machine, prepare(name, now_ms=self.now_ms, check_ms=self.now_ms + 1_000))
        self.states.setdefault(name, OPEN)

    def end(self, name: str, how: Any) -> None:
        if name not in self.states:
            return
        (done,) = apply(self.machine, end(self.machine, how, name, now_ms=self.now_ms))
        to = COMMITTED if how == COMMIT else ROLLED_BACK
        if self.states[name] in (OPEN, to):
            assert done.state.state == to
            assert done.repeated == (self.states[name] == to)
            self.states[name] = to
        else:
            assert done.reason is Reason.TRANSACTION_ENDED

    def time(self, name: str) -> None:
        self.now_ms += 700
        apply(self.machine, release(self.now_ms, now_ms=self.now_ms))

    def check(self, name: str, last: bool) -> None:
        if name not in self.states:
            return
        planned = check(self.machine, 0 if last else self.now_ms + 2_000, name, now_ms=self.now_ms)
        for column in ("offset", "hour", "global_index"):
            planned.ClearField(column)
        (done,) = apply(self.machine, planned)
        was_open = self.states[name] == OPEN
        assert (done.states[0] is not None) == was_open
        if was_open and last:
            self.states[name] = UNRESOLVED

    def compare(self) -> None:
        apply(self.machine, release(self.now_ms + 100_000, now_ms=self.now_ms + 100_000))
        found = {name: state(self.machine, name).state for name in self.states}
        assert found == self.states
        counts = [*self.states.values()].count
        assert ready(self.machine) == counts(COMMITTED)
        assert ready(self.machine, "dlq.transactions.t") == counts(UNRESOLVED)
        assert len(self.machine.transactions) == counts(OPEN)
        asked = {  # each open one has a check that is due by now, handed over by nobody
            (int(unit["hour"]), int(unit["global_index"]))
            for unit in self.machine.queues.checks().read(0, self.machine.queues.checks().units)
        }
        for name in self.states:
            if self.states[name] == OPEN:
                one = state(self.machine, name)
                assert (one.place_hour, one.place_index) in asked


STEPS: dict[str, Callable[[Model, str], None]] = {
    "prepare": Model.prepare,
    "commit": lambda model, name: model.end(name, COMMIT),
    "rollback": lambda model, name: model.end(name, ROLLBACK),
    "time": Model.time,
    "check": lambda model, name: model.check(name, last=False),
    "last": lambda model, name: model.check(name, last=True),
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(STEPS)), st.sampled_from("abc")), max_size=25),
    st.integers(0, 25),
)
def test_any_steps_come_to_what_the_definition_says_also_after_a_checkpoint(
    steps: list[tuple[str, str]], at: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with machine(Path(folder)) as opened:
            model = Model(raised(opened))
            for step, name in steps[:at]:
                STEPS[step](model, name)
            opened.write(opened.capture())
            digest = opened.digest()
        with machine(Path(folder)) as again:
            assert again.digest() == digest
            model.machine = again
            for step, name in steps[at:]:
                STEPS[step](model, name)
            model.compare()
