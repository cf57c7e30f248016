"""Frames between two replicas: sealed in order by the sender, let through at most once by the receiver.

    Outbound.seal ─► PeerFrame {incarnation, boot, epoch, sequence, crc32c, messages} ─► Inbound.open

Raft's engine cannot bear a message twice or late, and a broken stream's leftovers may arrive after its
successor has begun. So a frame counts only if it is newer than every one let through before on its stream.
Of two incarnations of a sender nothing here says which is the later: a node whose disk was replaced may be
heard before what its old disk said arrives, or its old disk may be started again. So each incarnation has
streams of its own. Of a member that was added, membership says whose answers count; a founder may have begun
anew without a word of it, so consensus takes no answer to one of its journals for an answer to another.

A sender has two streams to a receiver, opened and closed together, in one epoch. What order holds:

    appends and NeedSnapshot ─► bulk stream     in order among themselves
    everything else          ─► urgent stream   in order among themselves; before or after any of the bulk

Nothing that is decided by order lies across the two. A heartbeat says nothing of the log; an append that
comes after a heartbeat, a vote or a notice sent later is judged by its term and its place in the log; a
transfer's request to campaign follows its heartbeats on the same stream, and is made only once the log has
been answered. A message that is larger than a frame travels in pieces, one a frame; a gap voids what came
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import google_crc32c
from google.protobuf.message import DecodeError

from tarry.proto.tarry_peer_pb2 import PeerFrame, PeerMessage
from tarry.replication.raft.membership import Origin

INCARNATIONS_MAX = 16
"""Of one sender; of more, the one that was heard first is forgotten."""


class FrameRefused(Exception):
    """Not a frame of ours for us. End the stream: what follows cannot be trusted either."""


class SenderNotCertified(FrameRefused):
    """The caller's certificate is not the sender's. Nothing that it says counts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the sealing side: a node of a cluster, in one of its starts."""

    cluster: str
    node: str
    incarnation: int
    boot: int
    joined: bool = False


@dataclass(slots=True)
class Outbound:
    """Frames of one sender to one receiver."""

    identity: Identity
    receiver: str
    epochs: Iterator[int]
    """Of the sender's start, not of this way: a peer that was left and found again must take a later one."""
    epoch: int = 0
    _sequences: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def begin(self) -> None:
        """Begin a new pair of streams: the frames of earlier ones are out of date."""
        self.epoch = next(self.epochs)
        self._sequences = {False: 0, True: 0}

    def seal(
        self,
        messages: Sequence[bytes],
        *,
        bulk: bool = False,
        continued: bool = False,
        continues: bool = False,
    ) -> bytes:
        """Return the next frame; `continued`, `continues`: its piece is not a message's first, or last."""
        self._sequences[bulk] += 1
        return PeerFrame(
            cluster=self.identity.cluster,
            sender=self.identity.node,
            receiver=self.receiver,
            incarnation=self.identity.incarnation,
            boot=self.identity.boot,
            epoch=self.epoch,
            sequence=self._sequences[bulk],
            crc32c=_crc32c(messages),
            messages=messages,
            bulk=bulk,
            continued=continued,
            continues=continues,
            joined=self.identity.joined,
        ).SerializeToString()


@dataclass(slots=True)
class _Streams:
    """State of the frames of one sender's incarnation: of its latest boot and epoch."""

    start: tuple[int, int] = (-1, -1)  # boot, epoch
    sequences: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    pieces: dict[bool, list[bytes]] = field(default_factory=lambda: {False: [], True: []})
    """Of the message that is on its way on each stream."""

    def void(self) -> None:
        """Forget the pieces of what is on its way."""
        self.pieces = {False: [], True: []}

    def take(self, frame: PeerFrame) -> bool:
        """Return whether the frame is newer than all before on its stream; if so, none before it counts."""
        start = frame.boot, frame.epoch
        if start > self.start:
            self.start = start
            self.sequences = {False: 0, True: 0}
            self.pieces = {False: [], True: []}
        before = self.sequences[frame.bulk]
        if start < self.start or frame.sequence <= before:
            return False
        if frame.sequence > before + 1:
            self.pieces[frame.bulk].clear()
        self.sequences[frame.bulk] = frame.sequence
        return True


class Inbound:
    """Frames that one receiver has let through, by sender."""

    def __init__(self, cluster: str, node: str, message_bytes_max: int = 8 << 20) -> None:
        self.cluster = cluster
        self._node = node
        self._message_bytes_max = message_bytes_max
        self._heard: dict[str, dict[int, _Streams]] = {}

    def open(self, sealed: bytes, certified: Set[str] | None = None) -> tuple[str, list[PeerMessage], Origin]:
        """Return the sender, its messages that are whole, none if the frame is out of date, and their origin.

        `certified`: names that the caller has proven; None: none were asked for. Raises FrameRefused.
        """
        try:
            frame = PeerFrame.FromString(sealed)
            in_pieces = frame.continued or frame.continues
            messages = [] if in_pieces else [PeerMessage.FromString(message) for message in frame.messages]
        except DecodeError as error:
            raise FrameRefused("not a frame") from error
        if (frame.cluster, frame.receiver) != (self.cluster, self._node) or not frame.sender:
            raise FrameRefused(f"from {frame.sender} for {frame.receiver} of {frame.cluster}")
        if certified is not None and frame.sender not in certified:
            raise SenderNotCertified(frame.sender)
        if frame.crc32c != _crc32c(frame.messages):
            raise FrameRefused("checksum")
        streams, origin = self._streams(frame), Origin(frame.incarnation, frame.joined)
        if not streams.take(frame):
            return frame.sender, [], origin
        if in_pieces:
            messages = self._joined(frame, streams.pieces[frame.bulk])
        return frame.sender, messages, origin

    def _streams(self, frame: PeerFrame) -> _Streams:
        """Return the streams of the frame's sender in its incarnation."""
        heard = self._heard.setdefault(frame.sender, {})
        if frame.incarnation not in heard:
            for other in heard.values():  # what they have begun is not worth its memory
                other.void()
            heard[frame.incarnation] = _Streams()
            if len(heard) > INCARNATIONS_MAX:
                del heard[next(iter(heard))]
        return heard[frame.incarnation]

    def _joined(self, frame: PeerFrame, pieces: list[bytes]) -> list[PeerMessage]:
        """Return the message whose last piece this is; none: it goes on, or its beginning was lost."""
        if len(frame.messages) != 1 or not frame.messages[0]:
            raise FrameRefused("not one piece")
        if not frame.continued:
            pieces.clear()
        elif not pieces:
            return []
        pieces += frame.messages
        if sum(map(len, pieces)) > self._message_bytes_max:
            raise FrameRefused("a message without end")
        if frame.continues:
            return []
        whole = b"".join(pieces)
        pieces.clear()
        try:
            return [PeerMessage.FromString(whole)]
        except DecodeError as error:
            raise FrameRefused("not a message") from error


def _crc32c(messages: Iterable[bytes]) -> int:
    crc = 0
    for message in messages:
        crc = google_crc32c.extend(crc, message)
    return crc
