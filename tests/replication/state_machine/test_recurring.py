"""Schedules that recur, as applied: changes, fires, and plans that were made before a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.ledger.fires import FireDetail, fire_in
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.record_times import times
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Changed, Fired, Recurred
from tarry.replication.state_machine.recurring import JITTERED_MAX, _fired_before
from tarry.replication.state_machine.recurring_table import HISTORY, NONE_COMES
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import MessageState
from tests.replication.commands import NOW_MS, record, release
from tests.replication.state_machine.test_machine import fresh, machine
from tests.replication.state_machine.test_reschedules import RAISE

__all__ = ["fresh"]

FIRED, TRIGGERED = pb.FIRE_OUTCOME_FIRED, pb.FIRE_OUTCOME_TRIGGERED
SKIPPED, MISSED = pb.FIRE_OUTCOME_SKIPPED, pb.FIRE_OUTCOME_MISSED
QUEUED, CANCELLED = pb.FIRE_OUTCOME_QUEUED, pb.FIRE_OUTCOME_CANCELLED


def apply(opened: Machine, *payloads: Any) -> list[Any]:
    return opened.apply(opened.applied_index + 1, 1, [encode(payload) for payload in payloads])


def put(name: str = "s", topic: str = "t", now_ms: int = NOW_MS, **more: Any) -> log_pb.RecurringCommand:
    spec = pb.RecurringSpec(topic=topic, interval_ms=more.pop("interval_ms", 1_000))
    told = {"record": record(b"x"), "spec": spec.SerializeToString(), "now_ms": now_ms, **more}
    return log_pb.RecurringCommand(name=name, change=log_pb.RECURRING_CHANGE_PUT, **told)


def change(kind: str, name: str = "s", now_ms: int = NOW_MS, **more: Any) -> log_pb.RecurringCommand:
    changes = log_pb.RecurringChange.Value(f"RECURRING_CHANGE_{kind}")
    return log_pb.RecurringCommand(name=name, change=changes, now_ms=now_ms, **more)


def fire(
    opened: Machine,
    *fires: tuple[Any, int],
    name: str = "s",
    now_ms: int = NOW_MS,
    next_ms: int | None = None,
    **more: Any,
) -> log_pb.FireCommand:
    """A plan made of the schedule as it is now."""
    entry = opened.recurring.named(name)
    assert entry is not None
    decided_ms = max((fire_ms for _, fire_ms in fires), default=NOW_MS)
    plan = {
        "number": entry.number,
        "changes": entry.changes,
        "decided_ms": decided_ms,
        "next_ms": decided_ms + 1_000 if next_ms is None else next_ms,
        "fires": [
            log_pb.PlannedFire(outcome=outcome, fire_ms=fire_ms, due_ms=fire_ms) for outcome, fire_ms in fires
        ],
        **more,
    }
    return log_pb.FireCommand(plans=[log_pb.SchedulePlan(**plan)], now_ms=now_ms)


def state(opened: Machine, name: str = "s") -> log_pb.RecurringCheckpoint:
    entry = opened.recurring.named(name)
    assert entry is not None
    return entry.state()


def outcomes(opened: Machine) -> list[int]:
    return [one.outcome for one in state(opened).history]


def raised(opened: Machine) -> Machine:
    opened.apply(1, 1, [RAISE])
    return opened


def test_a_schedule_is_put_and_changed_by_its_name(fresh: Machine) -> None:
    (made,) = apply(raised(fresh), put())
    assert made == Recurred(1, changed=True)
    one = state(fresh)
    assert (one.revision, one.created_ms, one.decided_ms, one.next_ms) == (1, NOW_MS, NOW_MS, 0)
    assert apply(fresh, put(now_ms=NOW_MS + 5)) == [Recurred(1, changed=False)]
    assert apply(fresh, put(interval_ms=2_000, now_ms=NOW_MS + 5)) == [Recurred(1, changed=True)]
    one = state(fresh)
    assert (one.revision, one.created_ms, one.changed_ms, one.decided_ms) == (
        2,
        NOW_MS,
        NOW_MS + 5,
        NOW_MS + 5,
    )


def test_a_put_makes_its_topic_so_that_the_leader_counts_it(fresh: Machine) -> None:
    """Fires ask nobody: made by them, topics of 100,000 schedules would be more than any limit has."""
    apply(raised(fresh), put("a", topic="one"), put("b", topic="two"))
    assert fresh.queues.live == 2
    apply(fresh, put("b", topic="three"), put("b", topic="three"))
    assert fresh.queues.live == 3
    full = put("c", topic="four", schedules_max=2)
    apply(fresh, full)
    assert fresh.queues.find("four") is None


def test_a_change_leaves_a_schedule_of_a_topic_that_its_caller_has_not_asked_about(fresh: Machine) -> None:
    apply(raised(fresh), put("a", topic="mine"), put("b", topic="theirs"))
    for payload in (put("b", topic="mine", topics=["mine"]), change("DELETE", "b", topics=["mine"])):
        (refused,) = apply(fresh, payload)
        assert (refused.reason, refused.retry_ms) == (Reason.OVERLOADED, 10)
    deletes = log_pb.RecurringCommand(
        change=log_pb.RECURRING_CHANGE_DELETE, numbers=[1, 2], topics=["mine"], now_ms=NOW_MS
    )
    assert apply(fresh, deletes) == [Recurred(0, changed=True)]
    assert fresh.recurring.names_from("", 9) == ["b"]
    made, moved = put("a", topic="mine", topics=["mine"]), put("b", topic="mine", topics=["mine", "theirs"])
    assert apply(fresh, made, moved) == [Recurred(3, changed=True), Recurred(2, changed=True)]


def test_below_its_level_nothing_recurs(fresh: Machine) -> None:
    for payload in (put(), log_pb.FireCommand(now_ms=NOW_MS)):
        (refused,) = apply(fresh, payload)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.LEVEL_TOO_LOW


def test_a_change_of_another_revision_is_refused(fresh: Machine) -> None:
    apply(raised(fresh), put(if_revision=0))
    for refused in apply(fresh, put(if_revision=0), put(if_revision=2), change("DELETE", if_revision=3)):
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.RECURRING_CHANGED
        assert refused.facts == {"revision": "1"}
    assert apply(fresh, change("PAUSE", if_revision=1)) == [Recurred(1, changed=True)]


def test_a_fire_is_a_message_and_moves_the_next_one(fresh: Machine) -> None:
    apply(raised(fresh), put())
    (done,) = apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    assert isinstance(done, Fired)
    (last,) = done.last
    assert last is not None
    assert fresh.wheel.state(last.hour, last.global_index) is MessageState.PENDING
    assert fresh.wheel.pending == 1
    one = state(fresh)
    assert one.decided_ms == one.fired_ms == NOW_MS + 1_000
    assert (one.next_ms, one.fired) == (NOW_MS + 2_000, 1)
    (ids, index) = (np.array([number], np.uint32) for number in (last.hour, last.global_index))
    (stored,) = fresh.wheel.read(ids, index)
    assert stored == record(b"x") + times(NOW_MS, NOW_MS)  # the cluster is the producer


def test_a_plan_made_before_another_applies_to_nothing(fresh: Machine) -> None:
    apply(raised(fresh), put())
    twice = fire(fresh, (FIRED, NOW_MS + 1_000))
    for _ in range(2):
        apply(fresh, twice)
    assert fresh.wheel.pending == 1
    assert apply(fresh, twice) == [Fired((None,))]


def test_two_plans_of_one_schedule_in_a_command_count_once(fresh: Machine) -> None:
    apply(raised(fresh), put())
    command = fire(fresh, (FIRED, NOW_MS + 1_000))
    command.plans.add().CopyFrom(command.plans[0])
    (done,) = apply(fresh, command)
    assert [last is None for last in done.last] == [False, True]
    assert fresh.wheel.pending == 1


def test_a_fire_that_was_decided_is_not_planned_again(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    wrong = (
        fire(fresh, (FIRED, NOW_MS + 1_000)),
        fire(fresh, (FIRED, NOW_MS + 500)),
        fire(fresh, (FIRED, NOW_MS + 3_000), (FIRED, NOW_MS + 2_000)),
        fire(fresh, (FIRED, NOW_MS + 2_000), decided_ms=NOW_MS + 1_500),
        fire(fresh, (FIRED, NOW_MS + 2_000), next_ms=NOW_MS + 2_000),
        fire(fresh, (CANCELLED, NOW_MS + 2_000)),
        fire(fresh, (FIRED, NOW_MS + 2_000), decided_ms=0),
        fire(fresh, decided_ms=NOW_MS),
        fire(fresh, (FIRED, 0), decided_ms=NOW_MS + 1_000, next_ms=0),  # nothing waits
    )
    for command in wrong:
        assert apply(fresh, command) == [Fired((None,))]
    assert fresh.wheel.pending == 1


def test_a_pause_before_a_plan_leaves_nothing_of_it(fresh: Machine) -> None:
    apply(raised(fresh), put())
    planned = fire(fresh, (FIRED, NOW_MS + 1_000))
    assert apply(fresh, change("PAUSE"), planned) == [Recurred(1, changed=True), Fired((None,))]
    assert apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000))) == [Fired((None,))]
    assert fresh.wheel.pending == 0


def test_a_pause_behind_a_plan_cancels_its_message_and_the_fire_is_still_to_come(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 2_000)))
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 1_600))
    assert fresh.wheel.pending == 1
    one = state(fresh)
    assert (one.fired, one.fired_ms, one.decided_ms) == (1, NOW_MS + 1_000, NOW_MS + 1_999)
    assert outcomes(fresh) == [FIRED, FIRED, CANCELLED]
    apply(fresh, change("RESUME", now_ms=NOW_MS + 1_700))
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 2_000)))
    assert fresh.wheel.pending == 2


def test_a_pause_leaves_a_fire_that_was_released(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    fresh.apply(fresh.applied_index + 1, 1, [release(NOW_MS + 1_000)])
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 990))
    apply(fresh, change("RESUME", now_ms=NOW_MS + 995))
    assert state(fresh).decided_ms == NOW_MS + 1_000  # it does not fire again
    assert fresh.queues.of("t").units == 1


def test_what_lay_in_a_pause_is_decided_as_it_ends(fresh: Machine) -> None:
    apply(raised(fresh), put(), change("PAUSE"), change("RESUME", now_ms=NOW_MS + 10_000))
    one = state(fresh)
    assert (one.paused, one.decided_ms, one.next_ms, one.revision) == (False, NOW_MS + 10_000, 0, 3)


def test_a_change_plans_anew_from_what_has_fired(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    fresh.apply(fresh.applied_index + 1, 1, [release(NOW_MS + 1_000)])
    apply(fresh, put(interval_ms=500, now_ms=NOW_MS + 900))
    assert state(fresh).decided_ms == NOW_MS + 1_000


def test_a_change_leaves_a_message_whose_fire_has_come(fresh: Machine) -> None:
    apply(raised(fresh), put())
    late = fire(fresh, (FIRED, NOW_MS + 1_000))
    late.plans[0].fires[0].due_ms = NOW_MS + 1_900  # by its jitter
    apply(fresh, late, put(interval_ms=5_000, now_ms=NOW_MS + 1_100))
    assert fresh.wheel.pending == 1
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 1_200))
    assert fresh.wheel.pending == 0


@pytest.mark.parametrize("ending", ["PAUSE", "DELETE"])
def test_a_pause_cancels_earlier_fires_that_by_their_jitter_are_not_due_yet(
    fresh: Machine, ending: str
) -> None:
    apply(raised(fresh), put())
    for number, due_ms in enumerate((1_500, 2_900, 3_950), 1):
        one = fire(fresh, (FIRED, NOW_MS + number * 1_000))
        one.plans[0].fires[0].due_ms = NOW_MS + due_ms
        apply(fresh, one)
    before = state(fresh)
    assert (before.fired, before.fired_ms) == (3, NOW_MS + 3_000)
    apply(fresh, change(ending, now_ms=NOW_MS + 2_600))
    assert fresh.wheel.pending == 1  # due before, and about to be released
    if ending == "PAUSE":
        one = state(fresh)
        assert (one.fired, one.decided_ms) == (1, NOW_MS + 2_999)
        assert outcomes(fresh) == [FIRED] * 3 + [CANCELLED] * 2
        apply(fresh, change("RESUME", now_ms=NOW_MS + 2_700))
        apply(fresh, fire(fresh, (FIRED, NOW_MS + 3_000)))
        assert (state(fresh).fired, fresh.wheel.pending) == (2, 2)


def test_a_jittered_fire_is_cancelled_however_many_fires_came_behind_it(fresh: Machine) -> None:
    apply(raised(fresh), put())
    late = fire(fresh, (FIRED, NOW_MS + 1_000))
    late.plans[0].fires[0].due_ms = NOW_MS + 50_000
    apply(fresh, late)
    for second in range(2, 2 + 2 * HISTORY):
        at_ms = NOW_MS + 1_000 * second
        apply(fresh, fire(fresh, (FIRED, at_ms), now_ms=at_ms - 1))
        fresh.apply(fresh.applied_index + 1, 1, [release(at_ms)])
    assert (len(state(fresh).history), fresh.wheel.pending) == (HISTORY, 1)
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 40_000))
    assert fresh.wheel.pending == 0


def test_of_the_fires_that_are_not_due_yet_a_bounded_number_is_kept(fresh: Machine) -> None:
    apply(raised(fresh), put())
    for second in range(1, 50):
        late = fire(fresh, (FIRED, NOW_MS + 1_000 * second), now_ms=NOW_MS + 1_000 * second - 1)
        late.plans[0].fires[0].due_ms = NOW_MS + 1_000_000
        apply(fresh, late)
    assert len(state(fresh).history) == HISTORY + JITTERED_MAX
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000_000), now_ms=NOW_MS + 1_000_000))
    assert len(state(fresh).history) == HISTORY  # all of them are due


def test_of_two_fires_that_are_cancelled_the_one_before_them_is_the_last(fresh: Machine) -> None:
    apply(raised(fresh), put())
    for second, due_ms in enumerate((1_000, 2_000, 9_000, 9_500), 1):
        one = fire(fresh, (FIRED, NOW_MS + 1_000 * second))
        one.plans[0].fires[0].due_ms = NOW_MS + due_ms
        apply(fresh, one)
    fresh.apply(fresh.applied_index + 1, 1, [release(NOW_MS + 2_000)])
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 4_100))
    one = state(fresh)
    assert outcomes(fresh) == [FIRED] * 4 + [CANCELLED] * 2
    assert (one.fired_ms, one.fired_before_ms) == (NOW_MS + 2_000, NOW_MS + 1_000)


def test_a_fire_that_was_cancelled_and_has_fired_again_counts_as_one_before() -> None:
    entries = [(CANCELLED, 2), (FIRED, 1), (FIRED, 2), (FIRED, 3), (CANCELLED, 3), (FIRED, 4)]  # 2: twice
    history = [log_pb.FireCheckpoint(outcome=outcome, fire_ms=fire_ms) for outcome, fire_ms in entries]
    one = log_pb.RecurringCheckpoint(history=history)
    assert [_fired_before(one, fire_ms) for fire_ms in (4, 3, 2, 1)] == [2, 2, 1, 0]


def test_a_triggered_message_leaves_the_next_fire_and_stays_in_a_pause(fresh: Machine) -> None:
    apply(raised(fresh), put(), change("PAUSE"))
    triggered = fire(fresh, (TRIGGERED, NOW_MS), decided_ms=0, next_ms=0)
    (done,) = apply(fresh, triggered)
    assert done.last[0] is not None
    one = state(fresh)
    assert (one.triggered, one.fired, one.decided_ms, one.paused) == (1, 0, NOW_MS, True)
    apply(fresh, change("RESUME"), change("PAUSE"))
    assert fresh.queues.of("t").units + fresh.wheel.pending == 1
    assert apply(fresh, triggered) == [Fired((None,))]


def test_a_fire_under_a_trigger_is_cancelled_by_a_pause(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    apply(fresh, fire(fresh, (TRIGGERED, NOW_MS), decided_ms=0, next_ms=0))
    apply(fresh, change("PAUSE"))
    assert outcomes(fresh) == [FIRED, TRIGGERED, CANCELLED]
    assert state(fresh).has_last  # the triggered one


def test_a_pause_cancels_the_last_fire_however_often_it_was_triggered_since(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)), change("PAUSE"), change("RESUME"))
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))  # the same fire's second message
    for number in range(2 * HISTORY):
        apply(fresh, fire(fresh, (TRIGGERED, NOW_MS + number), decided_ms=0, next_ms=0))
    assert outcomes(fresh) == [FIRED, *[TRIGGERED] * (HISTORY - 1)]
    pending = fresh.wheel.pending
    apply(fresh, change("PAUSE"))
    assert fresh.wheel.pending == pending - 1
    assert outcomes(fresh)[-1] == CANCELLED
    assert len(state(fresh).history) == HISTORY


def test_a_fire_that_waited_is_counted_behind_those_that_were_skipped(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (QUEUED, NOW_MS + 1_000), (SKIPPED, NOW_MS + 2_000)))
    apply(fresh, change("PAUSE", now_ms=NOW_MS + 2_500))
    last = state(fresh).history[-1]
    assert (last.outcome, last.fire_ms, last.fires) == (SKIPPED, NOW_MS + 2_000, 2)


def test_a_queued_fire_fires_once_though_it_was_decided(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000)))
    apply(fresh, fire(fresh, (QUEUED, NOW_MS + 2_000), (SKIPPED, NOW_MS + 3_000)))
    assert state(fresh).waiting_ms == NOW_MS + 2_000
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 2_000), decided_ms=NOW_MS + 3_000, next_ms=NOW_MS + 4_000))
    one = state(fresh)
    assert (one.waiting_ms, one.fired, one.skipped, one.next_ms) == (0, 2, 1, NOW_MS + 4_000)
    again = fire(fresh, (FIRED, NOW_MS + 2_000), decided_ms=NOW_MS + 3_000, next_ms=NOW_MS + 4_000)
    assert apply(fresh, again) == [Fired((None,))]


def test_a_pause_drops_a_queued_fire_and_counts_it(fresh: Machine) -> None:
    apply(raised(fresh), put())
    apply(fresh, fire(fresh, (QUEUED, NOW_MS + 1_000)), change("PAUSE", now_ms=NOW_MS + 1_500))
    one = state(fresh)
    assert (one.waiting_ms, one.skipped) == (0, 1)


def test_what_is_left_out_one_after_another_has_one_entry(fresh: Machine) -> None:
    apply(raised(fresh), put())
    for second in range(1, 40):
        apply(fresh, fire(fresh, (MISSED, NOW_MS + 1_000 * second)))
    one = state(fresh)
    assert [(entry.outcome, entry.fires) for entry in one.history] == [(MISSED, 39)]
    assert one.missed == 39
    for second in range(40, 60):
        at_ms = NOW_MS + 1_000 * second
        apply(fresh, fire(fresh, (FIRED, at_ms), now_ms=at_ms - 1))
    assert len(state(fresh).history) == HISTORY


def test_counts_beyond_all_bounds_do_not_end_a_replica(fresh: Machine) -> None:
    apply(raised(fresh), put())
    for second in range(1, 5):
        command = fire(fresh, (MISSED, NOW_MS + 1_000 * second))
        command.plans[0].fires[0].fires = 2**64 - 1
        apply(fresh, command)
    assert state(fresh).missed > 2**32


def test_limits_hold_for_what_is_created_or_grows(fresh: Machine) -> None:
    apply(raised(fresh), put("a", schedules_max=1))
    (count,) = apply(fresh, put("b", schedules_max=1))
    assert count.reason is Reason.TOO_MANY_RECURRING
    assert apply(fresh, put("a", interval_ms=2_000, schedules_max=1)) == [Recurred(1, changed=True)]
    size = fresh.recurring.bytes
    assert apply(fresh, put("b", bytes_max=2 * size)) == [Recurred(2, changed=True)]
    (full,) = apply(fresh, put("c", bytes_max=2 * size))
    assert full.reason is Reason.TOO_MANY_RECURRING
    assert apply(fresh, put("b", record=b"", bytes_max=1)) == [Recurred(2, changed=True)]
    apply(fresh, change("DELETE", "a"), change("DELETE", "b"))
    assert (len(fresh.recurring), fresh.recurring.bytes) == (0, 0)


def test_a_deleted_schedule_is_gone_and_its_pending_fire_with_it(fresh: Machine) -> None:
    apply(raised(fresh), put())
    planned = fire(fresh, (FIRED, NOW_MS + 1_000))
    apply(fresh, planned, change("DELETE"))
    assert fresh.wheel.pending == 0
    (refused,) = apply(fresh, change("PAUSE"))
    assert refused.reason is Reason.RECURRING_UNKNOWN
    assert apply(fresh, put()) == [Recurred(2, changed=True)]  # of another number
    assert apply(fresh, planned) == [Fired((None,))]


def test_schedules_go_with_their_topic(fresh: Machine) -> None:
    apply(raised(fresh), *(put(f"s{number}", topic=f"t{number % 2}") for number in range(200)))
    apply(fresh, fire(fresh, (FIRED, NOW_MS + 1_000), name="s0"))
    (gone,) = apply(fresh, log_pb.DeleteTopicCommand(topic="t0", now_ms=NOW_MS))
    assert isinstance(gone, Changed)
    assert gone.recurring == 100
    assert len(fresh.recurring) == 100
    assert fresh.recurring.names_from("", 3) == ["s1", "s101", "s103"]
    assert fresh.recurring.numbers_of("t0") == []
    apply(fresh, put("s1", topic="t3"))
    assert (len(fresh.recurring.numbers_of("t1")), fresh.recurring.numbers_of("t3")) == (99, [2])
    rest = fresh.recurring.numbers_of("t1")
    many = log_pb.RecurringCommand(
        change=log_pb.RECURRING_CHANGE_DELETE, numbers=[*rest, rest[0], 7_777], now_ms=NOW_MS
    )
    assert apply(fresh, many, many) == [Recurred(0, changed=True), Recurred(0, changed=False)]
    assert fresh.recurring.names_from("", 9) == ["s1"]


def test_what_is_no_schedule_is_refused_by_every_replica(fresh: Machine) -> None:
    wrong = (put(numbers=[1]), put(""), put(topic=""), put(spec=b"\xff"), change("UNSPECIFIED"))
    apply(raised(fresh), put())
    for refused in apply(fresh, *wrong):
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.RECURRING_INVALID


def test_rows_tell_of_which_fire_a_message_is(fresh: Machine) -> None:
    fresh.events.wanted = True
    apply(raised(fresh), put())
    both = fire(fresh, (FIRED, NOW_MS + 1_000), (FIRED, NOW_MS + 2_000))
    apply(fresh, both)
    apply(fresh, fire(fresh, (TRIGGERED, NOW_MS), decided_ms=0, next_ms=0))
    apply(fresh, change("PAUSE"))
    events = [event for event in fresh.take_events() if event.kind is not Kind.RELEASED]
    assert [fire_in(event.detail) for event in events] == [
        FireDetail(1, "s", NOW_MS + 1_000, 0),
        FireDetail(1, "s", NOW_MS + 2_000, NOW_MS + 1_000),
        FireDetail(1, "s", None),
        None,
        None,
    ]
    assert [event.kind for event in events] == [Kind.SCHEDULED] * 3 + [Kind.CANCELLED] * 2
    assert all(event.n == 1 for event in events)


def test_a_restart_finds_all_schedules_and_goes_on(tmp_path: Path) -> None:
    with machine(tmp_path) as opened:
        apply(raised(opened), put("b"), put("a", topic="t2"), change("PAUSE", "a"))
        apply(opened, fire(opened, (FIRED, NOW_MS + 1_000), name="b", next_ms=NONE_COMES))
        apply(opened, put("c"), change("DELETE", "c"))
        digest = opened.digest()
        opened.write(opened.capture())
    with machine(tmp_path) as opened:
        assert opened.digest() == digest
        assert opened.recurring.names_from("", 9) == ["a", "b"]
        assert state(opened, "a").paused
        assert state(opened, "b").fired == 1
        assert apply(opened, put("d")) == [Recurred(4, changed=True)]
        assert opened.recurring.take_changed() == [4]


def test_replicas_with_and_without_a_restart_have_one_digest(tmp_path: Path) -> None:
    with machine(tmp_path / "one") as one, machine(tmp_path / "two") as two:
        for opened in (one, two):
            apply(raised(opened), put("a"), put("b"))
        assert one.digest() == two.digest()
        apply(one, change("PAUSE", "a"))
        apply(two, change("PAUSE", "b"))
        assert one.digest() != two.digest()
