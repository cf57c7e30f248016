"""A request's fields are counted without parsing it, as parsing would."""

from __future__ import annotations

import pytest

from tarry.node.edge.field_count import fields, more_fields
from tarry.proto import tarry_consumer_pb2 as pb


def test_each_field_is_told_with_its_number_and_content() -> None:
    request = pb.Subscribe(
        topic="t", credit=300, tags=["a", ""], in_hand_bytes_max=2**63, holding=[pb.Holding(offset=[1, 2])]
    )
    told = list(fields(request.SerializeToString()))
    assert [number for number, _ in told] == [1, 4, 6, 6, 7, 8]
    assert [content for number, content in told if number == 6] == [b"a", b""]
    assert pb.Holding.FromString(told[4][1]) == request.holding[0]


def test_fixed_fields_that_are_not_packed_are_fields() -> None:
    assert [number for number, _ in fields(b"\x11" + bytes(8) + b"\x1d" + bytes(4))] == [2, 3]


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\x05abc", b"\x80", b"\xff" * 20, b"\x0e", b"\x11abc"])
def test_what_is_malformed_ends_it(raw: bytes) -> None:
    assert list(fields(b"\x08\x01" + raw)) == [(1, b"")]


def test_more_fields_than_so_many() -> None:
    raw = b"\x0a\0" * 10
    assert [more_fields(raw, most) for most in (9, 10)] == [True, False]


def test_fields_behind_a_group_and_within_it_are_counted() -> None:
    for raw in (b"\x5b\x5c" + b"\x4a\0" * 10, b"\x5b" + b"\x4a\0" * 10 + b"\x5c"):
        pb.Subscribe.FromString(raw)
        assert [more_fields(raw, most) for most in (11, 12)] == [True, False]
