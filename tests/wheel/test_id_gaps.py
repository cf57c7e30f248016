"""Ids follow from places, and places from ids, whatever gaps lie between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.wheel.id_gaps import GAP_MAX, GAP_MIN, TOTAL_MAX, IdGaps, gap_of
from tarry.wheel.state import HOUR_MS, NONE, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append

HOURS = range(5)
Growth = list[tuple[int, dict[int, int]]]
"""Of each beginning the size of its gap, and how many messages hours have got since the one before."""
growths: st.SearchStrategy[Growth] = st.lists(
    st.tuples(st.integers(1, 40), st.dictionaries(st.sampled_from(HOURS), st.integers(1, 30))), max_size=5
)


def begun(growth: Growth, floor_hour: int) -> tuple[IdGaps, list[dict[int, int]]]:
    """Return gaps of hours that grow so, and the hours' sizes at each; before the last, some are dropped."""
    gaps, sizes, at = IdGaps(), dict.fromkeys(HOURS, 0), []
    for number, (size, more) in enumerate(growth):
        floor = floor_hour if number == len(growth) - 1 else 0
        sizes = {hour: count + more.get(hour, 0) for hour, count in sizes.items()}
        at.append(dict(sizes))
        there = [hour for hour, count in sizes.items() if count and hour >= floor]
        gaps.begin(size, there, [sizes[hour] for hour in there], floor)
    return gaps, at


@given(growths, st.integers(0, 3))
def test_an_id_follows_from_one_place_and_all_others_are_nobody_s(growth: Growth, floor_hour: int) -> None:
    gaps, at = begun(growth, floor_hour)
    last = len(at) - 1
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for hour in HOURS:
        for place in range(100):
            passed = [
                size
                for number, (size, _) in enumerate(growth)
                if place >= at[number][hour] and not (number == last and hour < floor_hour)
            ]
            expected[hour, place + sum(passed)] = hour, place
    hour, index = np.array(list(expected), np.uint32).T.copy()
    places = np.array(list(expected.values()), np.uint32).T.copy()
    assert gaps.indices(*places).tolist() == index.tolist()
    assert [column.tolist() for column in gaps.places(hour, index)] == places.tolist()
    nobody = [(at, index) for at in HOURS for index in range(100) if (at, index) not in expected]
    if nobody:
        found = gaps.places(*np.array(nobody, np.uint32).T.copy())
        assert {column for columns in found for column in columns.tolist()} == {NONE}
    again = IdGaps(gaps.capture())
    assert again.indices(*places).tolist() == index.tolist()
    assert again.digests == gaps.digests


def test_there_is_room_for_sixteen_gaps_of_the_largest_size_and_half_of_all_ids_for_messages() -> None:
    gaps = IdGaps()
    for _ in range(20):
        gaps.begin(GAP_MAX, [], [], 0)
    assert len(gaps.digests) == 16
    hour, place = np.zeros(2, np.uint32), np.array([0, TOTAL_MAX - 2], np.uint32)
    index = gaps.indices(hour, place)
    assert index.tolist() == [TOTAL_MAX, 2**32 - 2]
    assert [column.tolist() for column in gaps.places(hour, index)] == [hour.tolist(), place.tolist()]


def test_the_last_gap_is_as_large_as_the_room_that_is_left() -> None:
    gaps = IdGaps()
    for size in (*[GAP_MAX] * 15, GAP_MIN, GAP_MAX, GAP_MIN):
        gaps.begin(size, [], [], 0)
    assert len(gaps.digests) == 17
    assert sum(size for size, *_ in gaps.capture()) == TOTAL_MAX


def test_two_incarnations_that_begin_with_one_state_give_different_ids(tmp_path: Path) -> None:
    names = [behind(tmp_path / str(incarnation), incarnation) for incarnation in (171, 2**62 + 9)]
    assert set(names[0]).isdisjoint(names[1])
    assert all(GAP_MIN <= gap_of(incarnation) < GAP_MAX for incarnation in (0, 1, 2**63 - 1))


def behind(folder: Path, incarnation: int) -> Sequence[tuple[int, int]]:
    """Return the ids of messages behind an incarnation's gap: near, far, and beyond the counted hours."""
    wheel = Wheel(folder, WheelSettings())
    due_ms = [START_MS + 5, *(START_MS + hour * HOUR_MS for hour in range(24, 400)), (1 << 21) * HOUR_MS]
    append(wheel, due_ms)
    wheel.begin_incarnation(gap_of(incarnation))
    places = append(wheel, due_ms)
    hour, index = np.array(places, np.uint32).T.copy()
    ids = wheel.ids_of(hour, index)
    assert [column.tolist() for column in wheel.places_of(*ids)] == [hour.tolist(), index.tolist()]
    assert ids[1].tolist() == [1 + gap_of(incarnation)] * len(due_ms)
    wheel.close()
    return list(zip(*(column.tolist() for column in ids), strict=True))
