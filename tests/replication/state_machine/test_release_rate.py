"""When a rate opens what has been released."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.state_machine.release_rate import Pace

NOW_MS = 1_795_000_000_000
rates = st.sampled_from([0, 1, 3, 7, 999, 1_000, 250_000])
changes = st.lists(
    st.one_of(
        st.tuples(
            st.just("units"),
            st.integers(0, 2_000),
            st.integers(1, 300),
            st.integers(-900, 100),
            st.booleans(),
        ),
        st.tuples(st.just("rates"), st.integers(0, 2_000), rates, rates, st.booleans()),
    ),
    max_size=12,
)


@given(changes=changes)
def test_an_offset_is_open_from_the_time_on_that_it_opens_and_in_order(
    changes: list[tuple[str, int, int, int, bool]],
) -> None:
    pace, units, now_ms = Pace(), 0, NOW_MS
    for what, later_ms, first, second, flag in changes:
        now_ms += later_ms
        opened = pace.opened(now_ms, units)
        if what == "rates":
            pace.change(first, second, units, now_ms)
        else:
            if pace.bounded or flag:
                pace.take_in(units, now_ms + second, now_ms, first // 2 if flag else 0)
            units += first
        assert pace.opened(now_ms, units) >= min(opened, units)
        times = [pace.opens_ms(offset) for offset in range(units)]
        assert times == sorted(times)
        for at_ms in (now_ms - 1, now_ms, now_ms + 1, now_ms + 333, now_ms + 10**9):
            expected = sum(time <= at_ms for time in times) if pace.bounded else units
            if at_ms >= now_ms:
                assert pace.opened(at_ms, units) == expected


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 40)), min_size=1, max_size=30),
    rate=st.sampled_from([1, 5, 50, 400]),
)
def test_in_no_second_more_than_the_rate_opens_but_for_one_release_ahead(
    arrivals: list[tuple[int, int]], rate: int
) -> None:
    pace, units, now_ms, ahead_ms = Pace(), 0, NOW_MS, 100
    pace.change(rate, 0, 0, now_ms)
    opens: list[int] = []
    for later_ms, count in arrivals:
        now_ms += later_ms
        opens = opens[: pace.opened(now_ms, units)]  # the rest may move, by the next release
        pace.take_in(units, now_ms + ahead_ms, now_ms, 0)
        units += count
        opens += [pace.opens_ms(offset) for offset in range(len(opens), units)]
    for first, at_ms in enumerate(opens):
        in_a_second = sum(at_ms <= other < at_ms + 1_000 for other in opens[first:])
        assert in_a_second <= rate + 1 + rate * ahead_ms // 1_000


def test_another_rate_counts_at_once_for_what_waits() -> None:
    pace = Pace()
    pace.change(10, 0, 0, NOW_MS)
    pace.take_in(0, NOW_MS, NOW_MS, 0)
    assert pace.opens_ms(999) == NOW_MS + 99_900
    pace.change(1_000, 0, 1_000, NOW_MS + 50)
    assert pace.opened(NOW_MS + 50, 1_000) == 1
    assert pace.opens_ms(999) == NOW_MS + 100 + 998
    pace.change(0, 0, 1_000, NOW_MS + 60)
    assert pace.opened(NOW_MS + 100, 1_000) == 1_000


def test_catching_up_has_a_rate_of_its_own_and_what_comes_behind_waits_for_it() -> None:
    pace = Pace()
    pace.change(0, 100, 0, NOW_MS)
    pace.take_in(0, NOW_MS - 60_000, NOW_MS, 500)
    assert pace.opened(NOW_MS, 600) == 1
    assert pace.opens_ms(499) == NOW_MS + 4_990
    assert pace.opens_ms(500) == pace.opens_ms(599) == NOW_MS + 5_000
    pace.take_in(600, NOW_MS + 6_000, NOW_MS + 6_000, 0)
    assert pace.opened(NOW_MS + 6_000, 700) == 700
