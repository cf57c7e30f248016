"""What a group has acknowledged."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.state_machine.acknowledgements import Acknowledgements

offsets = st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=12)


def column(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@given(offsets)
def test_it_is_a_set_with_a_floor(batches: list[list[int]]) -> None:
    known: set[int] = set()
    table = Acknowledgements()
    for batch in batches:
        stale = table.add(column(batch))
        seen = set(known)
        for offset, was in zip(batch, stale.tolist(), strict=True):
            assert was == (offset in seen)
            seen.add(offset)
        known = seen
        floor = next(i for i in range(62) if i not in known)
        assert table.floor == floor
        assert set(table.acked) == {o for o in known if o > floor}
        assert table.contains(column(list(range(62)))).tolist() == [o in known for o in range(62)]
        for start, end in ((0, 62), (20, 40), (40, 20)):
            assert table.missing(start, end).tolist() == [o for o in range(start, end) if o not in known]


@given(offsets)
def test_it_survives_a_checkpoint(batches: list[list[int]]) -> None:
    table = Acknowledgements()
    for batch in batches:
        table.add(column(batch))
    again = Acknowledgements(table.floor, table.serialize())
    assert (again.floor, set(again.acked)) == (table.floor, set(table.acked))


def test_a_million_in_order_cost_a_floor_and_nothing_else() -> None:
    table = Acknowledgements()
    for start in range(0, 1_000_000, 1_000):
        assert not table.add(np.arange(start, start + 1_000, dtype=np.uint64)).any()
    assert table.floor == 1_000_000
    assert table.serialize() == b""
