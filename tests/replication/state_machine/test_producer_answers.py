"""Answers kept for retries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.producer_answers import Producers, count, pack, unpack


@given(st.lists(st.integers(490_000, 490_005), min_size=1, max_size=200), st.integers(0, 1_000))
def test_a_kept_answer_gives_back_the_columns(hours: list[int], first: int) -> None:
    gives_back(hours, first)


def gives_back(hours: list[int], first: int) -> None:
    hour = np.array(hours, dtype=np.uint32)
    index = np.zeros(len(hours), dtype=np.uint32)
    for h in set(hours):
        index[hour == h] = first + np.arange((hour == h).sum())
    (kept,) = pack([7], [0], hour, index)
    assert count(kept) == len(hours)
    again = unpack(kept)
    assert again[0].tolist() == hour.tolist()
    assert again[1].tolist() == index.tolist()


@given(st.lists(st.tuples(st.integers(490_000, 490_002), st.integers(1, 90)), min_size=1, max_size=9))
def test_a_kept_answer_gives_back_the_columns_of_runs(runs: list[tuple[int, int]]) -> None:
    gives_back([hour for hour, length in runs for _ in range(length)], 7)


@pytest.mark.parametrize("hours", [1, 2, 8])
def test_an_answer_whose_messages_lie_in_few_hours_in_order_is_small_however_many_they_are(
    hours: int,
) -> None:
    hour = np.arange(4_096, dtype=np.uint32) // np.uint32(4_096 // hours)
    index = np.arange(4_096, dtype=np.uint32) % np.uint32(4_096 // hours)
    assert pack([7], [0], hour, index)[0].ByteSize() < 20 + 16 * hours


def answer(sequence: int) -> log_pb.Answer:
    return pack([sequence], [0], np.array([1], np.uint32), np.array([sequence % 2**32], np.uint32))[0]


ANSWER_BYTES = answer(1).ByteSize()


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
    table = Producers(producers_kept=2)
    table.remember("a", answer(1))
    table.remember("b", answer(1))
    table.remember("a", answer(2))
    table.remember("c", answer(1))
    assert table.answer("b", 1) is None
    assert table.answer("a", 1) is not None
    assert table.answers_bytes == 3 * ANSWER_BYTES


def test_answers_beyond_the_bytes_are_forgotten_stalest_producer_first_and_their_retries_are_too_old() -> (
    None
):
    table = Producers(answers_bytes_max=4 * ANSWER_BYTES)
    for producer, sequence in (("a", 1), ("a", 2), ("b", 1), ("b", 2)):
        table.remember(producer, answer(sequence))
    assert table.answer("a", 1) is not None
    table.remember("b", answer(3))
    assert table.answer("a", 1) is None
    assert table.answer("a", 2) is not None
    assert table.too_old("a", 1)
    for sequence in (4, 5):
        table.remember("b", answer(sequence))
    assert [table.too_old("a", sequence) for sequence in (1, 2, 3)] == [True, True, False]
    assert [table.too_old("b", sequence) for sequence in (1, 2, 6)] == [True, False, False]
    assert table.answers_bytes == 4 * ANSWER_BYTES


def test_the_greatest_sequence_that_0_1_0_took_goes_into_a_checkpoint_and_makes_room_like_any() -> None:
    table = Producers(answers_bytes_max=2 * answer(2**64 - 1).ByteSize())
    for producer in "abc":
        for sequence in (2**64 - 2, 2**64 - 1):
            table.remember(producer, answer(sequence))
    again = Producers()
    again.recover(table.capture())
    assert again.capture() == table.capture()
    assert [table.too_old(producer, 2**64 - 2) for producer in "abc"] == [True, True, False]


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 40)), max_size=60, unique=True),
    st.integers(0, 60),
)
def test_a_table_from_a_checkpoint_forgets_the_same_as_one_that_was_never_down(
    requests: list[tuple[str, int]], at: int
) -> None:
    def new() -> Producers:
        return Producers(window=8, producers_kept=4, answers_bytes_max=9 * ANSWER_BYTES)

    def apply(table: Producers, part: list[tuple[str, int]]) -> None:
        for producer, sequence in part:
            if not table.too_old(producer, sequence):
                table.remember(producer, answer(sequence))
            assert table.answers_bytes <= 9 * ANSWER_BYTES

    one, two = new(), new()
    apply(one, requests[:at])
    two.recover(one.capture())
    apply(one, requests[at:])
    apply(two, requests[at:])
    assert one.capture() == two.capture()
    kept = [log_pb.ProducerCheckpoint.FromString(producer) for producer in one.capture()]
    assert one.answers_bytes == sum(len(a) for producer in kept for a in producer.answers)


def test_only_producers_that_were_heard_of_are_written_anew() -> None:
    table = Producers()
    for producer in "abc":
        table.remember(producer, answer(1))
    before = table.capture()
    table.remember("b", answer(2))
    after = table.capture()
    assert [after[0] is before[0], after[1] is before[2], after[2] is before[1]] == [True, True, False]


def test_it_survives_a_checkpoint_in_the_same_order() -> None:
    table = Producers(producers_kept=2)
    table.remember("a", answer(1))
    table.remember("b", answer(1))
    table.remember("a", answer(2))
    again = Producers(producers_kept=2)
    again.recover(table.capture())
    again.remember("c", answer(1))
    assert again.answer("b", 1) is None
    assert again.answer("a", 2) is not None
