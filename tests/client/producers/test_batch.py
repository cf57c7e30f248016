"""Batches: columns of times, pieces, and what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.errors import InvalidBatch, InvalidTime
from tarry.client.producers.batch import Time, batch_of, time_column, time_of
from tarry.client.results import Scheduled, ScheduledBatch, rows_of
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest, ScheduleBatchResponse

COLUMNS = {Time.DUE_MS: "due_ms", Time.DELAY_MS: "delay_ms", Time.DELAY_LEVEL: "delay_level"}


@given(st.sampled_from(list(Time)), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300))
def test_times_arrive_as_given_in_the_column_of_their_kind(time: Time, times: list[int]) -> None:
    batch = batch_of("orders", [b"x"] * len(times), time, times, None, None, None)
    request = ScheduleBatchRequest.FromString(batch.request("p", 7).SerializeToString())
    assert list(getattr(request, COLUMNS[time])) == times
    assert sum(len(getattr(request, name)) for name in COLUMNS.values()) == len(times)
    assert (request.producer, request.sequence, list(request.topics)) == ("p", 7, ["orders"])


@pytest.mark.parametrize("times", [[5, 6], (5, 6), np.array([5, 6], np.int32), np.array([5, 6], np.uint64)])
def test_times_may_be_a_list_or_an_array_of_any_integers(times: Any) -> None:
    assert time_column(Time.DUE_MS, times, 2).tolist() == [5, 6]


def test_one_number_stands_for_all() -> None:
    assert time_column(Time.DELAY_MS, 1_500, 3).tolist() == [1_500, 1_500, 1_500]


@pytest.mark.parametrize(
    "times", [2**63, -(2**63) - 1, [1, 2**64], np.array([2**63], np.uint64), 1.5, [1.0], "soon", True, [None]]
)
def test_a_time_that_does_not_fit_is_refused_and_never_rounded_or_wrapped(times: Any) -> None:
    with pytest.raises(InvalidTime) as refused:
        time_column(Time.DUE_MS, times, 1)
    assert refused.value.reason == "DUE_INVALID"


@pytest.mark.parametrize("level", [-1, 2**32])
def test_a_level_that_no_table_can_have_is_unknown(level: int) -> None:
    with pytest.raises(InvalidTime) as refused:
        time_column(Time.DELAY_LEVEL, [level], 1)
    assert refused.value.reason == "DELAY_LEVEL_UNKNOWN"


@pytest.mark.parametrize(
    ("due", "delay", "level", "reason"),
    [(None, None, None, "DUE_MISSING"), (1, 1, None, "DUE_AMBIGUOUS"), (None, 0, 0, "DUE_AMBIGUOUS")],
)
def test_exactly_one_way_to_name_the_time_is_taken(
    due: int | None, delay: int | None, level: int | None, reason: str
) -> None:
    with pytest.raises(InvalidTime) as refused:
        time_of(due, delay, level)
    assert refused.value.reason == reason


@pytest.mark.parametrize("column", ["tags", "keys", "properties"])
def test_columns_of_unequal_length_are_refused(column: str) -> None:
    columns: dict[str, Any] = {"tags": None, "keys": None, "properties": None, column: [{}]}
    with pytest.raises(InvalidBatch):
        batch_of("t", [b"a", b"b"], Time.DELAY_MS, 1, **columns)


def test_other_columns_go_into_the_records_and_tags_into_the_mask_too() -> None:
    batch = batch_of("t", [b"a", b"b"], Time.DELAY_MS, 1, [["x"], []], [["k1"], ["k2"]], [{"p": "1"}, {}])
    request = batch.request("p", 1)
    assert list(request.tag_mask) == [tag_mask(["x"]), 0]
    first, second = map(Record.FromString, request.records)
    assert (list(first.tags), list(first.keys), dict(first.properties)) == (["x"], ["k1"], {"p": "1"})
    assert (list(second.keys), second.body) == (["k2"], b"b")


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 9), st.integers(1, 200))
def test_pieces_cover_the_batch_in_order_within_both_limits(
    sizes: list[int], messages_max: int, bytes_max: int
) -> None:
    batch = batch_of("t", [b"x" * size for size in sizes], Time.DELAY_MS, 1, None, None, None)
    cuts = list(batch.cuts(messages_max, bytes_max))
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts)][: len(cuts)]
    assert (cuts[-1][1] if cuts else 0) == len(sizes)
    for start, stop in cuts:
        assert 0 < stop - start <= messages_max
        assert stop - start == 1 or sum(map(len, batch.records[start:stop])) <= bytes_max


def response(count: int, overdue: list[int]) -> ScheduleBatchResponse:
    return ScheduleBatchResponse(
        hour=[9] * count, global_index=range(count), due_ms=range(100, 100 + count), overdue=overdue
    )


@pytest.mark.parametrize("count", [1, 9, 40])
def test_answers_read_the_same_as_rows_and_as_columns(count: int) -> None:
    rows = rows_of(response(count, [0]))
    columns = ScheduledBatch.of(response(count, [0]))
    assert [row.id for row in rows] == columns.ids
    assert len(set(columns.ids)) == count
    assert [row.due_ms for row in rows] == columns.due_ms.tolist()
    assert [row.overdue for row in rows] == [True] + [False] * (count - 1)
    assert rows[0] == Scheduled(columns.ids[0], 100, overdue=True, repeated=False)


def test_the_answers_to_pieces_join_to_one_with_positions_of_the_whole() -> None:
    joined = ScheduledBatch.joined([ScheduledBatch.of(response(3, [2])), ScheduledBatch.of(response(2, [0]))])
    assert len(joined) == 5
    assert joined.overdue.tolist() == [2, 3]
    assert joined.global_index.tolist() == [0, 1, 2, 0, 1]
