"""Slots: so many of something at once, as a gateway's limits have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Slots:
    """So many at once; more are refused."""

    def __init__(self, what: str, most: int, refusal: Callable[[str], Exception]) -> None:
        """Take ``refusal``: makes of a text the error that the gateway's callers are answered with."""
        self.used, self.most = 0, most
        self._what, self._refusal = what, refusal

    @contextmanager
    def taken(self, count: int = 1) -> Iterator[Taken]:
        """Hold some of them meanwhile, and more by and by. Raises the refusal."""
        held = Taken(self)
        held.more(count)
        try:
            yield held
        finally:
            self.used -= held.count

    def take(self, count: int) -> None:
        """Count some of them as used. Raises the refusal."""
        if self.used + count > self.most:
            raise self._refusal(f"the gateway has {self._what}: {self.most:,}, its maximum")
        self.used += count


class Taken:
    """Slots that are held."""

    __slots__ = ("_slots", "count")

    def __init__(self, slots: Slots) -> None:
        self.count = 0
        self._slots = slots

    def more(self, count: int) -> None:
        """Hold so many more. Raises the refusal."""
        self._slots.take(count)
        self.count += count
