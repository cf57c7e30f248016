"""Times of records: appended by the leader, whatever a record said before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarry.client.records import bodies_of, body_of, record
from tarry.proto.record_times import STORED_BYTES, TIMES_BYTES, times
from tarry.proto.tarry_message_pb2 import Record, RecordTimes

NOW_MS = 1_780_000_000_000
MS = st.integers(0, 253_402_300_799_999)


@given(st.binary(max_size=300), MS, MS, MS, MS, st.booleans())
def test_the_appended_times_count_and_the_rest_stays(
    body: bytes, born_ms: int, stored_ms: int, told_ms: int, other_ms: int, tagged: bool
) -> None:
    before = record(body, ["t"] if tagged else [], [], None) + Record(born_ms=told_ms).SerializeToString()
    stored = before + Record(stored_ms=other_ms).SerializeToString() + times(born_ms, stored_ms or 1)
    parsed = Record.FromString(stored)
    assert (parsed.born_ms, parsed.stored_ms) == (born_ms, stored_ms or 1)
    assert (parsed.body, list(parsed.tags)) == (body, ["t"] if tagged else [])
    read = RecordTimes.FromString(stored)
    assert (read.born_ms, read.stored_ms) == (born_ms, stored_ms or 1)
    assert body_of(stored) == body


@given(st.lists(st.binary(max_size=200), max_size=20), st.sampled_from([0, NOW_MS]))
def test_bodies_are_read_from_records_with_times(bodies: list[bytes], born_ms: int) -> None:
    timed = [record(body, [], [], None) + times(born_ms, NOW_MS) for body in bodies]
    assert bodies_of(timed) == bodies
    alike = [record(b"%3d" % n, [], [], None) + times(born_ms, NOW_MS + n) for n in range(20)]
    assert bodies_of(alike) == [b"%3d" % n for n in range(20)]
    odd = [*alike, alike[0][: -len(times(born_ms, NOW_MS))] + Record(body=b"12345678901").SerializeToString()]
    assert bodies_of(odd)[-1] == b"12345678901"  # as protobuf reads it


def test_a_body_that_looks_like_times_is_read_whole() -> None:
    body = b"x" + times(NOW_MS, NOW_MS)
    assert body_of(record(body, [], [], None)) == body
    assert body_of(record(body, [], [], None) + times(0, NOW_MS)) == body


@given(st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 1 << 42), st.booleans())
def test_what_a_producer_writes_behind_the_body_hides_no_later_body(
    first: bytes, last: bytes, told_ms: int, born: bool
) -> None:
    told = b"\x58" + RecordTimes(stored_ms=told_ms or 1).SerializeToString()[1:]
    forged = record(first, [], [], None) + told + Record(body=last).SerializeToString()
    stored = forged + times(NOW_MS if born else 0, NOW_MS)
    assert body_of(stored) == Record.FromString(stored).body
    assert bodies_of([stored, stored]) == [Record.FromString(stored).body] * 2


def test_five_bytes_of_a_producer_do_not_pass_for_times() -> None:
    forged = record(b"abc", [], [], None) + b"\x58\x01" + Record(body=b"y").SerializeToString()
    stored = forged + times(0, NOW_MS)
    assert len(stored) == len(record(b"abc", [], [], None)) + TIMES_BYTES
    assert body_of(stored) == b"y"
    bare = record(b"abc", [], [], None) + times(NOW_MS, NOW_MS)
    assert bodies_of([bare, stored]) == [b"abc", b"y"]


def test_times_take_a_constant_number_of_bytes() -> None:
    for now_ms in (NOW_MS, 1 << 35, (1 << 42) - 1):
        assert (len(times(now_ms, now_ms)), len(times(0, now_ms))) == (TIMES_BYTES, STORED_BYTES)
