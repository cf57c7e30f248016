"""Records: the quick ways give what protobuf gives."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.aio import Client
from tarry.client.records import bodies_of, body_of, body_records, record, varint
from tarry.client.settings import Settings
from tarry.proto.tarry_message_pb2 import Record

texts = st.lists(st.text(max_size=8), max_size=3)


@given(st.binary(max_size=300))
def test_a_record_of_a_body_reads_as_protobuf_s_own(body: bytes) -> None:
    assert Record.FromString(body_records([body])[0]) == Record(body=body)
    assert body_of(body_records([body])[0]) == body
    assert body_of(Record(body=body).SerializeToString()) == body


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_bodies_at_the_edges_of_the_length_s_encoding_come_back_whole(length: int) -> None:
    body = b"x" * length
    assert Record.FromString(body_records([body])[0]).body == body
    assert body_of(body_records([body])[0]) == body


@given(
    st.binary(max_size=40),
    texts,
    texts,
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.text(max_size=8),
    st.text(max_size=8),
)
def test_any_message_reads_as_it_was_written(
    body: bytes,
    tags: list[str],
    keys: list[str],
    properties: dict[str, str],
    ordering_key: str,
    idempotency_key: str,
) -> None:
    written = record(body, tags, keys, properties, ordering_key, idempotency_key)
    read = Record.FromString(written)
    assert (read.ordering_key, read.idempotency_key) == (ordering_key, idempotency_key)
    assert (read.body, list(read.tags), list(read.keys), dict(read.properties)) == (
        body,
        tags,
        keys,
        properties,
    )
    assert body_of(written) == body


@given(st.lists(st.tuples(st.binary(max_size=20), texts), max_size=20))
def test_many_bodies_are_read_as_one_by_one(messages: list[tuple[bytes, list[str]]]) -> None:
    written = [record(body, tags, (), None) for body, tags in messages]
    assert bodies_of(written) == [body for body, _ in messages]


@given(st.lists(st.binary(min_size=130, max_size=130), max_size=10))
def test_bodies_of_one_length_are_read_as_one_by_one(bodies: list[bytes]) -> None:
    assert bodies_of(body_records(bodies)) == bodies


def test_a_record_of_equal_size_that_is_no_bare_body_is_not_mistaken_for_one() -> None:
    tagged = Record(tags=["ab"]).SerializeToString()
    bare = body_records([b"ab"])[0]
    assert len(tagged) == len(bare)
    assert bodies_of([bare, tagged]) == [b"ab", b""]


def test_bytes_that_are_no_record_are_an_error() -> None:
    with pytest.raises(DecodeError):
        body_of(b"\x22\xff\xff")


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_varints_are_protobuf_s(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded


@pytest.mark.parametrize("columns", [{"tags": "spring", "keys": ()}, {"tags": (), "keys": "order-7"}])
async def test_a_text_is_not_taken_for_its_characters(columns: dict[str, Any]) -> None:
    """A group with such a tag would be given nothing, and acknowledge all."""
    with pytest.raises(TypeError, match=r"must be several texts, as a list, not '(spring|order-7)'"):
        record(b"x", properties=None, **columns)
    client = Client(Settings(servers=("127.0.0.1:1",)))
    for make in (client.consumer, client.puller):
        with pytest.raises(TypeError, match="tags must be several texts"):
            make("t", "g", tags="spring")
