"""The signature of a post: by it a receiver knows who sent it, and when.

    Tarry-Signature: t=1790000000,v1=<hex>[,v1=<hex>]

``v1`` is the HMAC-SHA256 of ``t``, a dot, the message's id, a dot, and the body, keyed with a secret; one for
each secret, so that a secret can be changed while posts go on.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

HEADER: Final = "Tarry-Signature"
AGE_S_MAX: Final = 300
"""Age of a post that a receiver should refuse: it may be one that was recorded."""


def sign(body: bytes, message_id: str, now_s: int, secrets: Sequence[str]) -> str:
    """Return the header's value."""
    signatures = (f"v1={_hmac(body, message_id, now_s, secret)}" for secret in secrets)
    return ",".join((f"t={now_s}", *signatures))


def verify(header: str, body: bytes, message_id: str, now_s: int, secret: str) -> bool:
    """Return whether a header is of this message, signed with the secret, and not old."""
    parts = [part.partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not (times[0].isdecimal() and len(times[0]) < 13):
        return False
    time_s = int(times[0])
    expected = _hmac(body, message_id, time_s, secret)
    given = [value for name, _, value in parts if name == "v1" and value.isascii()]
    return abs(now_s - time_s) <= AGE_S_MAX and any(hmac.compare_digest(expected, each) for each in given)


def _hmac(body: bytes, message_id: str, time_s: int, secret: str) -> str:
    signed = f"{time_s}.{message_id}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
