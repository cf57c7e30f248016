"""Edges of time: hours, years, leap days, ticks far behind and far ahead, messages as late as can be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel.hour_partition import folder_name, hour_of
from tarry.wheel.state import HOUR_MS, NONE, CancelOutcome, Cut, Numbers, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids, rows, u4


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path, WheelSettings())


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("before", "folders"),
    [
        (ms(2026, 12, 31, 23, 59, 59), ("2026123123", "2027010100")),
        (ms(2028, 2, 28, 23, 59, 59), ("2028022823", "2028022900")),
        (ms(2028, 2, 29, 23, 59, 59), ("2028022923", "2028030100")),
        (ms(2100, 2, 28, 23, 59, 59), ("2100022823", "2100030100")),
        (ms(2126, 11, 21, 6, 59, 59), ("2126112106", "2126112107")),
    ],
)
def test_messages_around_a_boundary_of_hours_days_or_years_are_released_in_order(
    tmp_path: Path, before: int, folders: tuple[str, str]
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    due = [before + 1_000, before + 999, before, before + 1_001, before + 1_000]
    append(wheel, due)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(folders)
    assert [at for at, _, _ in rows(wheel.take(before + 999, 10))] == [before, before + 999]
    assert [at for at, _, _ in rows(wheel.take(before + 1_000, 10))] == [before + 1_000] * 2
    assert wheel.next_due_ms() == before + 1_001


@pytest.mark.parametrize("name", ["2026112107", "2028022900", "1970010100", "9999123123"])
def test_a_folder_name_is_the_hour_and_back(name: str) -> None:
    hour = hour_of(name)
    assert hour is not None
    assert folder_name(hour) == name


@pytest.mark.parametrize(
    "name", ["2026112124", "202611210", "20261121070", "lost+found", "2027022900", ".tmp"]
)
def test_other_names_are_no_hours_and_are_left_alone(name: str) -> None:
    assert hour_of(name) is None


def test_a_message_is_due_at_its_millisecond_and_not_before(wheel: Wheel) -> None:
    append(wheel, [START_MS])
    assert rows(wheel.take(START_MS - 1, 10)) == []
    assert len(rows(wheel.take(START_MS, 10))) == 1


def test_the_cut_says_how_far_everything_is_released(wheel: Wheel) -> None:
    append(wheel, [START_MS + 1, START_MS + 1, START_MS + 2_500])
    assert wheel.cut == Cut(0, NONE)
    wheel.take(START_MS + 2_000, 1)
    assert (wheel.cut, wheel.tick, wheel.local_index) == (Cut(START_MS + 1, 0), START_MS // 1000, 1)
    wheel.take(START_MS + 2_000, 1)
    assert (wheel.cut, wheel.local_index) == (Cut(START_MS + 2_000, NONE), 0)
    wheel.take(START_MS + 1_000, 10)
    assert wheel.cut == Cut(START_MS + 2_000, NONE)
    wheel.take(START_MS + 2_600, 10)
    assert (wheel.cut, wheel.local_index) == (Cut(START_MS + 2_600, NONE), 1)


def test_exactly_as_many_as_asked_for_leave_nothing_behind(wheel: Wheel) -> None:
    (first, _) = append(wheel, [START_MS, START_MS + 1])
    append(wheel, [START_MS + 2])
    wheel.cancel(u4(first[0]), u4(2))
    wheel.take(START_MS + 5, 2)
    assert wheel.cut == Cut(START_MS + 5, NONE)


def test_a_message_of_the_millisecond_being_released_is_taken_last_and_after_it_is_overdue(
    wheel: Wheel,
) -> None:
    due = np.array([START_MS])
    topic, mask = (due % 7).astype(np.uint32), (due % 11).astype(np.uint64)
    append(wheel, [START_MS] * 3)
    wheel.take(START_MS, 2)
    assert not wheel.append(due, topic, mask, [b""]).overdue[0]
    assert [index for _, _, index in rows(wheel.take(START_MS, 10))] == [2, 3]
    where = wheel.append(due, topic, mask, [b"late"])
    assert where.overdue[0]
    assert wheel.pending == 0
    assert wheel.read(where.hour, where.global_index) == [b"late"]
    assert wheel.cancel(where.hour, where.global_index).outcomes.tolist() == [CancelOutcome.ALREADY_RELEASED]


def test_a_message_that_one_cancel_names_twice_is_cancelled_once(wheel: Wheel) -> None:
    near = append(wheel, [START_MS + at for at in range(3)])
    far = append(wheel, [START_MS + (24 + hour) * HOUR_MS for hour in range(300)])
    done = wheel.cancel(*ids([far[1], near[2], near[0], far[0], near[2], far[1]]))
    again = CancelOutcome.ALREADY_CANCELLED
    assert done.outcomes.tolist() == [CancelOutcome.CANCELLED] * 4 + [again] * 2
    assert done.rows.tolist() == [0, 1, 2, 3]
    assert done.due_in_hour_ms.tolist() == [START_MS % HOUR_MS + after for after in (0, 2, 0, 0)]
    assert wheel.pending == 299
    assert wheel.cancel(*ids(near[:2])).rows.tolist() == [1]


def test_a_message_cancelled_after_it_was_loaded_is_not_released(wheel: Wheel) -> None:
    names = append(wheel, [START_MS + at for at in range(10)])
    assert len(rows(wheel.take(START_MS + 1, 10))) == 2
    wheel.cancel(*ids(names[2:9]))
    assert rows(wheel.take(START_MS + 100, 10)) == [(START_MS + 9, *names[9])]


def test_a_tick_a_century_ahead_and_a_backlog_of_a_day_are_taken_in_slices(wheel: Wheel) -> None:
    day = np.random.default_rng(3).integers(START_MS, START_MS + 24 * HOUR_MS, 3_000)
    append(wheel, day.tolist())
    append(wheel, [ms(2126, 1, 1)])
    taken = []
    while part := rows(wheel.take(ms(2126, 1, 1), 700)):
        assert len(part) in {700, 3_001 % 700}
        taken += part
    assert [at for at, _, _ in taken] == [*sorted(day.tolist()), ms(2126, 1, 1)]


def test_an_earlier_message_is_found_although_a_later_one_was_looked_for_already(wheel: Wheel) -> None:
    for due in (START_MS + 10**10, START_MS + 10**7, START_MS + 10**7 - 1, START_MS + 5, START_MS + 4):
        append(wheel, [due])
        assert wheel.next_due_ms() == due


def test_nothing_pending_has_no_next_due_time(wheel: Wheel) -> None:
    assert wheel.next_due_ms() is None
    names = append(wheel, [START_MS, START_MS + HOUR_MS])
    wheel.take(START_MS, 1)
    assert wheel.next_due_ms() == START_MS + HOUR_MS
    wheel.cancel(*ids(names[1:]))
    assert wheel.next_due_ms() is None


def test_next_due_is_no_later_than_the_messages_of_a_huge_second(wheel: Wheel) -> None:
    append(wheel, [START_MS + 700] * 5_000)
    assert wheel.next_due_ms() == START_MS
    assert rows(wheel.take(START_MS, 10)) == []
    assert wheel.next_due_ms() == START_MS + 700


def test_pending_messages_are_counted_per_second_and_per_hour(wheel: Wheel) -> None:
    names = append(wheel, [START_MS + 1_000, START_MS + 1_500, START_MS + 3_599_999, START_MS + HOUR_MS])
    hour = START_MS // HOUR_MS
    assert np.flatnonzero(wheel.pending_per_second(hour)).tolist() == [1, 3599]
    assert [wheel.pending_in_hour(at) for at in range(hour - 1, hour + 3)] == [0, 3, 1, 0]
    wheel.take(START_MS + 1_200, 10)
    assert wheel.pending_per_second(hour)[1] == 1
    wheel.cancel(*ids(names[1:2]))
    assert wheel.pending_per_second(hour)[1] == 0
    assert wheel.pending == 2
    assert wheel.pending_per_second(hour + 5).sum() == 0


def test_what_is_overdue_is_counted_to_the_millisecond_while_the_second_goes_on(wheel: Wheel) -> None:
    due = [START_MS - 1, START_MS + 1_000, START_MS + 1_500, START_MS + 1_500, START_MS + 2_000]
    names = append(wheel, due)
    for _ in range(3):  # each opens one hour at most
        wheel.load_ahead(START_MS)
    at_ms = [START_MS - 1, START_MS, START_MS + 1_000, START_MS + 1_001, START_MS + 1_501, START_MS + 9_000]
    assert [wheel.pending_before(at) for at in at_ms] == [0, 1, 1, 2, 4, 5]
    wheel.cancel(*ids(names[2:3]))
    wheel.take(START_MS + 1_000, 10)
    assert [wheel.pending_before(at) for at in at_ms] == [0, 0, 0, 0, 1, 2]
    assert wheel.first_due_ms() == START_MS + 1_500
    wheel.overtake(*ids(names[3:4]))
    assert [wheel.pending_before(at) for at in at_ms] == [0, 0, 0, 0, 0, 1]
    assert wheel.first_due_ms() == START_MS + 2_000


def test_what_is_overdue_in_an_hour_that_nobody_has_opened_is_not_counted_and_the_hour_stays_closed(
    tmp_path: Path,
) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    append(wheel, [START_MS + 1_000] * 3 + [START_MS + HOUR_MS + 5_000] * 2)
    state = wheel.capture()
    wheel.sync(state)
    wheel.close()
    wheel = Wheel.recover(tmp_path, WheelSettings(), state)
    for index in sorted(tmp_path.glob("*/delay.index")):  # nobody can read what is not there
        index.unlink()
    assert wheel.pending_before(START_MS + 2_000) == 0
    assert wheel.pending_before(START_MS + HOUR_MS + 6_000) == 3  # what lies in hours that are over
    assert wheel.pending_before(START_MS + 2 * HOUR_MS) == 5
    assert wheel.first_due_ms() == START_MS  # no message is due before


def test_what_is_due_in_each_second_is_told_from_memory_also_while_a_second_goes_on(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings())
    second = START_MS // 1_000
    names = append(wheel, [START_MS, *[START_MS + 1_200] * 3, START_MS + 1_900, START_MS + HOUR_MS])
    for _ in range(3):  # each opens one hour at most
        wheel.load_ahead(START_MS)
    assert told(wheel.pending_seconds(second - 2, 6)) == [0, 0, 1, 4, 0, 0]
    assert told(wheel.pending_seconds(second + 3_598, 3)) == [0, 0, 1]
    assert told(wheel.pending_seconds(second + 9 * 3_600, 2)) == [0, 0]
    wheel.take(START_MS + 1_200, 3)
    wheel.cancel(*ids(names[4:5]))
    assert told(wheel.pending_seconds(second, 3)) == [0, 1, 0]
    assert told(wheel.pending_seconds(second + 1, 1)) == [1]
    state = wheel.capture()
    wheel.sync(state)
    wheel.close()
    wheel = Wheel.recover(tmp_path, WheelSettings(), state)
    assert wheel.pending_seconds(second, 3) is None
    assert told(wheel.pending_seconds(second + 9 * 3_600, 2)) == [0, 0]


def told(counts: Numbers | None) -> list[int]:
    assert counts is not None
    return counts.tolist()  # type: ignore[no-any-return]


def test_a_count_of_what_is_overdue_goes_beyond_the_hours_that_have_a_place(wheel: Wheel) -> None:
    far = ms(2300, 1, 1)
    append(wheel, [START_MS, far, far + HOUR_MS])
    assert wheel.pending_before(far + HOUR_MS) == 2
    assert wheel.pending_before(far + 2 * HOUR_MS) == 3


def test_a_time_by_which_so_many_hours_have_messages_is_the_last_before_the_next_of_them(
    wheel: Wheel,
) -> None:
    append(wheel, [START_MS + hour * HOUR_MS for hour in (0, 1, 2, 5, 9)])
    late_ms = START_MS + 20 * HOUR_MS
    assert wheel.until_of_hours(late_ms, 3) == START_MS + 5 * HOUR_MS - 1
    assert wheel.until_of_hours(late_ms, 4) == START_MS + 9 * HOUR_MS - 1
    assert wheel.until_of_hours(late_ms, 5) == late_ms
    assert wheel.until_of_hours(START_MS + HOUR_MS, 3) == START_MS + HOUR_MS


def test_a_wheel_whose_last_message_was_cancelled_tells_no_due_time_of_the_far_log(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.placement._DIRECT_HOURS", 0)
    wheel.load_ahead(START_MS + HOUR_MS - 1)  # what comes for that hour is in the near queue at once
    names = append(wheel, [START_MS + HOUR_MS - 1])
    assert wheel.first_due_ms() == START_MS + HOUR_MS - 1
    wheel.cancel(*ids(names))
    assert (wheel.pending, wheel.first_due_ms(), wheel.next_due_ms()) == (0, None, None)
