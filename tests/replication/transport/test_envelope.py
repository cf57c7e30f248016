"""Frames are let through at most once, in order, from whom they say."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto.tarry_peer_pb2 import PeerFrame, PeerMessage, Vote
from tarry.replication.raft.membership import Origin
from tarry.replication.transport.envelope import (
    INCARNATIONS_MAX,
    FrameRefused,
    Identity,
    Inbound,
    Outbound,
    SenderNotCertified,
)

MESSAGE = PeerMessage(vote=Vote(term=3)).SerializeToString()


def outbound(boot: int = 1, incarnation: int = 7) -> Outbound:
    way = Outbound(Identity("tarry", "n1", incarnation, boot), "n2", itertools.count(1))
    way.begin()
    return way


def inbound() -> Inbound:
    return Inbound("tarry", "n2")


def test_a_frame_brings_its_messages() -> None:
    peer, messages, origin = inbound().open(outbound().seal([MESSAGE, MESSAGE]))
    assert (peer, origin) == ("n1", Origin(7))
    assert [message.vote.term for message in messages] == [3, 3]


def test_a_repeated_or_overtaken_frame_brings_nothing() -> None:
    way, arrivals = outbound(), inbound()
    first, second = way.seal([MESSAGE]), way.seal([MESSAGE])
    assert arrivals.open(second)[1]
    assert arrivals.open(second)[1] == []
    assert arrivals.open(first)[1] == []


def test_each_of_two_streams_has_its_own_order_and_waits_for_no_other() -> None:
    way, arrivals = outbound(), inbound()
    bulk = [way.seal([MESSAGE], bulk=True) for _ in range(3)]
    urgent = [way.seal([MESSAGE]) for _ in range(3)]
    came = [bool(arrivals.open(frame)[1]) for frame in (*urgent, *bulk, urgent[1], bulk[1])]
    assert came == [True] * 6 + [False] * 2


def test_a_new_pair_of_streams_ends_both_of_the_earlier_pair() -> None:
    way, arrivals = outbound(), inbound()
    left = [way.seal([MESSAGE], bulk=bulk) for bulk in (False, True)]
    way.begin()
    assert arrivals.open(way.seal([MESSAGE]))[1]
    assert [arrivals.open(frame)[1] for frame in left] == [[], []]
    assert arrivals.open(way.seal([MESSAGE], bulk=True))[1]


def in_pieces(way: Outbound, message: bytes, size: int) -> list[bytes]:
    pieces = [message[start : start + size] for start in range(0, len(message), size)]
    last = len(pieces) - 1
    return [
        way.seal([piece], bulk=True, continued=place > 0, continues=place < last)
        for place, piece in enumerate(pieces)
    ]


@given(st.integers(2, 40), st.sets(st.integers(0, 40), max_size=3))
def test_a_message_in_pieces_comes_whole_or_not_at_all(size: int, lost: set[int]) -> None:
    way, arrivals = outbound(), inbound()
    large = PeerMessage(vote=Vote(term=5, state=b"dispatched" * 10)).SerializeToString()
    first = in_pieces(way, large, size)
    frames = [*first, *in_pieces(way, MESSAGE, len(MESSAGE) - 1), way.seal([MESSAGE], bulk=True)]
    came = []
    for place, frame in enumerate(frames):
        if place not in lost:
            came += arrivals.open(frame)[1]
    whole = [range(len(first)), range(len(first), len(frames) - 1), range(len(frames) - 1, len(frames))]
    messages = [large, MESSAGE, MESSAGE]
    kept = [message for message, of in zip(messages, whole, strict=True) if lost.isdisjoint(of)]
    assert [message.SerializeToString() for message in came] == kept


def test_what_comes_on_the_other_stream_does_not_break_a_message_in_pieces() -> None:
    way, arrivals = outbound(), inbound()
    first, *rest = in_pieces(way, MESSAGE * 9, len(MESSAGE))
    assert arrivals.open(first)[1] == []
    assert arrivals.open(way.seal([MESSAGE]))[1]
    assert [len(arrivals.open(frame)[1]) for frame in rest] == [0] * 7 + [1]


def test_pieces_of_an_earlier_pair_of_streams_are_not_joined_with_those_of_the_next() -> None:
    way, arrivals = outbound(), inbound()
    first, _ = in_pieces(way, MESSAGE, len(MESSAGE) - 1)
    arrivals.open(first)
    way.begin()
    assert arrivals.open(way.seal([MESSAGE[-1:]], bulk=True, continued=True))[1] == []


def test_a_message_that_was_begun_and_not_ended_is_not_joined_with_the_next() -> None:
    way, arrivals = outbound(), inbound()
    begun = way.seal([b"begun"], bulk=True, continues=True)
    assert arrivals.open(begun)[1] == []
    assert [len(arrivals.open(frame)[1]) for frame in in_pieces(way, MESSAGE, len(MESSAGE) - 1)] == [0, 1]


def test_a_message_without_end_is_refused_at_its_limit() -> None:
    way, arrivals = outbound(), Inbound("tarry", "n2", message_bytes_max=100)
    frames = in_pieces(way, bytes(101), 50)
    assert [arrivals.open(frame)[1] for frame in frames[:2]] == [[], []]
    with pytest.raises(FrameRefused, match="without end"):
        arrivals.open(frames[2])


@pytest.mark.parametrize("pieces", [[], [b""], [MESSAGE, MESSAGE]])
def test_a_frame_that_says_it_is_a_piece_and_is_not_one_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(FrameRefused):
        inbound().open(outbound().seal(pieces, continues=True))


def test_who_may_not_speak_for_the_sender_is_refused_and_leaves_no_trace() -> None:
    way, arrivals = outbound(), inbound()
    frame = way.seal([MESSAGE])
    with pytest.raises(SenderNotCertified, match="n1"):
        arrivals.open(frame, {"shop", "n3"})
    assert arrivals.open(frame, {"n1"})[1]  # not taken for out of date


def test_what_is_left_of_an_earlier_stream_brings_nothing() -> None:
    way, arrivals = outbound(), inbound()
    left = [way.seal([MESSAGE]) for _ in range(5)][-1]
    way.begin()
    assert arrivals.open(way.seal([MESSAGE]))[1]
    assert arrivals.open(left)[1] == []


def test_a_receiver_that_was_left_and_found_again_hears_the_sender() -> None:
    """Found by the simulator (seed 501): a removed member that was added again heard nobody."""
    identity, epochs, arrivals = Identity("tarry", "n1", 7, 1), itertools.count(1), inbound()
    for _ in range(2):
        way = Outbound(identity, "n2", epochs)
        way.begin()
        assert arrivals.open(way.seal([MESSAGE]))[1]


def test_what_is_left_of_an_earlier_start_brings_nothing() -> None:
    before, arrivals = outbound(boot=1), inbound()
    left = before.seal([MESSAGE])
    assert arrivals.open(outbound(boot=2).seal([MESSAGE]))[1]
    assert arrivals.open(left)[1] == []


def test_a_replaced_disk_is_a_new_sender_and_what_is_repeated_of_the_old_one_brings_nothing() -> None:
    arrivals = inbound()
    old, new = outbound(boot=9, incarnation=7), outbound(boot=1, incarnation=8)
    said = old.seal([MESSAGE])
    assert arrivals.open(said)[1]
    assert arrivals.open(new.seal([MESSAGE]))[1]
    assert arrivals.open(said)[1] == []


def test_what_comes_late_of_an_old_disk_does_not_make_its_successor_deaf() -> None:
    """Found by the simulator (seed 1509): one that heard the other's old disk last was deaf."""
    arrivals = inbound()
    old, new = outbound(incarnation=7), outbound(incarnation=8)
    assert arrivals.open(new.seal([MESSAGE]))[1:] == (arrivals_of(MESSAGE), Origin(8))
    assert arrivals.open(old.seal([MESSAGE]))[1:] == (arrivals_of(MESSAGE), Origin(7))
    assert arrivals.open(new.seal([MESSAGE]))[1:] == (arrivals_of(MESSAGE), Origin(8))


