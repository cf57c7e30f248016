"""Leases that end while the application has the message: its credit is free again, for it comes once more.

The cluster tells a stream nothing of a lease that ends, and counts the credit as used until it gets more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tarry.client.consumers.buffer import Offsets

MARGIN: Final = 1.25
"""A lease that has lasted so many times as long is over, however late the message was told of."""


class Lapses:
    """Looks, once a lease, for messages that have been with the application since the look before.

    Times are monotonic seconds. No clock or network.
    """

    def __init__(self) -> None:
        self._since_s = float("-inf")
        self._lease_s = 0.0
        self._held: dict[int, set[int]] = {}
        self._extended: dict[tuple[int, int], float] = {}
        """Until when those are leased that the application has extended."""

    def extended(self, queue: int, offsets: Iterable[int], until_s: float) -> None:
        """Note an extension that the application has asked for."""
        self._extended.update(((queue, offset), until_s) for offset in offsets)

    def look(
        self, held: Mapping[int, set[int]], waiting: Iterable[Offsets], lease_s: float, now_s: float
    ) -> list[Offsets]:
        """Return what is held, and seems leased no more. ``waiting``: of that, what is not handed out."""
        if now_s - self._since_s < MARGIN * max(lease_s, self._lease_s):
            return []
        self._extended = {key: until_s for key, until_s in self._extended.items() if until_s > now_s}
        lapsed = list[Offsets]()
        here = {queue: set(offsets) for queue, offsets in held.items()}
        for queue, offsets in waiting:
            here.get(queue, set()).difference_update(offsets)
        for queue, before in self._held.items():
            left = sorted(before & here.get(queue, set()))
            gone = [offset for offset in left if (queue, offset) not in self._extended]
            lapsed += [(queue, gone)] if gone else []
        self._since_s, self._lease_s = now_s, lease_s
        self._held = here
        return lapsed
