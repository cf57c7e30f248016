"""The predicted lateness is that of a queue that is played message by message."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.node.services.predicted_lateness import Releases, lateness_ms, longest

STEP_MS = 1_000


def played(coming: list[int], first_ms: int, waiting: int, releases: Releases) -> list[float]:
    """Return how late the last message due by the end of each step is released, one after another."""
    ends = [first_ms + STEP_MS * step for step in range(len(coming))]
    crowds = [step for step, count in enumerate(coming) if count > releases.crowd]
    free_ms, late = waiting * 1_000 / releases.per_s, list[float]()
    for step, count in enumerate(coming):
        begin_ms, is_crowd = ends[step] - STEP_MS, step in crowds
        early = [ends[crowd] - STEP_MS - releases.ahead_ms for crowd in crowds if crowd >= step]
        for number in range(count):
            due_ms = begin_ms if is_crowd else begin_ms + STEP_MS * (number + 1) / count
            free_ms = max(free_ms, 0.0, min([due_ms, *early])) + 1_000 / releases.per_s
        late.append(max(0.0, free_ms - (begin_ms if is_crowd else ends[step])))
    return late


@example(coming=[0, 2, 0, 300], first_ms=1, waiting=0, releases=Releases(3, 10, 1_500))
@example(coming=[0, 6, 0, 300], first_ms=1, waiting=0, releases=Releases(10, 10, 1_500))
@given(
    coming=st.lists(st.integers(0, 40) | st.sampled_from([0, 300]), min_size=1, max_size=12),
    first_ms=st.integers(1, STEP_MS),
    waiting=st.integers(0, 200),
    releases=st.builds(
        Releases, st.integers(1, 100), st.sampled_from([10, 50, 1_000]), st.sampled_from([0, 1_500, 8_000])
    ),
)
def test_it_is_that_of_a_queue_played_message_by_message(
    coming: list[int], first_ms: int, waiting: int, releases: Releases
) -> None:
    told = lateness_ms(np.array(coming), first_ms, STEP_MS, waiting, releases).tolist()
    one_ms = 1_000 / releases.per_s  # a message is released as a whole, and a fluid is not
    for ours, real in zip(told, played(coming, first_ms, waiting, releases), strict=True):
        assert real - one_ms - 1e-6 <= ours <= real + 1


def predicted(coming: list[int], ahead_ms: int, waiting: int = 0, first_ms: int = STEP_MS) -> list[int]:
    releases = Releases(1_000.0, 2_000, ahead_ms)
    told: list[int] = lateness_ms(np.array(coming), first_ms, STEP_MS, waiting, releases).tolist()
    return told


def test_what_is_more_than_the_rate_is_late_and_so_is_what_comes_behind_it() -> None:
    assert predicted([0, 1_900, 500, 0, 0], 0) == [0, 900, 400, 0, 0]


def test_a_crowd_is_begun_with_early_as_far_as_that_is_allowed_and_has_the_time() -> None:
    assert predicted([0, 0, 0, 0, 2_500, 0], 4_000) == [0, 0, 0, 0, 0, 0]
    assert predicted([0, 0, 0, 0, 2_500, 0], 2_000) == [0, 0, 0, 0, 500, 0]
    assert predicted([0, 2_500, 0, 0], 4_000) == [0, 1_500, 0, 0]


def test_what_is_overdue_already_comes_first_and_the_present_second_has_less_time() -> None:
    assert predicted([100, 0], 0, waiting=1_000, first_ms=250) == [850, 0]


def test_a_bucket_has_the_longest_of_its_steps_and_the_first_has_what_is_left_of_it() -> None:
    steps = np.array([5, 1, 9, 2, 4])
    assert longest(steps, 1, 2).tolist() == [5, 9, 4]
    assert longest(steps, 2, 2).tolist() == [5, 9, 4]
    assert longest(steps, 3, 3).tolist() == [9, 4]


def test_nothing_to_come_is_nothing_late() -> None:
    nothing = lateness_ms(np.empty(0, np.int64), 1, 1, 0, Releases(1.0, 1, 1))
    assert len(longest(nothing, 1, 1)) == 0