def test_what_an_old_disk_began_to_say_takes_no_memory_beside_its_successor() -> None:
    old, new, arrivals = outbound(incarnation=7), outbound(incarnation=8), inbound()
    first, *rest = in_pieces(old, MESSAGE * 9, len(MESSAGE))
    arrivals.open(first)
    arrivals.open(new.seal([MESSAGE]))
    assert not any(any(streams.pieces.values()) for streams in arrivals._heard["n1"].values())
    assert [arrivals.open(frame)[1] for frame in rest] == [[]] * len(rest)


def arrivals_of(*sealed: bytes) -> list[PeerMessage]:
    return [PeerMessage.FromString(message) for message in sealed]


def test_a_sender_of_ever_new_incarnations_takes_no_more_memory() -> None:
    arrivals = inbound()
    for incarnation in range(1, 3 * INCARNATIONS_MAX):
        assert arrivals.open(outbound(incarnation=incarnation).seal([MESSAGE]))[1]
    assert len(arrivals._heard["n1"]) == INCARNATIONS_MAX


@pytest.mark.parametrize("change", [{"cluster": "other"}, {"receiver": "n3"}, {"sender": ""}, {"crc32c": 1}])
def test_a_frame_of_another_cluster_for_another_node_or_with_a_wrong_checksum_is_refused(
    change: dict[str, object],
) -> None:
    frame = PeerFrame.FromString(outbound().seal([MESSAGE]))
    for field, value in change.items():
        setattr(frame, field, value)
    with pytest.raises(FrameRefused):
        inbound().open(frame.SerializeToString())


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(FrameRefused):
        inbound().open(garbage)


def test_a_receiver_can_tell_which_journal_says_what_it_lets_through() -> None:
    arrivals = inbound()
    assert arrivals.open(outbound().seal([MESSAGE]))[2] == Origin(7)
    emptied = Outbound(Identity("tarry", "n1", 8, 1, joined=True), "n2", itertools.count(1))
    assert arrivals.open(emptied.seal([MESSAGE]))[2] == Origin(8, joined=True)
