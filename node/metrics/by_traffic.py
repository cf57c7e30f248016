"""Values for the names that have most traffic, and one for all others.

A monitoring system keeps each series for weeks, so the number of names that it is told has a bound. Each
value only grows: a name that comes in begins with a new one, and what it had before stays with the others;
one that goes takes its value with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import nlargest, nsmallest
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SWAPS_MAX: Final = 100
"""Names that take the place of others with one ``renew``."""
LEAD: Final = 2.0
"""A name takes the place of another once it has so many times its traffic, or two would swap for ever."""


class ByTraffic(Generic[K, V]):
    """Values by name. ``of`` costs a look into two dictionaries, whatever their size."""

    def __init__(self, names_max: int, known_max: int, other: K, make: Callable[[], V]) -> None:
        """Take ``other``, the name that all others have together, and ``make``, which makes a value.

        ``known_max``: a bound on the names whose traffic is compared.
        """
        self.other_name = other
        self.other = make()
        self._other_asked = False
        self._names_max = names_max
        self._known_max = known_max
        self._make = make
        self._values: dict[K, V] = {}
        self._traffic: dict[K, float] = {}

    def of(self, name: K, messages: int) -> V:
        """Return the value that counts for a name, which so many more messages are about."""
        traffic = self._traffic
        if name == self.other_name:  # a user's, by chance
            self._other_asked = True
            return self.other
        if name in traffic:
            traffic[name] += messages
        elif len(traffic) < self._known_max:
            traffic[name] = messages
        value = self._values.get(name)
        if value is None and len(self._values) < self._names_max:
            value = self._values[name] = self._make()
        return self.other if value is None else value

    def __iter__(self) -> Iterator[tuple[K, V]]:
        """Yield the names with their values; last what the others have, if there may be any."""
        yield from list(self._values.items())
        if self.full or self._other_asked:
            yield self.other_name, self.other

    def __contains__(self, name: K) -> bool:
        return name in self._values

    @property
    def full(self) -> bool:
        """True if there may be names beyond those that have a value."""
        return len(self._values) >= self._names_max

    def renew(self) -> None:
        """Let the busiest names have values; from now on, traffic until now counts half.

        Linear in the names known.
        """
        values, traffic = self._values, self._traffic
        if len(traffic) > len(values):
            without = (name for name in traffic if name not in values)
            outside = nlargest(SWAPS_MAX, without, traffic.__getitem__)
            inside = nsmallest(SWAPS_MAX, values, lambda name: traffic.get(name, 0.0))
            for busy, idle in zip(outside, inside, strict=False):
                if traffic[busy] <= LEAD * traffic.get(idle, 0.0):
                    break
                del values[idle]
                values[busy] = self._make()
        self._traffic = {name: had / 2 for name, had in traffic.items() if had >= 1 or name in values}
