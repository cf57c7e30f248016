"""Tag masks: one of 64 bits a tag, so that a filter may skip a message unread.

Two tags may share a bit, so what a mask lets through is checked against the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import google_crc32c

BITS: Final = 64


@lru_cache(maxsize=4_096)
def tag_bit(tag: str) -> int:
    """Return the one bit (a power of two below 2**64) of a tag: its CRC-32C modulo 64."""
    return 1 << (int(google_crc32c.value(tag.encode())) % BITS)


def tag_mask(tags: Iterable[str]) -> int:
    """Return the bits of all tags together, 0 for none; fits an unsigned 64-bit integer."""
    mask = 0
    for tag in tags:
        mask |= tag_bit(tag)
    return mask
