"""Bars of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarry.client.cli.bars import bars


def test_a_count_has_a_column_of_its_share_of_the_greatest() -> None:
    assert bars([0, 8, 16, 12, 1], 2) == ["  █▄ ", " ███▁"]
    assert bars([0, 0, 0], 2) == ["   ", "   "]
    assert bars([], 1) == [""]


@given(st.lists(st.integers(0, 1 << 32), min_size=1, max_size=60), st.integers(1, 8))
def test_a_greater_count_is_no_lower_and_only_nothing_is_not_seen(counts: list[int], height: int) -> None:
    lines = bars(counts, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {len(counts)}
    heights = [sum(" ▁▂▃▄▅▆▇█".index(line[at]) for line in lines) for at in range(len(counts))]
    assert [of > 0 for of in heights] == [count > 0 for count in counts]
    assert not max(counts) or max(heights) == 8 * height
    ordered = sorted(zip(counts, heights, strict=True))
    assert [of for _, of in ordered] == sorted(heights)
