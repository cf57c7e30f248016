"""Tags in 8 bytes a message, so that a filter may skip a message unread.

    one tag           bits 32 to 63 all set │ the tag's hash, 32 bits
    any other number  one of 64 bits a tag

Messages have one tag as a rule, and hardly two tags have one hash; of several, two may share a bit.
So what a filter lets through is checked against the record. The hash has the tag's own bit, too: whoever
knows bits alone finds it. A mask of many tags that would look like a hash is made to match any filter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

BITS: Final = 64
ONE: Final = 0xFFFFFFFF_00000000
"""Of a mask that has one tag's hash."""
ANY: Final = 0xFFFFFFFF
"""In place of a hash: it may be any tag."""


@lru_cache(maxsize=4_096)
def tag_bit(tag: str) -> int:
    """Return the one bit (a power of two below 2**64) of a tag: its CRC-32C modulo 64."""
    return 1 << (int(google_crc32c.value(tag.encode())) % BITS)


@lru_cache(maxsize=4_096)
def tag_hash(tag: str) -> int:
    """Return the hash of a tag, below 2**32: its CRC-32C, and the tag's bit if it is one of the low half."""
    return int(google_crc32c.value(tag.encode())) | (tag_bit(tag) & ANY)


def tag_bits(tags: Iterable[str]) -> int:
    """Return the bits of all tags together, 0 for none; fits an unsigned 64-bit integer."""
    mask = 0
    for tag in tags:
        mask |= tag_bit(tag)
    return mask


def tag_mask(tags: Collection[str], ordering_key: str = "") -> int:
    """Return the mask of a message, 0 without tags; fits an unsigned 64-bit integer.

    With an ordering key it has bits alone, since nodes keep half of it then.
    """
    if len(tags) == 1 and not ordering_key:
        return ONE | tag_hash(next(iter(tags)))
    mask = tag_bits(tags)
    return mask if mask < ONE else ONE | ANY


class TagFilter:
    """Flags masks of messages that may have one of some tags; of none: any message's."""

    __slots__ = ("_bits", "_hashes")

    def __init__(self, tags: Collection[str]) -> None:
        self._bits = np.uint64(tag_bits(tags))
        self._hashes = np.array(sorted({ANY, *map(tag_hash, tags)}), dtype=np.uint64)

    def may_match(self, masks: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Flag the masks, shape (n,), of messages that have one of the tags, and hardly any others."""
        if not self._bits:
            return np.ones(len(masks), dtype=np.bool_)
        matches: NDArray[np.bool_] = (masks & self._bits) != 0
        (one,) = np.nonzero(masks >= np.uint64(ONE))
        if len(one):
            hashes = masks[one] & np.uint64(ANY)
            matches[one] = self._hashes[np.searchsorted(self._hashes, hashes)] == hashes
        return matches


@lru_cache(maxsize=256)
def tag_filter(tags: frozenset[str]) -> TagFilter:
    """Return the filter of tags: the consumers of a group all ask for the same."""
    return TagFilter(tags)
