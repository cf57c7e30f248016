"""Slots: so many of something at once, as a gateway's limits have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Slots:
    """So many at once; more are refused."""

    def __init__(self, what: str, most: int, refusal: Callable[[str], Exception]) -> None:
        """Take ``refusal``: makes of a text the error that the gateway's callers are answered with."""
        self.used = 0
        self._what, self._most, self._refusal = what, most, refusal

    @contextmanager
    def taken(self, count: int = 1) -> Iterator[None]:
        """Hold some of them meanwhile. Raises the refusal."""
        if self.used + count > self._most:
            raise self._refusal(f"the gateway has {self._what}: {self._most:,}, its maximum")
        self.used += count
        try:
            yield
        finally:
            self.used -= count
