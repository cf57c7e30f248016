"""Answers kept for retries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.producers import Producers, pack, unpack


@given(st.lists(st.integers(490_000, 490_005), min_size=1, max_size=200), st.integers(0, 1_000))
def test_a_kept_answer_gives_back_the_columns(hours: list[int], first: int) -> None:
    hour = np.array(hours, dtype=np.uint32)
    index = np.zeros(len(hours), dtype=np.uint32)
    for h in set(hours):
        index[hour == h] = first + np.arange((hour == h).sum())
    again = unpack(pack(7, hour, index))
    assert again[0].tolist() == hour.tolist()
    assert again[1].tolist() == index.tolist()


def answer(sequence: int) -> object:
    return pack(sequence, np.array([1], np.uint32), np.array([sequence], np.uint32))


def test_the_window_forgets_the_oldest_and_says_so() -> None:
    table = Producers(window=4)
    for sequence in range(1, 7):
        assert not table.too_old("p", sequence)
        table.remember("p", answer(sequence))
    assert table.answer("p", 3) is not None
    assert table.answer("p", 2) is None
    assert table.too_old("p", 2)
    assert not table.too_old("p", 7)
    assert not table.too_old("q", 1)


def test_the_stalest_producer_makes_room() -> None:
    table = Producers(producers_max=2)
    table.remember("a", answer(1))
    table.remember("b", answer(1))
    table.remember("a", answer(2))
    table.remember("c", answer(1))
    assert table.answer("b", 1) is None
    assert table.answer("a", 1) is not None


def test_it_survives_a_checkpoint_in_the_same_order() -> None:
    table = Producers(producers_max=2)
    table.remember("a", answer(1))
    table.remember("b", answer(1))
    table.remember("a", answer(2))
    again = Producers(producers_max=2)
    again.recover(table.capture())
    again.remember("c", answer(1))
    assert again.answer("b", 1) is None
    assert again.answer("a", 2) is not None
