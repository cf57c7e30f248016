"""Batches follow from the rows alone: they are the same from any batch's first row on, in whatever chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.client.bulk import batches as module
from tarry.client.bulk.batches import SPAN, Batch, batches
from tarry.client.bulk.mapping import Chunk, chunk_of
from tarry.client.bulk.values import Columns

DUE_MS = 1_800_000_000_000
ROWS_MAX = 4
BYTES_MAX = 400

row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b", "c", "d", "no name"]),
        "due": st.sampled_from([DUE_MS, DUE_MS + 1, None, 1]),
        "body": st.sampled_from(["x", "y" * 150, "z" * 500]),
    }
)

faulty = row.map(lambda one: {**one, "due": None})


def chunks(rows: list[dict[str, Any]], begin: int, size: int) -> Iterator[Chunk]:
    for at in range(begin, len(rows), size):
        schema = pa.schema([("topic", pa.string()), ("due", pa.int64()), ("body", pa.string())])
        part = pa.RecordBatch.from_pylist(rows[at : at + size], schema)
        yield chunk_of(part, at, Columns(due_unit="ms"), 1_000)


def plain(found: Batch) -> tuple[Any, ...]:
    return (*found[:3], found.rows.tolist(), found.messages.to_pylist(), found.faults, found.skipped)


@settings(deadline=None)
@given(st.lists(row, max_size=80) | st.lists(faulty, max_size=80), st.data())
def test_they_are_the_same_from_each_on_in_chunks_of_any_size(rows: list[dict[str, Any]], data: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOPICS_MAX", 2)
        made = list(batches(chunks(rows, 0, 1), ROWS_MAX, BYTES_MAX))
        assert [one.begin for one in made] == [0, *(one.end for one in made)][: len(made)]
        assert (made[-1].end if made else 0) == len(rows)
        for one in made:
            assert len(one.rows) + len(one.faults) + one.skipped == one.end - one.begin <= SPAN * ROWS_MAX
            assert len(one.rows) <= ROWS_MAX and len(set(one.messages.column("topic").to_pylist())) <= 2
            assert len(one.rows) <= 1 or sum(map(len, one.messages.column("body").to_pylist())) <= BYTES_MAX
        start = data.draw(st.integers(0, max(0, len(made) - 1)))
        begin = made[start].begin if made else 0
        again = batches(chunks(rows, begin, data.draw(st.integers(1, 90))), ROWS_MAX, BYTES_MAX, begin, start)
        assert list(map(plain, again)) == list(map(plain, made[start:]))
