"""Blocked lanes: later messages of a key wait for its retry, in every leader's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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
