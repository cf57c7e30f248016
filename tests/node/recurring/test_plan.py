"""Plans of one schedule: what fires, what is left out, and when to look again."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.node.recurring.plan import (
    AHEAD_MS,
    BYTES_MAX,
    FIRES_MAX,
    MISSED_AFTER_MS,
    WORKED_MAX,
    Look,
    jitter_ms,
    look,
)
from tarry.node.recurring.timing import timing_of
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.recurring_table import NONE_COMES

FIRED, SKIPPED = pb.FIRE_OUTCOME_FIRED, pb.FIRE_OUTCOME_SKIPPED
MISSED, QUEUED = pb.FIRE_OUTCOME_MISSED, pb.FIRE_OUTCOME_QUEUED
MINUTE = 60_000


def looked(
    now_ms: int, settled: bool | None = None, spec: dict[str, Any] | None = None, **state: Any
) -> Look:
    of = pb.RecurringSpec(**{"interval_ms": MINUTE, **(spec or {})})
    checkpoint = log_pb.RecurringCheckpoint(**{"number": 7, "changes": 3, "decided_ms": 1, **state})
    return look(checkpoint, of, timing_of(of, 0), now_ms, settled=settled)


def told(found: Look) -> list[tuple[int, int, int]]:
    assert found.plan is not None
    return [(fire.outcome, fire.fire_ms // MINUTE, max(fire.fires, 1)) for fire in found.plan.fires]


def test_what_was_changed_is_planned_without_a_fire() -> None:
    plan = looked(10).plan
    assert plan is not None
    assert (plan.number, plan.changes, plan.decided_ms, plan.next_ms) == (7, 3, 1, MINUTE)
    assert not plan.fires


def test_nothing_is_done_before_a_fire_is_near() -> None:
    assert looked(MINUTE - AHEAD_MS - 1, next_ms=MINUTE) == Look(None, MINUTE)
    found = looked(MINUTE - AHEAD_MS, next_ms=MINUTE)
    assert told(found) == [(FIRED, 1, 1)]
    assert found.plan is not None
    assert (found.plan.decided_ms, found.plan.next_ms, found.plan.fires[0].due_ms) == (
        MINUTE,
        2 * MINUTE,
        MINUTE,
    )


def test_a_promised_fire_stays_whatever_the_zone_says_now() -> None:
    found = looked(MINUTE, next_ms=MINUTE - 7)
    assert found.plan is not None
    assert [fire.fire_ms for fire in found.plan.fires] == [MINUTE - 7, MINUTE]


@pytest.mark.parametrize("state", [{"paused": True}, {"next_ms": NONE_COMES}])
def test_what_is_paused_or_over_is_not_looked_at(state: dict[str, Any]) -> None:
    assert looked(10 * MINUTE, **state) == Look(None)


def test_the_last_fire_says_that_none_comes() -> None:
    found = looked(MINUTE, next_ms=MINUTE, spec={"end_ms": 2 * MINUTE})
    assert found.plan is not None
    assert found.plan.next_ms == NONE_COMES


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (pb.MISSED_POLICY_UNSPECIFIED, [(MISSED, 4, 4), (FIRED, 5, 1), (FIRED, 6, 1)]),
        (pb.MISSED_POLICY_LAST, [(MISSED, 4, 4), (FIRED, 5, 1), (FIRED, 6, 1)]),
        (pb.MISSED_POLICY_ALL, [(FIRED, minute, 1) for minute in range(1, 7)]),
        (pb.MISSED_POLICY_NONE, [(MISSED, 5, 5), (FIRED, 6, 1)]),
    ],
)
def test_fires_that_came_while_nobody_led_follow_the_policy(missed: int, expected: list[Any]) -> None:
    assert told(looked(6 * MINUTE + 30_000, next_ms=MINUTE, spec={"missed": missed})) == expected


def test_a_short_absence_misses_nothing() -> None:
    found = looked(MINUTE + MISSED_AFTER_MS, next_ms=MINUTE, spec={"missed": pb.MISSED_POLICY_NONE})
    assert told(found) == [(FIRED, 1, 1), (FIRED, 2, 1)]
    later = looked(MINUTE + MISSED_AFTER_MS + 1, next_ms=MINUTE, spec={"missed": pb.MISSED_POLICY_NONE})
    assert told(later) == [(MISSED, 1, 1), (FIRED, 2, 1)]


def test_a_long_absence_is_decided_in_pieces_that_agree_with_the_whole() -> None:
    for missed in (pb.MISSED_POLICY_LAST, pb.MISSED_POLICY_NONE, pb.MISSED_POLICY_ALL):
        state, fires = {"decided_ms": 1, "next_ms": MINUTE}, []
        while (plan := looked(200 * MINUTE, spec={"missed": missed}, **state).plan) is not None:
            assert len(plan.fires) <= FIRES_MAX
            fires += [(fire.outcome, fire.fire_ms // MINUTE, max(fire.fires, 1)) for fire in plan.fires]
            state = {"decided_ms": plan.decided_ms, "next_ms": plan.next_ms}
        count = sum(number for _, _, number in fires)
        assert count == 200
        fired = [minute for outcome, minute, _ in fires if outcome == FIRED]
        all_fire = missed == pb.MISSED_POLICY_ALL
        late = 199 if missed == pb.MISSED_POLICY_NONE else 198
        assert fired == list(range(1 if all_fire else late, 201))


@pytest.mark.parametrize("missed", pb.MissedPolicy.values())
@pytest.mark.parametrize("end_ms", [0, 700 * MINUTE, 700 * MINUTE + 1, 5_000 * MINUTE])
def test_what_an_interval_misses_is_left_out_at_once_as_it_would_be_one_by_one(
    missed: int, end_ms: int
) -> None:
    """The same times by a cron expression are looked at one after another."""
    found = []
    for timing in ({"interval_ms": MINUTE}, {"interval_ms": 0, "cron": "* * * * *"}):
        state: dict[str, Any] = {"decided_ms": 1, "next_ms": MINUTE}
        fires: list[list[int]] = []
        plans = 0
        spec = {**timing, "missed": missed, "end_ms": end_ms}
        while (plan := looked(900 * MINUTE + 7, spec=spec, **state).plan) is not None:
            plans += 1
            for fire in plan.fires:
                if fires and fire.outcome == MISSED and fires[-1][0] == MISSED:
                    fires[-1] = [MISSED, fire.fire_ms, fires[-1][2] + fire.fires]
                else:
                    fires.append([fire.outcome, fire.fire_ms, max(fire.fires, 1)])
            state = {"decided_ms": plan.decided_ms, "next_ms": plan.next_ms}
        found.append((fires, state))
        assert plans <= (16 if missed == pb.MISSED_POLICY_ALL else 3)
    assert found[0] == found[1]


def test_a_month_without_a_leader_is_one_plan_of_an_interval_and_few_of_an_expression() -> None:
    month_ms = 31 * 86_400_000
    found = looked(month_ms, spec={"interval_ms": 1_000}, next_ms=1_000)
    assert found.plan is not None
    assert found.plan.next_ms == month_ms + 1_000
    # of the minute before now all fire, and one more
    assert found.plan.fires[0].fires == month_ms // 1_000 - 62
    found = looked(month_ms, spec={"interval_ms": 0, "cron": "* * * * * *"}, next_ms=1_000)
    assert found.plan is not None
    assert (found.plan.fires[0].fires, found.worked) == (WORKED_MAX, WORKED_MAX)


def test_the_records_of_a_plan_have_a_bound() -> None:
    for size_bytes, fires in ((BYTES_MAX // 4, 4), (BYTES_MAX // 4 + 1, 3), (2 * BYTES_MAX, 1)):
        spec = {"missed": pb.MISSED_POLICY_ALL}
        found = looked(200 * MINUTE, spec=spec, next_ms=MINUTE, record=b"x" * size_bytes)
        assert found.plan is not None
        assert len(found.plan.fires) == fires
        assert found.plan.next_ms == (fires + 1) * MINUTE
        assert found.size_bytes == fires * size_bytes


OVERLAPPING = {"decided_ms": MINUTE, "next_ms": 2 * MINUTE, "has_last": True}


def test_an_overlap_policy_asks_whether_the_last_is_settled() -> None:
    for overlap in (pb.OVERLAP_POLICY_SKIP, pb.OVERLAP_POLICY_QUEUE):
        spec = {"overlap": overlap}
        assert looked(2 * MINUTE, spec=spec, **OVERLAPPING).needs_settled
        assert told(looked(2 * MINUTE, spec=spec, settled=True, **OVERLAPPING)) == [(FIRED, 2, 1)]
        # until the fire's time it may be settled
        early = looked(2 * MINUTE - 1, spec=spec, settled=False, **OVERLAPPING)
        assert early == Look(None, 2 * MINUTE)
    skips = {"overlap": pb.OVERLAP_POLICY_SKIP}
    assert told(looked(2 * MINUTE, spec=skips, settled=False, **OVERLAPPING)) == [(SKIPPED, 2, 1)]
    queues = {"overlap": pb.OVERLAP_POLICY_QUEUE}
    assert told(looked(2 * MINUTE, spec=queues, settled=False, **OVERLAPPING)) == [(QUEUED, 2, 1)]
    assert told(looked(2 * MINUTE, **OVERLAPPING)) == [(FIRED, 2, 1)]


def test_the_first_fire_overlaps_nothing() -> None:
    assert told(looked(MINUTE, spec={"overlap": pb.OVERLAP_POLICY_SKIP}, next_ms=MINUTE)) == [(FIRED, 1, 1)]


def test_one_fire_waits_and_those_behind_it_are_skipped() -> None:
    queues = {"overlap": pb.OVERLAP_POLICY_QUEUE}
    waiting = {"decided_ms": 2 * MINUTE, "next_ms": 3 * MINUTE, "has_last": True, "waiting_ms": 2 * MINUTE}
    assert looked(2 * MINUTE + 9, spec=queues, **waiting).needs_settled
    assert looked(2 * MINUTE + 9, spec=queues, settled=False, **waiting) == Look(None, 3 * MINUTE)
    assert told(looked(3 * MINUTE, spec=queues, settled=False, **waiting)) == [(SKIPPED, 3, 1)]
    settled = looked(2 * MINUTE + 9, spec=queues, settled=True, **waiting)
    assert told(settled) == [(FIRED, 2, 1)]
    assert settled.plan is not None
    assert (settled.plan.decided_ms, settled.plan.next_ms) == (2 * MINUTE, 3 * MINUTE)
    over = {**waiting, "next_ms": NONE_COMES}
    assert told(looked(9 * MINUTE, spec=queues, settled=True, **over)) == [(FIRED, 2, 1)]


def test_of_two_fires_at_once_the_second_overlaps_the_first() -> None:
    spec = {"overlap": pb.OVERLAP_POLICY_SKIP, "interval_ms": 1_000}
    found = looked(3_000, spec=spec, decided_ms=1, next_ms=1_000)
    assert found.plan is not None
    assert [(fire.outcome, fire.fires) for fire in found.plan.fires] == [(FIRED, 0), (SKIPPED, 2)]


def test_jitter_is_the_same_for_a_fire_and_ends_before_the_next() -> None:
    spread = {jitter_ms(number, 5, 1_000) for number in range(200)}
    assert min(spread) >= 0
    assert max(spread) <= 1_000
    assert len(spread) > 100
    assert jitter_ms(1, 5, 1_000) == jitter_ms(1, 5, 1_000)
    assert jitter_ms(3, 5, 0) == 0
    for number in range(100):
        found = looked(MINUTE, number=number, next_ms=MINUTE, spec={"jitter_ms": 2**32 - 1})
        assert found.plan is not None
        assert MINUTE <= found.plan.fires[0].due_ms < 2 * MINUTE
