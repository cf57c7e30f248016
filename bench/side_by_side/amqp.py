"""Many AMQP 0-9-1 publishings as one piece of bytes (the specification's sections 2.3.5 and 4.2).

    frame: type u8, channel u16, size u32, payload, 0xCE        payloads: method, content header, body

A client library makes some thirty Python calls for each message; this makes one, so that what is measured is
the broker.
"""

from __future__ import annotations

import struct

_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">HHQHBB")  # class, weight, body size, flags, delivery mode, length of the expiration
_END = b"\xce"
_METHOD, _CONTENT, _BODY = 1, 2, 3
_BASIC, _PUBLISH = 60, 40
_DELIVERY_MODE, _EXPIRATION = 1 << 12, 1 << 8
_PERSISTENT = 2


def publishings(channel: int, key: str, bodies: list[bytes], expirations_ms: list[int]) -> bytes:
    """Return the frames of persistent messages to the default exchange, each with its own expiration.

    A body has to fit one frame (the connection's frame_max, usually 128 KiB).
    """
    routing = key.encode()
    method = struct.pack(">HHHB", _BASIC, _PUBLISH, 0, 0) + bytes([len(routing)]) + routing + b"\x00"
    head = _FRAME.pack(_METHOD, channel, len(method)) + method + _END
    flags = _DELIVERY_MODE | _EXPIRATION
    parts: list[bytes] = []
    for body, expiration_ms in zip(bodies, expirations_ms, strict=True):
        expiration = b"%d" % expiration_ms
        size, length = len(body), len(expiration)
        parts += (
            head,
            _FRAME.pack(_CONTENT, channel, _HEADER.size + length),
            _HEADER.pack(_BASIC, 0, size, flags, _PERSISTENT, length),
            expiration,
            _END,
            _FRAME.pack(_BODY, channel, size),
            body,
            _END,
        )
    return b"".join(parts)
