"""Seats of one group: its consumers whose streams have other topics as well, by their names."""

from __future__ import annotations

from collections.abc import Callable

from tarry.node.delivery.consumer import Consumer


class Seats:
    """Knows them, and has each note what it has in hand of the group's topic."""

    def __init__(self, in_hand: Callable[[str], float]) -> None:
        """Take ``in_hand``: how many bytes a consumer of a name has in hand of the topic."""
        self._in_hand = in_hand
        self._by_name: dict[str, list[Consumer]] = {}  # calls of a consumer may wait side by side
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, seat: Consumer) -> None:
        """Add one, which notes what it has in hand already."""
        self._by_name.setdefault(seat.name, []).append(seat)
        self._count += 1
        self.note(seat.name)

    def remove(self, seat: Consumer) -> None:
        """Remove one, if it is here."""
        named = self._by_name.get(seat.name, [])
        if seat in named:
            named.remove(seat)
            self._count -= 1
            if not named:
                del self._by_name[seat.name]

    def clear(self) -> None:
        """Remove all."""
        self._by_name.clear()
        self._count = 0

    def note(self, name: str) -> None:
        """Have the seats of a consumer note what it has in hand."""
        for seat in self._by_name.get(name, ()):
            seat.note_bytes(self._in_hand)

    def note_all(self) -> None:
        """Have all seats note what their consumers have in hand."""
        for name in self._by_name:
            self.note(name)
