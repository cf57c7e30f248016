"""Bounded window of acknowledged deliveries, by which repeats are recognized."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Repeats:
    """The last ``window`` to 2 * ``window`` offsets a queue: two sets, of which the older is dropped."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._new: dict[int, set[int]] = {}
        self._old: dict[int, set[int]] = {}

    def note(self, queue: int, offsets: Iterable[int]) -> None:
        """Remember the offsets."""
        new = self._new.setdefault(queue, set())
        new.update(offsets)
        if len(new) >= self._window:
            self._old[queue], self._new[queue] = new, set()

    def among(self, queue: int, offsets: Sequence[int]) -> set[int]:
        """Return which of the offsets are remembered."""
        return self._new.get(queue, set()).intersection(offsets) | self._old.get(queue, set()).intersection(
            offsets
        )
