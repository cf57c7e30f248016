"""From bytes to requests."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tarry.replication.refusal import Reason, Refusal

M = TypeVar("M", bound=Message)


def parse(kind: type[M], raw: bytes) -> M | Refusal:
    """Return the message that the bytes are."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        return Refusal(Reason.RECORD_INVALID, f"the request is not a {kind.DESCRIPTOR.full_name}")
