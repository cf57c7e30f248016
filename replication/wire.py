"""Frames between two replicas: sealed in order by the sender, let through at most once by the receiver.

    Outbound.seal ─► PeerFrame {incarnation, boot, epoch, sequence, crc32c, messages} ─► Inbound.open

Raft's engine cannot bear a message twice or late, and a broken stream's leftovers may arrive after its
successor has begun. So a frame counts only if it is newer than every one let through before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

import google_crc32c
from google.protobuf.message import DecodeError

from tarry.proto.tarry_peer_pb2 import PeerFrame, PeerMessage

RETIRED_MAX = 16


class FrameRefused(Exception):
    """Not a frame of ours for us. End the stream: what follows cannot be trusted either."""


class SenderNotCertified(FrameRefused):
    """The caller's certificate is not the sender's. Nothing that it says counts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who seals: a node of a cluster, in one of its starts."""

    cluster: str
    node: str
    incarnation: int
    boot: int


@dataclass(slots=True)
class Outbound:
    """One sender's way to one receiver."""

    identity: Identity
    receiver: str
    epochs: Iterator[int]
    """Of the sender's start, not of this way: a peer that was left and found again must take a later one."""
    epoch: int = 0
    sequence: int = 0

    def begin(self) -> None:
        """A new stream: the frames of earlier ones are out of date."""
        self.epoch = next(self.epochs)
        self.sequence = 0

    def seal(self, messages: Sequence[bytes]) -> bytes:
        self.sequence += 1
        return PeerFrame(
            cluster=self.identity.cluster,
            sender=self.identity.node,
            receiver=self.receiver,
            incarnation=self.identity.incarnation,
            boot=self.identity.boot,
            epoch=self.epoch,
            sequence=self.sequence,
            crc32c=_crc32c(messages),
            messages=messages,
        ).SerializeToString()


@dataclass(slots=True)
class _Seen:
    incarnation: int
    place: tuple[int, int, int]  # boot, epoch, sequence
    retired: list[int] = field(default_factory=list)


class Inbound:
    """What one receiver has let through, by sender."""

    def __init__(self, cluster: str, node: str) -> None:
        self.cluster = cluster
        self._node = node
        self._seen: dict[str, _Seen] = {}
        self.refused = 0
        self.out_of_date = 0

    def open(self, sealed: bytes, certified: Set[str] | None = None) -> tuple[str, list[PeerMessage]]:
        """(sender, its messages); none if the frame is out of date. `certified`: whom the caller has proven
        to be, None where nobody is asked. Raises FrameRefused."""
        try:
            frame = PeerFrame.FromString(sealed)
            messages = [PeerMessage.FromString(message) for message in frame.messages]
        except DecodeError as error:
            raise self._refusal("not a frame") from error
        if (frame.cluster, frame.receiver) != (self.cluster, self._node) or not frame.sender:
            raise self._refusal(f"from {frame.sender} for {frame.receiver} of {frame.cluster}")
        if certified is not None and frame.sender not in certified:
            self.refused += 1
            raise SenderNotCertified(frame.sender)
        if frame.crc32c != _crc32c(frame.messages):
            raise self._refusal("checksum")
        if not self._is_newer(frame):
            self.out_of_date += 1
            return frame.sender, []
        return frame.sender, messages

    def _refusal(self, text: str) -> FrameRefused:
        self.refused += 1
        return FrameRefused(text)

    def _is_newer(self, frame: PeerFrame) -> bool:
        place = (frame.boot, frame.epoch, frame.sequence)
        seen = self._seen.get(frame.sender)
        if seen is None:
            self._seen[frame.sender] = _Seen(frame.incarnation, place)
            return True
        if frame.incarnation in seen.retired:
            return False
        if frame.incarnation != seen.incarnation:
            seen.retired = [*seen.retired, seen.incarnation][-RETIRED_MAX:]
            seen.incarnation = frame.incarnation
        elif place <= seen.place:
            return False
        seen.place = place
        return True


def _crc32c(messages: Iterable[bytes]) -> int:
    crc = 0
    for message in messages:
        crc = google_crc32c.extend(crc, message)
    return crc
