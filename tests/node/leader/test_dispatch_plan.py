"""The rhythm of releases, without a clock."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.config import Dispatch
from tarry.node.leader.dispatcher import Crowd, Plan, ReleaseCost, crowd, plan

COMMIT_MS, PERIOD_MS = 50, 50


def test_nothing_pending_sleeps_until_woken() -> None:
    assert plan(1_000, 500, None, COMMIT_MS, PERIOD_MS) == Plan(None, None)


def test_far_away_sleeps_until_the_commit_allowance_before_the_due_time() -> None:
    assert plan(1_000, 500, 10_000, COMMIT_MS, PERIOD_MS) == Plan(None, 8_950)


def test_near_is_released_one_period_and_the_allowance_ahead() -> None:
    assert plan(1_000, 500, 1_040, COMMIT_MS, PERIOD_MS) == Plan(1_100, None)


def test_a_steady_stream_needs_one_release_a_period() -> None:
    frontier, releases = 0, 0
    for now in range(1_000, 2_000):
        todo = plan(now, frontier, max(frontier + 1, now), COMMIT_MS, PERIOD_MS)
        if todo.until_ms is not None:
            frontier, releases = todo.until_ms, releases + 1
    assert releases == 20


@given(now=st.integers(0, 10**6), frontier=st.integers(0, 10**6), wait=st.integers(1, 10**6))
def test_a_plan_releases_what_is_due_within_the_allowance_or_sleeps_until_it_is(
    now: int, frontier: int, wait: int
) -> None:
    next_due = frontier + wait
    todo = plan(now, frontier, next_due, COMMIT_MS, PERIOD_MS)
    if todo.until_ms is None:
        assert todo.sleep_ms is not None
        assert todo.sleep_ms > 0
        assert now + todo.sleep_ms <= max(next_due, now + 1)
    else:
        assert frontier < todo.until_ms <= now + PERIOD_MS + COMMIT_MS


CROWDED = Dispatch(period_ms=50, commit_ms=50, slice_messages_max=1_000, ahead_ms_max=5_000)


def test_a_crowded_second_is_begun_with_so_early_that_it_is_released_when_it_begins() -> None:
    pending = np.array([10, 0, 20_000, 1_000, 5_000], np.uint32)
    ahead = crowd(100, pending, 99_000, ReleaseCost(per_s=10_000), CROWDED)
    assert ahead == Crowd(102_000 - 50 - 2_001, 102_999)
    assert plan(ahead.start_ms - 400, 99_000, 100_500, COMMIT_MS, PERIOD_MS, ahead) == Plan(None, 400)
    assert plan(ahead.start_ms, 99_000, 100_500, COMMIT_MS, PERIOD_MS, ahead) == Plan(102_999, None)
    assert plan(ahead.start_ms - 400, 99_000, 99_590, COMMIT_MS, PERIOD_MS, ahead) == Plan(99_649, None)
    released = crowd(100, pending, 102_999, ReleaseCost(per_s=10_000), CROWDED)
    assert released is not None
    assert released.until_ms == 104_999


def test_no_second_is_begun_with_earlier_than_allowed_and_none_without_a_crowd() -> None:
    assert crowd(100, np.array([1_000, 1_000], np.uint32), 0, ReleaseCost(per_s=10), CROWDED) is None
    ahead = crowd(100, np.array([0, 10**6], np.uint32), 0, ReleaseCost(per_s=10), CROWDED)
    assert ahead == Crowd(101_000 - 50 - 5_000, 101_999)


def test_a_release_is_allowed_what_commits_have_been_seen_to_take_within_bounds() -> None:
    settings = Dispatch(commit_ms=50, commit_ms_max=500)
    cost = ReleaseCost()
    assert cost.allowed(settings) == 50
    cost.took(1, 0.2, full=False)
    assert cost.allowed(settings) == 300
    for _ in range(34):
        cost.took(1, 0.01, full=False)
    assert 140 < cost.allowed(settings) < 160
    cost.took(1, 0.4, full=False)
    assert cost.allowed(settings) == 500
    for _ in range(200):
        cost.took(1, 0.01, full=False)
    assert cost.allowed(settings) == 50


def test_a_new_leader_waits_for_a_clock_behind_the_frontier_and_releases_a_backlog_at_once() -> None:
    assert plan(1_000, 5_000, 6_000, COMMIT_MS, PERIOD_MS) == Plan(None, 4_950)
    assert plan(5_000, 1_000, 2_000, COMMIT_MS, PERIOD_MS) == Plan(5_100, None)
