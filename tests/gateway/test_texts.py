"""JSON, bodies, times and handles: what is read is what was written, and nothing is misread."""

from __future__ import annotations

import base64
import json
import threading
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.results import MessageState, StoredMessage
from tarry.gateway.handle import Holder
from tarry.gateway.http import asking, handles, strict_json
from tarry.gateway.http.bodies import INLINE_BYTES_MAX, bytes_of, fields_of
from tarry.gateway.http.fields import BodyQuery
from tarry.gateway.http.handles import Handle
from tarry.gateway.times import time_ms

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
).filter(lambda value: "Infinity" not in json.dumps(value))


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@given(VALUES)
def test_json_reads_as_it_was_written(value: object) -> None:
    written = strict_json.serialize(value)
    assert strict_json.parse(written) == value
    assert json.loads(written) == value


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff{}", "byte 0 is not UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "BOM"),
        (b'{"a":1,"b":2,"a":3}', "'a' is twice"),
        (b'[{"x":{"y":1,"y":1}}]', "'y' is twice"),
        (b"NaN", "NaN is no JSON"),
        (b"[Infinity]", "Infinity is no JSON"),
        (b"[-Infinity]", "-Infinity is no JSON"),
        (b"1e999", "out of range"),
        (b"1" * 5_000, "digits"),
        (b"{} {}", "Extra data"),
        (deep(strict_json.DEPTH_MAX + 1), "deep"),
        (deep(100_000), "deep"),
        (b'{"a":' * 100_000, "deep"),
        (b'"' + b'\\"' * 500_000, "Unterminated"),
        (b'"[[[[' + b"[" * 500_000, "Unterminated"),
    ],
)
def test_what_could_be_misread_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strict_json.parse(raw)


def test_the_depth_is_bounded_at_its_edge() -> None:
    assert strict_json.parse(deep(strict_json.DEPTH_MAX)) is not None
    assert strict_json.parse(b'["' + b"[" * 99 + b'\\"[", {"]": "}"}]') is not None
    with pytest.raises(ValueError, match="deep"):
        strict_json.parse(deep(strict_json.DEPTH_MAX + 1))


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        strict_json.serialize({"a": "\ud800"})


@given(st.binary())
def test_any_bytes_read_back_from_base64_and_text_from_text(body: bytes) -> None:
    shown = fields_of(body, "base64")
    assert shown == {"body_base64": base64.b64encode(body).decode()}
    assert bytes_of(shown) == body
    assert bytes_of(fields_of(body, "text")) == body


@given(VALUES)
def test_a_json_body_reads_back_as_its_value(value: object) -> None:
    stored = bytes_of({"body_json": value})
    assert fields_of(stored, "json") == {"body_json": value}
    assert fields_of(stored, "text") == {"body": stored.decode()}


def test_a_body_that_is_not_json_is_answered_as_text_or_base64() -> None:
    assert fields_of(b"hello", "json") == {"body": "hello"}
    assert fields_of(b"\xff", "json") == {"body_base64": "/w=="}
    assert fields_of(b'{"a":1,"a":2}', "json") == {"body": '{"a":1,"a":2}'}
    assert fields_of(b'{"\\ud800":1}', "json") == {"body": '{"\\ud800":1}'}  # has no form in UTF-8
    assert fields_of(b'["\\uD83D\\uDE00"]', "json") == {"body_json": ["\U0001f600"]}
    assert fields_of(b"", "text") == {"body": ""}
    assert bytes_of({}) == b""


@pytest.mark.parametrize("text", ["/w", "a-_=", "////=", "ä===", " /w=="])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        bytes_of({"body_base64": text})


async def test_what_is_made_of_large_bodies_takes_no_turn_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, read_in = threading.get_ident(), list[int]()
    read = strict_json.parse

    def parse(raw: bytes) -> Any:
        read_in.append(threading.get_ident())
        return read(raw)

    monkeypatch.setattr(strict_json, "parse", parse)
    most = INLINE_BYTES_MAX - asking.MESSAGE_BYTES
    for size_bytes in (most, most + 1):
        body = b'"' + b"x" * (size_bytes - 2) + b'"'
        message = StoredMessage("i", "t", 1, MessageState.PENDING, body, (), (), "", "", {})

        async def get(_: str, found: Any = message) -> Any:
            return found

        call: Any = SimpleNamespace(
            producer=SimpleNamespace(get=get), path={"id": "i"}, query=BodyQuery(body_as="json")
        )
        assert json.loads(await asking.get(call))["body_json"] == "x" * (size_bytes - 2)
    assert read_in[0] == here
    assert read_in[1] != here


def test_two_bodies_are_refused() -> None:
    with pytest.raises(ValueError, match="give one of body, body_json"):
        bytes_of({"body": "a", "body_json": None})


@given(st.datetimes(timezones=st.sampled_from([timezone(timedelta(minutes=m)) for m in (-765, 0, 90)])))
def test_a_time_is_rounded_up_so_that_nothing_is_early(time: datetime) -> None:
    exact_us = (time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)  # noqa: UP017
    assert 0 <= time_ms(time.isoformat()) * 1_000 - exact_us < 1_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T00:00:00.001000000Z", 1),
        ("1970-01-01T00:00:00.001000001Z", 2),
        ("1970-01-01T00:00:00,001000500+00:00", 2),
        ("1970-01-01T00:00:00.0010005Z", 2),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_800_000),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_nanoseconds_are_rounded_up_too(text: str, expected: int) -> None:
    assert time_ms(text) == expected


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-12-01", "2026-12-01T09:00:00", "1795219200123"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|no time"):
        time_ms(text)


NAMES = st.text("abcXYZ019_-.~", min_size=1, max_size=100)


INCARNATIONS = st.just(0) | st.integers(1, 2**64 - 1)


@given(NAMES, NAMES, NAMES, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), INCARNATIONS)
def test_a_handle_reads_back_whole(
    topic: str, group: str, name: str, queue: int, offset: int, incarnation: int
) -> None:
    handle = Handle(Holder(topic, group, name, queue, incarnation), offset)
    assert handles.parse(str(handle)) == handle
    assert str(handle).replace(".", "", 1).replace("-", "").replace("_", "").isalnum()


def encoded(value: object) -> str:
    raw = json.dumps(value).encode()
    return f"m1.{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m1.",
        "m2.WyJ0IiwiZyIsImMiLDAsMF0",
        "m1.###",
        "m1." + "A" * 1_100,
        str(Handle(Holder("t", "g", "c", 0, 0), 7))[:-2],
        encoded({}),
        encoded(["t", "g", "c", 0, 0]),
        encoded(["t", "g", "c", 0, 0, 0, 0]),
        encoded(["t", "g", "c", 0, 0, -1]),
        encoded(["t", "g", "c", 0, -1, 0]),
        encoded(["t", "g", "c", 2**32, 0, 0]),
        encoded(["t", "g", "c", 0, 2**64, 0]),
        encoded(["t", "g", "c", 0, 0, 2**64]),
        encoded(["t", "g", "c", True, 0, 0]),
        encoded(["t", "g", "c", 0, True, 0]),
        encoded(["t", "g", "c", 0, 0, 1.0]),
        encoded(["", "g", "c", 0, 0, 0]),
        encoded(["t", "\ud800", "c", 0, 0, 0]),
        encoded([["t"], "g", "c", 0, 0, 0]),
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no handle"):
        handles.parse(text)


@given(st.text())
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    try:
        assert str(handles.parse(text)) == text
    except ValueError as error:
        assert "handle" in str(error)
