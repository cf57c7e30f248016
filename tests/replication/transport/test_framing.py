"""Frames on a byte stream that comes in whatever pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.replication.transport.framing import StreamBroken, Unframer, framed, opening
from tarry.replication.transport.stream_listener import TICKET_S, TICKETS_MAX, Tickets


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 40)))
def test_frames_come_out_whole_and_in_order_however_they_are_cut(
    frames: list[bytes], sizes: list[int]
) -> None:
    stream = opening(bytes(range(16))) + b"".join(map(framed, frames))
    unframing, ticket, got = Unframer(50), None, []
    for size in itertools.chain(sizes, itertools.repeat(7)):
        piece, stream = stream[:size], stream[size:]
        unframing.put(piece)
        ticket = ticket or unframing.ticket()
        if ticket:
            got += unframing.frames()
        if not stream:
            break
    assert ticket == bytes(range(16))
    assert got == frames


def test_a_frame_of_the_largest_size_fits_and_a_larger_one_does_not() -> None:
    unframing = Unframer(10)
    unframing.put(framed(bytes(10)) + framed(bytes(11)))
    frames = unframing.frames()
    assert next(frames) == bytes(10)
    with pytest.raises(StreamBroken):
        next(frames)


@pytest.mark.parametrize("opened", [b"GET / HTTP", b"\x00", b"tarry/2\n"])
def test_a_stream_of_something_else_is_known_by_its_first_bytes(opened: bytes) -> None:
    unframing = Unframer(10)
    unframing.put(opened)
    with pytest.raises(StreamBroken):
        unframing.ticket()


@pytest.mark.parametrize("lost", [1, 8, 12])
def test_a_stream_that_lost_bytes_is_known_at_the_next_frame(lost: int) -> None:
    unframing = Unframer(100)
    unframing.put((framed(bytes(20)) + framed(b"second"))[lost:])
    with pytest.raises(StreamBroken):
        list(unframing.frames())


def test_a_ticket_is_good_once_and_for_a_while() -> None:
    tickets = Tickets()
    early, late = tickets.give("n1", 0.0), tickets.give("n2", 0.0)
    assert tickets.take(early, TICKET_S - 0.1) == "n1"
    assert tickets.take(early, TICKET_S - 0.1) == ""
    assert tickets.take(late, TICKET_S) == ""
    assert tickets.take(bytes(16), 0.0) == ""


def test_the_oldest_ticket_goes_where_there_are_too_many() -> None:
    tickets = Tickets()
    given = [tickets.give("n1", 0.0) for _ in range(TICKETS_MAX + 1)]
    assert [tickets.take(ticket, 0.0) for ticket in (given[0], given[1], given[-1])] == ["", "n1", "n1"]
