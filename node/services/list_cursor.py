"""Cursors of listings: how far the pages so far have come, as a text that no server has to remember.

    base64url( version │ crc32 of request │ topic │ phase │ queue │ at │ index │ scan │ crc32 of all before )

Whatever a cursor says is a place of the topic that it is given with, so one that was made up shows nothing
that its caller may not see.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import Cut

_VERSION: Final = 1
_FORM: Final = struct.Struct("<BIIBIqIQ")
_CRC: Final = struct.Struct("<I")
CHARS: Final = -(-(_FORM.size + _CRC.size) * 4 // 3)
"""Of every cursor."""


class Phase(IntEnum):
    """Phases of a listing, in this order."""

    WHEEL = 0
    RETRIES = 1
    TOPIC = 2


class Place(NamedTuple):
    """Place at which a listing goes on."""

    phase: Phase = Phase.WHEEL
    queue: int = 0
    """Of a phase of ready queues."""
    at: int = -1
    """Due time of the wheel's position; offset in a ready queue."""
    global_index: int = 0
    """Global index of the wheel's position."""
    scan: int = 0
    """Number of the wheel's scan that goes on, where its leader still has it."""

    @property
    def cut(self) -> Cut:
        """The position in the wheel."""
        return Cut(self.at, self.global_index)

    @property
    def looked_to_ms(self) -> int:
        """The due time before which all of the wheel has been looked at; 0: all of it has."""
        return self.at + self.cut.complete if self.phase is Phase.WHEEL else 0


def key_of(request: pb.ListMessagesRequest) -> int:
    """Return a number that is equal for requests of one listing: only bodies and page size may differ."""
    same = pb.ListMessagesRequest()
    same.CopyFrom(request)
    same.ClearField("cursor")
    same.ClearField("page_size")
    same.ClearField("bodies")
    return zlib.crc32(same.SerializeToString(deterministic=True))


def text_of(place: Place, key: int, topic: int) -> str:
    """Return the cursor of a place in a listing of a topic, which the number of its queue names."""
    packed = _FORM.pack(_VERSION, key, topic, *place)
    return base64.urlsafe_b64encode(packed + _CRC.pack(zlib.crc32(packed))).decode().rstrip("=")


def place_of(text: str, key: int, topic: int) -> Place | Refusal:
    """Return the place that a cursor names in a listing, the first for none, or why it names none."""
    if not text:
        return Place()
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        packed = b""
    if len(text) != CHARS or len(packed) != _FORM.size + _CRC.size:
        return _refused("this is no cursor: give one whole, as the page before had it, or none")
    said, crc = packed[: _FORM.size], packed[_FORM.size :]
    version, of, of_topic, phase, *rest = _FORM.unpack(said)
    if crc != _CRC.pack(zlib.crc32(said)) or version != _VERSION or phase > Phase.TOPIC:
        return _refused("this cursor is damaged, or of another version: begin without one")
    if of != key:
        text = "the cursor is of another listing: give the filter, states and group of the page before"
        return _refused(text)
    if of_topic != topic:
        return _refused("the topic was deleted since, and made again: begin without the cursor")
    return Place(Phase(phase), *rest)


def _refused(text: str) -> Refusal:
    return Refusal(Reason.QUERY_INVALID, text)
