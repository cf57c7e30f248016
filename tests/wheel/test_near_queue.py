"""The near queue gives what it holds in the order of due times and indices, whenever it has come."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tarry.wheel.near_queue import ENTRY, NearQueue
from tarry.wheel.state import Rows
from tests import turns

SECOND = 1_000
BATCH = 4_096


def entries(due_ms: np.ndarray, first: int) -> Rows:
    made: Rows = np.zeros(len(due_ms), ENTRY)
    made["due_ms"] = due_ms
    made["global_index"] = np.arange(first, first + len(due_ms))
    return made


def queue_of_one_second(loaded: Rows) -> NearQueue:
    queue = NearQueue(SECOND)
    queue.load(SECOND + 1, loaded)
    return queue


@pytest.mark.parametrize(("seed", "spread_ms"), [(1, 1), (2, 3), (3, 1_000)])
def test_what_comes_in_parts_of_any_size_is_given_in_order(seed: int, spread_ms: int) -> None:
    rng = np.random.default_rng(seed)
    held = entries(SECOND * 1_000 + rng.integers(0, spread_ms, 50_000), 0)
    queue, first, given = queue_of_one_second(held), len(held), []
    for _ in range(300):
        part = entries(SECOND * 1_000 + rng.integers(0, spread_ms, int(rng.choice([1, 7, 5_000]))), first)
        first += len(part)
        queue.add(part)
        held = np.concatenate((held, part))
        if rng.random() < 0.3:
            limit = int(rng.choice([1, 256, 10_000]))
            until_ms = SECOND * 1_000 + int(rng.integers(0, spread_ms))
            held = held[np.argsort(held["due_ms"], kind="stable")]  # what came later has higher indices
            expected = held[: min(limit, int(np.searchsorted(held["due_ms"], until_ms, side="right")))]
            head = queue.head(until_ms, limit)
            assert head.tolist() == expected.tolist()
            count = int(rng.integers(0, len(head) + 1))
            queue.drop(count)
            held = held[count:]
            assert queue.count == len(held)
            if len(held):
                assert queue.first_due_ms() == held["due_ms"].min()
            given.append(count)
    assert sum(given) > 10_000


def test_no_turn_pays_for_a_whole_crowd_that_has_come_for_one_second() -> None:
    count = 1_000_000
    due_ms = SECOND * 1_000 + np.random.default_rng(1).integers(0, 1_000, count)
    held = entries(due_ms, 0)
    assert min(longest_s(held) for _ in turns.tries()) < turns.bound_s()


def longest_s(crowd: Rows) -> float:
    """Return the most CPU time that a batch of a crowd takes to come, or a slice of it to go."""
    queue, took_s = queue_of_one_second(crowd[:0]), [time.thread_time()]
    for start in range(0, len(crowd), BATCH):
        queue.add(crowd[start : start + BATCH])
        took_s.append(time.thread_time())
    for _ in range(10):
        queue.drop(len(queue.head(SECOND * 1_000 + 999, 10_000)))
        took_s.append(time.thread_time())
    return float(np.diff(took_s).max())


def test_the_slices_of_one_commit_cost_no_more_for_the_size_of_their_second() -> None:
    runs, slices = crowd_in_runs(120), 8  # 4 million messages
    assert min(slices_s(runs, slices) for _ in turns.tries()) < turns.bound_s() / 2


def crowd_in_runs(count: int) -> list[Rows]:
    """Return a second's messages in so many runs, as a pass over the index finds them."""
    rng, size = np.random.default_rng(4), 32_768
    due_ms = np.sort(SECOND * 1_000 + rng.integers(0, 1_000, (count, size)))
    return [entries(due_ms[run], run * size) for run in range(count)]


def slices_s(runs: list[Rows], slices: int) -> float:
    """Return the most CPU time of so many consecutive slices of 10,000, of 40."""
    queue = NearQueue(SECOND)
    queue.load_second(list(runs))
    took_s, due_ms = [time.thread_time()], []
    for _ in range(40):
        head = queue.head(SECOND * 1_000 + 999, 10_000)
        queue.drop(len(head))
        took_s.append(time.thread_time())
        due_ms.append(head["due_ms"].copy())
    assert bool((np.diff(np.concatenate(due_ms)) >= 0).all())
    return float(np.convolve(np.diff(took_s), np.ones(slices)).max())
