"""Lanes: messages with an ordering key are delivered one after another.

A lane is a hash of the key, 32 bits, never 0; two keys in one lane are merely held to one order.
On the way through the wheel it travels in what every index unit has:

    topic      bit 31: has a lane │ number of the queue
    tag_mask   with a lane: lane, 32 bits │ the tags' mask folded to 32 bits
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.wheel.state import MARK as ORDERED

HALF: Final = np.uint64(32)
LOW: Final = np.uint64(0xFFFFFFFF)


def lane_of(ordering_key: str) -> int:
    """Return the lane of a key, 1 to 2**32 - 1; 0 where there is no key."""
    return (int(google_crc32c.value(ordering_key.encode())) or 1) if ordering_key else 0


def pack(
    queue: NDArray[np.uint32], tag_mask: NDArray[np.uint64], lane: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return the wheel's columns topic and tag_mask; all of shape (n,)."""
    folded = (tag_mask | tag_mask >> HALF) & LOW | lane.astype(np.uint64) << HALF
    return np.where(lane, queue | ORDERED, queue), np.where(lane, folded, tag_mask)


def unpack(
    topic: NDArray[np.uint32], tag_mask: NDArray[np.uint64]
) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint32] | int]:
    """Return queue, tag_mask and lane of the wheel's columns; the lane is 0 where none has one.

    A folded mask is unfolded so that whatever it held still matches: two tags then share a bit.
    """
    ordered = topic >= ORDERED
    if not ordered.any():
        return topic, tag_mask, 0
    low = tag_mask & LOW
    lane = np.where(ordered, tag_mask >> HALF, 0).astype(np.uint32)
    return topic & ~ORDERED, np.where(ordered, low | low << HALF, tag_mask), lane


def queue_of(topic: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the queues' numbers of the wheel's column topic."""
    return topic & ~ORDERED
