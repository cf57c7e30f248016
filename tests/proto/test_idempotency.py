"""When a message that comes again under its idempotency key is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.proto.idempotency import DIGEST_BYTES, digest, scheduled_digest
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.trace_context import TRACE_PROPERTIES

TEXTS = st.text("ab\0", max_size=3)
NAMES = st.one_of(TEXTS, st.sampled_from(sorted(TRACE_PROPERTIES)))
RECORDS = st.builds(
    Record,
    body=st.binary(max_size=3),
    ordering_key=TEXTS,
    tags=st.lists(TEXTS, max_size=3),
    keys=st.lists(TEXTS, max_size=3),
    properties=st.dictionaries(NAMES, TEXTS, max_size=3),
    idempotency_key=TEXTS,
)
ORDER = Record(
    body=b"order 7",
    tags=["new", "eu"],
    keys=["7", "customer-9"],
    ordering_key="9",
    properties={"a": "1", "b": "2"},
    idempotency_key="order-7",
)


def content(record: Record) -> tuple[object, ...]:
    """The same as two records contain the same."""
    properties = {name: value for name, value in record.properties.items() if name not in TRACE_PROPERTIES}
    return record.body, record.ordering_key, sorted(record.tags), sorted(record.keys), properties


@given(one=RECORDS, other=RECORDS)
@settings(max_examples=300)
def test_two_records_have_one_digest_where_they_contain_the_same_and_only_there(
    one: Record, other: Record
) -> None:
    assert (digest(one) == digest(other)) == (content(one) == content(other))


@pytest.mark.parametrize(
    ("given_", "is_same"),
    [
        ({"tags": ["eu", "new"]}, True),
        ({"keys": ["customer-9", "7"]}, True),
        ({"properties": {"b": "2", "a": "1", "traceparent": "00-ab-cd-01", "baggage": "x=1"}}, True),
        ({"idempotency_key": "another"}, True),
        ({"scheduled_digest": bytes(16)}, True),
        ({"body": b"order 8"}, False),
        ({"body": b""}, False),
        ({"tags": ["new"]}, False),
        ({"tags": ["new", "eu", "eu"]}, False),
        ({"keys": ["7", "customer-9", ""]}, False),
        ({"tags": ["new"], "keys": ["eu", "7", "customer-9"]}, False),
        ({"ordering_key": ""}, False),
        ({"properties": {"a": "2", "b": "1"}}, False),
        ({"properties": {"a": "1", "b": "2", "trace": "x"}}, False),
        ({"properties": {"a1b": "2"}}, False),
    ],
)
def test_what_is_the_same_when_it_comes_again(given_: dict[str, Any], is_same: bool) -> None:
    again = Record()
    again.CopyFrom(ORDER)
    for name, value in given_.items():
        again.ClearField(name)  # type: ignore[arg-type]
        again.MergeFrom(Record(**{name: value}))
    assert (digest(again) == digest(ORDER)) is is_same


def test_after_an_update_what_was_scheduled_first_is_compared() -> None:
    updated = Record(body=b"order 7, paid", scheduled_digest=digest(ORDER))
    assert scheduled_digest(updated) == digest(ORDER) == scheduled_digest(ORDER)
    assert scheduled_digest(updated) != digest(Record(body=b"order 7, paid"))


def test_a_digest_stays_as_it_was_stored() -> None:
    assert digest(ORDER).hex() == "a72e1b1efea7c7bd0f80a4e066cc49f8"
    assert digest(Record()).hex() == "219b1ae1f791d090169ce9934b85f883"
    assert len(digest(Record())) == DIGEST_BYTES
