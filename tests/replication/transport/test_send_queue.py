"""What waits for a stream is bounded in messages and bytes, and leaves in frames of bounded size."""

from __future__ import annotations

import itertools

from tarry.proto.tarry_peer_pb2 import PeerFrame
from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport.envelope import Identity, Outbound
from tarry.replication.transport.send_queue import PeerQueue

SETTINGS = ReplicationSettings(frame_bytes_max=100, peer_queue_messages_max=3, peer_queue_bytes_max=400)


def outbound() -> Outbound:
    return Outbound(Identity("tarry", "n1", 1, 1), "n2", itertools.count(1))


def pieces(queue: PeerQueue, way: Outbound) -> list[int]:
    """Bytes of each message, or piece of one, of the next frame."""
    return list(map(len, PeerFrame.FromString(queue.frame(way)).messages))


def test_a_queue_takes_so_many_messages_and_bytes_and_more_once_some_have_left() -> None:
    queue, way = PeerQueue(SETTINGS, bulk=False), outbound()
    assert [queue.put([bytes(size)]) for size in (10, 20, 30, 40)] == [True] * 3 + [False]
    assert pieces(queue, way) == [10, 20, 30]
    assert [queue.put([bytes(size)]) for size in (300, 101, 100)] == [True, False, True]
    assert [pieces(queue, way) for _ in range(4)] == [[100], [100], [100], [100]]
    assert not queue
    assert queue.put([bytes(400)])  # as before: what has left in pieces is counted no more
    assert not queue.put([b"x"])


def test_a_message_that_does_not_fit_beside_others_waits_for_the_next_frame() -> None:
    queue, way = PeerQueue(SETTINGS, bulk=False), outbound()
    assert queue.put([bytes(60), bytes(41), bytes(250)])
    assert [pieces(queue, way) for _ in range(5)] == [[60], [41], [100], [100], [50]]


def test_a_queue_that_is_cleared_says_nothing_of_what_it_had_begun() -> None:
    queue, way = PeerQueue(SETTINGS, bulk=True), outbound()
    assert queue.put([bytes(250)])
    assert pieces(queue, way) == [100]
    queue.clear()
    assert not queue
    assert queue.put([bytes(150), bytes(250)])
    assert [pieces(queue, way) for _ in range(2)] == [[100], [50]]
