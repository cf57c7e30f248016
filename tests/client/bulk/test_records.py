"""Columns of records are what protobuf reads of each, and records of columns what it writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.client.bulk import record_bytes
from tarry.client.bulk.record_bytes import ends_of, framed_records, octets_of, records_of, tag_masks
from tarry.client.bulk.record_columns import InvalidRecords, columns_of
from tarry.client.bulk.schema import COLUMNS, RECORD_COLUMNS
from tarry.client.records import record
from tarry.proto.record_times import BORN_TAG, STORED_TAG, times
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest

RECORDS = pa.schema([COLUMNS.field(name) for name in RECORD_COLUMNS])

texts = st.text(max_size=5) | st.sampled_from(["x" * 127, "é" * 64, "y" * 20_000])
messages = st.fixed_dictionaries(
    {
        "tags": st.lists(texts, max_size=4),
        "keys": st.lists(texts, max_size=3),
        "properties": st.dictionaries(texts, texts, max_size=3),
        "body": st.binary(max_size=9) | st.sampled_from([b"", b"b" * 127, b"b" * 128, b"b" * 16_384]),
        "ordering_key": st.just("") | texts,
        "idempotency_key": st.just("") | texts,
    }
)
bodies_only = st.fixed_dictionaries({name: st.just("") for name in ("ordering_key", "idempotency_key")}).map(
    lambda empty: {**empty, "tags": [], "keys": [], "properties": {}, "body": b"body"}
)


def rows_of(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    plain = [{**one, "properties": sorted(one["properties"].items())} for one in messages]
    return pa.RecordBatch.from_pylist(plain, RECORDS)


def plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return [{**row, "properties": dict(row["properties"])} for row in rows.to_pylist()]


@settings(deadline=None)
@given(st.lists(messages, max_size=12), st.data())
def test_the_times_that_a_leader_appends_are_gone_over(
    messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    time = st.integers(-(2**63), 2**63 - 1)
    parts = st.builds(lambda born_ms, stored_ms: Record(born_ms=born_ms, stored_ms=stored_ms), time, time)
    own = data.draw(st.lists(st.just(Record()) | parts, min_size=len(messages), max_size=len(messages)))
    serialized = [
        one.SerializeToString() + record(**message) + times(data.draw(st.sampled_from([0, 1, 2**40])), 2**40)
        for one, message in zip(own, messages, strict=True)
    ]
    read = plain(pa.RecordBatch.from_arrays(columns_of(serialized), schema=RECORDS))
    assert read == plain(rows_of(messages))


@pytest.mark.parametrize(
    "record", [BORN_TAG, BORN_TAG + b"\x80" * 5, STORED_TAG + b"\xff" * 10 + b"\0", b"\x68\x01"]
)
def test_a_time_that_does_not_end_is_refused_and_another_number_too(record: bytes) -> None:
    with pytest.raises(InvalidRecords):
        columns_of([b"", record])


@settings(deadline=None)
@given(st.lists(messages, max_size=12) | st.lists(bodies_only, max_size=3))
def test_columns_and_records_are_those_of_protobuf(messages: list[dict[str, Any]]) -> None:
    serialized = [record(**one) for one in messages]
    rows = rows_of(messages)
    assert plain(pa.RecordBatch.from_arrays(columns_of(serialized), schema=RECORDS)) == plain(rows)
    if messages:
        made = records_of(rows)
        assert [Record.FromString(one) for one in made.to_pylist()] == [
            Record.FromString(one) for one in serialized
        ]
        framed = framed_records(made)
        ends = ends_of(framed)
        request = ScheduleBatchRequest.FromString(octets_of(framed)[ends[0] : ends[-1]].tobytes())
        assert list(request.records) == made.to_pylist()


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=8))
def test_masks_are_those_of_single_messages(messages: list[dict[str, Any]]) -> None:
    masks = tag_masks(rows_of(messages))
    expected = [tag_mask(one["tags"], one["ordering_key"]) if one["tags"] else 0 for one in messages]
    assert (masks.tolist() if masks is not None else [0] * len(messages)) == expected


def test_parts_of_a_batch_are_made_of_these_rows_alone() -> None:
    messages = [
        {"tags": [f"t{row}"], "keys": [], "properties": {"p": str(row)}, "body": b"%d" % row,
         "ordering_key": "", "idempotency_key": ""}
        for row in range(9)
    ]  # fmt: skip
    part = rows_of(messages).slice(3, 4)
    made = list(map(Record.FromString, records_of(part).to_pylist()))
    assert made == [Record.FromString(record(**one)) for one in messages[3:7]]
    assert tag_masks(part).tolist() == [tag_mask([f"t{row}"]) for row in range(3, 7)]


def test_a_part_costs_what_is_in_it_and_not_what_it_was_cut_from(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {"tags": ["a", "b"], "keys": ["k"], "properties": {"p": "v"}, "body": b"x", "ordering_key": "",
               "idempotency_key": ""}  # fmt: skip
    framed, framing = [], record_bytes._framed

    def noted(values: Any, *more: Any, **options: Any) -> Any:
        framed.append(len(values))
        return framing(values, *more, **options)

    monkeypatch.setattr(record_bytes, "_framed", noted)
    part = rows_of([message] * 100).slice(50, 3)
    made = list(map(Record.FromString, records_of(part).to_pylist()))
    assert made == [Record.FromString(record(**message))] * 3
    assert tag_masks(part) is not None
    assert max(framed) == 6


def test_fields_that_came_later_and_a_repeated_body_are_read_as_protobuf_does() -> None:
    digest = Record(scheduled_digest=b"d" * 8, body=b"first").SerializeToString()
    again = digest + Record(body=b"second").SerializeToString()
    body = columns_of([again, digest])[RECORD_COLUMNS.index("body")]
    assert body.to_pylist() == [b"second", b"first"]


@pytest.mark.parametrize(
    "octets",
    [b"\x22", b"\x22\x05abc", b"\x08\x01", b"\x22\xff\xff\xff\xff\xff\x01", b"\x0a\x01\xff", b"\xa2\x01\x00"],
)
def test_what_is_no_record_is_refused_and_nothing_behind_it_is_read(octets: bytes) -> None:
    with pytest.raises(InvalidRecords):
        columns_of([octets, Record(body=b"x").SerializeToString()])
