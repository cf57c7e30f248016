"""Parts that the handles of all gateways share: who has a message in hand, and bytes as text."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final

from tarry.client.integers import UINT32_MAX, UINT64_MAX

HOLDERS_AT_ONCE: Final = 16
"""Holders whose messages one request settles at a time: each is a call to the cluster."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The consumer that has a message in hand, and the queue from which it has it."""

    topic: str
    group: str
    consumer: str
    queue: int
    incarnation: int
    """Of the cluster, as it delivered: in another one what the handle names is another message."""


def are_in_range(queue: int, incarnation: int, offset: int) -> bool:
    """Return whether numbers that JSON has told, which may be its truth values, can name a delivery."""
    numbers = not any(isinstance(number, bool) for number in (queue, incarnation, offset))
    return (
        numbers and 0 <= queue <= UINT32_MAX and 0 <= incarnation <= UINT64_MAX and 0 <= offset <= UINT64_MAX
    )


def encoded(version: str, content: bytes) -> str:
    """Return content as the text of a handle: the version of its form, a dot, and base64 for URLs."""
    return f"{version}.{base64.urlsafe_b64encode(content).decode().rstrip('=')}"


def decoded(text: str) -> bytes:
    """Return the content of what stands behind the dot. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
