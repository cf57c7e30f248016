"""The predicted lateness is that of a queue that is played message by message."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.services.predicted_lateness import backlogs, lateness_ms, longest

STEP_MS = 1_000


def played(coming: list[int], first_ms: int, waiting: int, per_s: float) -> list[float]:
    """Return how late the last message due by the end of each step is released, one after another.

    Messages are due evenly within their step, the last at its end; each takes its share of a second.
    """
    free_ms, begin_ms, late = waiting * 1_000 / per_s, 0.0, list[float]()
    for count, length_ms in zip(coming, [first_ms, *[STEP_MS] * len(coming)], strict=False):
        for number in range(count):
            due_ms = begin_ms + length_ms * (number + 1) / count
            free_ms = max(free_ms, due_ms) + 1_000 / per_s
        begin_ms += length_ms
        late.append(max(0.0, free_ms - begin_ms))
    return late


@given(
    coming=st.lists(st.integers(0, 40) | st.sampled_from([0, 300]), min_size=1, max_size=12),
    first_ms=st.integers(1, STEP_MS),
    waiting=st.integers(0, 200),
    per_s=st.integers(1, 100),
)
def test_it_is_that_of_a_queue_played_message_by_message(
    coming: list[int], first_ms: int, waiting: int, per_s: float
) -> None:
    waits = backlogs(np.array(coming), first_ms, STEP_MS, waiting, per_s)
    late_ms = lateness_ms(waits, per_s)
    expected = played(coming, first_ms, waiting, per_s)
    one_ms = 1_000 / per_s  # a message is released as a whole, and a fluid is not
    for told, real in zip(late_ms.tolist(), expected, strict=True):
        assert real - one_ms - 1e-6 <= told <= real + 1


def test_a_crowd_is_late_by_what_it_takes_and_so_is_what_comes_before_it_is_released() -> None:
    waits = backlogs(np.array([0, 2_500, 500, 0, 0]), STEP_MS, STEP_MS, 0, 1_000.0)
    assert waits.tolist() == [0, 1_500, 1_000, 0, 0]
    assert lateness_ms(waits, 1_000.0).tolist() == [0, 1_500, 1_000, 0, 0]


def test_what_is_overdue_already_comes_first_and_the_present_second_has_less_time() -> None:
    waits = backlogs(np.array([100, 0]), 250, STEP_MS, 1_000, 1_000.0)
    assert lateness_ms(waits, 1_000.0).tolist() == [850, 0]


def test_a_bucket_has_the_longest_of_its_steps_and_the_first_has_what_is_left_of_it() -> None:
    steps = np.array([5, 1, 9, 2, 4])
    assert longest(steps, 1, 2).tolist() == [5, 9, 4]
    assert longest(steps, 2, 2).tolist() == [5, 9, 4]
    assert longest(steps, 3, 3).tolist() == [9, 4]


def test_nothing_to_come_is_nothing_late() -> None:
    assert len(longest(lateness_ms(backlogs(np.empty(0, np.int64), 1, 1, 0, 1.0), 1.0), 1, 1)) == 0
