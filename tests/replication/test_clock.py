from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.clock import to_next


@given(period_ms=st.sampled_from([250, 1_000, 5_000]), now=st.floats(0, 1e8), later=st.floats(0, 0.999))
def test_who_waits_for_the_same_multiple_wakes_with_the_others(
    period_ms: int, now: float, later: float
) -> None:
    period_s = period_ms / 1_000
    first = to_next(period_s, now)
    assert 0 < first <= period_s
    second = now + later * first
    assert abs(now + first - second - to_next(period_s, second)) < 1e-6 or now + first - second < 1e-6
