"""A view counts what was pending when it was captured, whatever the wheel has done since."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tarry.wheel import pending_view
from tarry.wheel.pending_view import PendingView, ViewLost
from tarry.wheel.state import HOUR_MS, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids
from tests.wheel.test_order import WheelAndList, times

HOUR = START_MS // HOUR_MS
HOURS = range(HOUR - 2, HOUR + 3)


class Captured(NamedTuple):
    view: PendingView
    pending: list[tuple[int, int]]
    hours: list[int]


class WheelAndViews(WheelAndList):
    """Views of the wheel beside the plain list: looked at now, or after other calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Captured] = []

    def capture(self, now_ms: int) -> Captured:
        pending = list(self.list.pending)
        hours = self.wheel.pending_hours(HOUR - 2, 1 << 32, 5)
        assert hours == sorted({due // HOUR_MS for due, _ in pending if due // HOUR_MS >= HOUR - 2})[:5]
        for hour in HOURS:
            self.wheel.open_seconds(hour)
        return Captured(self.wheel.pending_view(now_ms, HOURS, hours), pending, hours)

    @rule(now_ms=times, later_ms=st.sampled_from([0, 1, 499]))
    def look_at_a_view(self, now_ms: int, later_ms: int) -> None:
        check(self.capture(now_ms + later_ms))

    @rule(now_ms=times)
    def keep_a_view(self, now_ms: int) -> None:
        self.kept.append(self.capture(now_ms))

    @precondition(lambda self: self.kept)
    @rule()
    def look_at_a_kept_view(self) -> None:
        kept = self.kept.pop()
        try:
            check(kept)
        except ViewLost:  # it says so, and does not count anything else
            assert self.list.floor_hour or self.way_cleans

    @property
    def way_cleans(self) -> bool:
        return bool(self.wheel._hours.far.first)

    def crash_and_recover(self, closed: bool, summed: bool, prepared: bool) -> None:
        self.kept.clear()  # files were cut back beneath them
        super().crash_and_recover(closed, summed, prepared)

    @rule(begin=st.integers(HOUR - 3, HOUR + 1), hours=st.integers(0, 1_000))
    def count_by_hour(self, begin: int, hours: int) -> None:
        counted = Counter(due // HOUR_MS for due, _ in self.list.pending)
        expected = [counted[hour] for hour in range(begin, begin + hours)]
        assert self.wheel.pending_by_hour(begin, hours).tolist() == expected


def check(captured: Captured) -> None:
    """Count everything of a view, and compare it with the plain list."""
    view, pending, hours = captured
    for second, seconds in ((HOUR * 3_600, 3_600), (HOUR * 3_600 - 5, 15)):
        counted = Counter(due // 1_000 for due, _ in pending)
        expected = [counted[at] for at in range(second, second + seconds)]
        assert view.seconds(second, seconds).tolist() == expected
    assert view.overdue() == sum(due <= view.now_ms for due, _ in pending)
    for topic in (0, 3):
        found = [
            (int(due), int(index), int(size))
            for hour in hours
            for part in view.matching(hour, lambda of, _: of == topic)  # noqa: B023
            for due, index, size in zip(*part, strict=True)
        ]
        expected_found = [
            (due, index) for due, index in pending if due % 7 == topic and due // HOUR_MS in hours
        ]
        assert sorted((due, index) for due, index, _ in found) == sorted(expected_found)


TestAViewCountsWhatWasPendingWhenItWasCaptured = WheelAndViews.TestCase
TestAViewCountsWhatWasPendingWhenItWasCaptured.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path / "hours", WheelSettings())


def counted(view: PendingView, hour: int) -> int:
    return sum(len(part.due_ms) for part in view.matching(hour, lambda topic, mask: topic >= 0))


def test_a_view_of_an_hour_whose_files_are_deleted_says_that_it_is_lost(wheel: Wheel) -> None:
    append(wheel, [START_MS + 1, START_MS + 2])
    view = wheel.pending_view(START_MS, [HOUR], [HOUR])
    assert counted(view, HOUR) == 2
    wheel.take(START_MS + 2 * HOUR_MS, 10)
    wheel.drop_hour(HOUR)
    for _ in range(2):
        wheel.sync(wheel.capture())
    with pytest.raises(ViewLost, match="dropped"):
        counted(view, HOUR)
    assert view.seconds(START_MS // 1_000, 3).tolist() == [2, 0, 0]


def test_a_view_of_an_index_that_is_not_what_it_was_says_that_it_is_lost(wheel: Wheel) -> None:
    append(wheel, [START_MS + 1, START_MS + 2])
    view = wheel.pending_view(START_MS, [], [HOUR])
    path = view.hours[HOUR].folder / "delay.index"
    index = bytearray(path.read_bytes())
    index[12] ^= 1
    path.write_bytes(index)
    with pytest.raises(ViewLost, match="damaged"):
        counted(view, HOUR)


def test_the_messages_of_the_present_millisecond_are_overdue_and_those_of_the_next_are_not(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_ms = [START_MS + 1_000 + at for at in (0, 499, 500, 500, 501, 999)] + [START_MS + 2_000]
    names = append(wheel, due_ms)
    wheel.cancel(*ids(names[:1]))
    for walked_max in (0, 6):  # by the index as a whole, and along the second's chain
        monkeypatch.setattr(pending_view, "_WALKED_MAX", walked_max)
        assert wheel.pending_view(START_MS + 1_500, []).overdue() == 3
        assert wheel.pending_view(START_MS + 1_499, []).overdue() == 1
        assert wheel.pending_view(START_MS + 1_000, []).overdue() == 0
    wheel.take(START_MS + 1_500, 10)
    assert wheel.pending_view(START_MS + 1_500, []).overdue() == 0


def test_a_view_is_not_changed_by_what_comes_and_goes_afterwards(wheel: Wheel) -> None:
    far_ms = START_MS + 100 * HOUR_MS
    wheel.take(START_MS, 1)  # what is soon due then goes to partitions
    names = append(wheel, [START_MS + 1_000, START_MS + 1_001, *(far_ms + at * HOUR_MS for at in range(12))])
    far = int(far_ms // HOUR_MS)
    assert wheel.partitions() == (HOUR,)
    view = wheel.pending_view(START_MS, [HOUR, far], [HOUR, far])
    wheel.cancel(*ids(names))
    append(wheel, [START_MS + 1_000, far_ms])
    assert wheel.pending_per_second(far).sum() == 1  # which moves it out of the far log
    assert (counted(view, HOUR), counted(view, far)) == (2, 1)
    assert view.seconds(HOUR * 3_600, 3).tolist() == [0, 2, 0]
    assert np.count_nonzero(view.seconds(far * 3_600, 3_600)) == 1
