"""A dictionary in parts holds what one dictionary holds, and never grows by much at once."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.delivery.int_table import IntTable

TAKEN_AT_ONCE = 4_000
GROWN_MAX = 100_000
"""Entries that may be moved at once as their parts grow: some 2 ms."""

keys = st.lists(
    st.one_of(st.integers(0, 9), st.integers(4_090, 4_100), st.integers(0, 2**64 - 1)), max_size=9
)


@given(st.lists(st.tuples(st.sampled_from(["put", "pop", "look"]), keys), max_size=20))
def test_it_holds_what_a_dictionary_holds(steps: list[tuple[str, list[int]]]) -> None:
    table, known = IntTable[int](), dict[int, int]()
    for number, (step, listed) in enumerate(steps):
        column = np.array(listed, dtype=np.uint64)
        if step == "put":
            table.put(column, [number] * len(listed))
            known |= dict.fromkeys(listed, number)
        elif step == "pop":
            assert table.pop(column, None) == [known.pop(key, None) for key in listed]
        assert table.get(column, -1) == [known.get(key, -1) for key in listed]
        assert table.has(column).tolist() == [key in known for key in listed]
        assert len(table) == len(known)
        assert bool(table) == bool(known)


@pytest.mark.parametrize("of", ["offsets", "lanes"])
def test_few_of_a_million_entries_are_moved_at_once_as_it_grows(of: str) -> None:
    column = np.arange(1_000_000, dtype=np.uint64)
    if of == "lanes":
        column = np.random.default_rng(1).integers(1, 2**32, len(column), dtype=np.uint64)
    table, most = IntTable[None](), 0
    sizes: dict[int, int] = {}
    for start in range(0, len(column), TAKEN_AT_ONCE):
        batch = column[start : start + TAKEN_AT_ONCE]
        before = {number: len(part) for number, part in table._parts.items()}
        table.put(batch, [None] * len(batch))
        now = {number: sys.getsizeof(part) for number, part in table._parts.items()}
        most = max(most, sum(before.get(number, 0) for number in now if now[number] != sizes.get(number)))
        sizes = now
    assert most < GROWN_MAX
