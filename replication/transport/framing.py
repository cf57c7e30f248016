"""Frames on a byte stream: what opens it, and where each frame begins and ends.

    pass      sha256 of the ticket, 16 bytes of it      with TLS, in clear, before the handshake
    opening   "tarry/1\\n" │ ticket, 16 bytes          once, by who connected
    frame     "tary" │ size, 4 bytes, big endian │ PeerFrame

The mark before each size tells a stream that lost bytes in the middle (a proxy that swallowed some) from one
that is merely slow: without it, what follows would be taken for a size.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

STREAMS: Final = 2
"""From one node to one peer: for what is urgent, and for bulk."""
TICKET_BYTES: Final = 16
PASS_BYTES: Final = 16
FRAME_OVERHEAD_BYTES: Final = 1 << 16
"""What sealing may add to the messages of a frame."""
_OPENING: Final = b"tarry/1\n"
_MARK: Final = b"tary"
_HEAD: Final = struct.Struct(">4sI")
OPENING_BYTES: Final = len(_OPENING) + TICKET_BYTES


class StreamBroken(Exception):
    """The bytes received are not a stream of frames. Close it: what follows cannot be trusted either."""


def pass_of(ticket: bytes) -> bytes:
    """Return what shows, without the ticket itself, that it was given."""
    return hashlib.sha256(ticket).digest()[:PASS_BYTES]


def opening(ticket: bytes) -> bytes:
    """Return the first bytes of a stream."""
    return _OPENING + ticket


def framed(sealed: bytes) -> bytes:
    """Return a frame as it goes on the stream."""
    return _HEAD.pack(_MARK, len(sealed)) + sealed


class Unframer:
    """Bytes in, whole frames out."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._bytes = bytearray()

    def put(self, data: bytes | memoryview) -> None:
        self._bytes += data

    def ticket(self) -> bytes | None:
        """Return the ticket of the opening; None: not all of it is there yet. Raises StreamBroken."""
        if not _OPENING.startswith(self._bytes[: len(_OPENING)]):
            raise StreamBroken("not a peer's")
        if len(self._bytes) < OPENING_BYTES:
            return None
        ticket = bytes(self._bytes[len(_OPENING) : OPENING_BYTES])
        del self._bytes[:OPENING_BYTES]
        return ticket

    @property
    def begun_bytes(self) -> int:
        """Size of the frame that has begun and is not whole; 0: none has."""
        if len(self._bytes) < _HEAD.size:
            return len(self._bytes)
        return int(_HEAD.unpack_from(self._bytes)[1])

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that are whole, each once. Raises StreamBroken."""
        start = 0
        try:
            while len(self._bytes) - start >= _HEAD.size:
                mark, size = _HEAD.unpack_from(self._bytes, start)
                if mark != _MARK or size > self._frame_bytes_max:
                    raise StreamBroken(f"{mark!r} of {size} bytes is no frame")
                end = start + _HEAD.size + size
                if end > len(self._bytes):
                    break
                frame, start = bytes(memoryview(self._bytes)[start + _HEAD.size : end]), end
                yield frame
        finally:
            del self._bytes[:start]
