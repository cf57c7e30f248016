"""Lanes: messages with an ordering key are handed over one after another.

A lane is a hash of the key, 32 bits, never 0; two keys in one lane are merely held to one order.
On the way through the wheel it travels in what every index unit has:

    topic      bit 31: has a lane │ number of the queue
    tag_mask   with a lane: lane, 32 bits │ the tags' mask folded to 32 bits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


Lane = tuple[int, int]
"""Retry queue and lane."""

Retry = tuple[int, int]
"""Hour and global index of the retry ahead."""


class Blocked(Mapping[Lane, Retry]):
    """By lane, and by retry: what ends or goes costs what it touches, however many are blocked."""

    def __init__(self) -> None:
        self._of_queue: dict[int, dict[int, Retry]] = {}
        self._lanes: dict[Retry, Lane] = {}

    def __getitem__(self, key: Lane) -> Retry:
        return self._of_queue[key[0]][key[1]]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def any_of(self, queue: int) -> bool:
        """Return whether any lane of the retry queue is blocked."""
        return bool(self._of_queue.get(queue))

    def retry(self, queue: int, lane: int) -> Retry | None:
        """Return the retry that the lane waits for."""
        of_queue = self._of_queue.get(queue)
        return of_queue.get(lane) if of_queue else None

    def add(self, queue: int, lane: int, retry: Retry) -> None:
        """The lane waits for the retry, unless it waits for one already."""
        if self.retry(queue, lane) is None:
            self._of_queue.setdefault(queue, {})[lane] = retry
            self._lanes[retry] = queue, lane

    def end(self, retries: Iterable[Retry]) -> list[Lane]:
        """Nothing waits for the retries any more; return the lanes that did."""
        ended = [lane for retry in retries if (lane := self._lanes.pop(retry, None))]
        for queue, number in ended:
            del self._of_queue[queue][number]
        return ended

    def delete(self, queue: int) -> None:
        """The retry queue has been deleted."""
        for retry in self._of_queue.pop(queue, {}).values():
            del self._lanes[retry]
