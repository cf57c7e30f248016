"""Publisher confirms: which batch waits for which numbers."""

from __future__ import annotations

import asyncio
from collections import deque


class Confirms:
    """Numbers count publishings, from 1; answers come in any order, each for one or for all up to one."""

    def __init__(self) -> None:
        self._published = 0
        self._floor = 0  # everything up to here is answered
        self._above: set[int] = set()
        self._refused: list[int] = []
        self._batches: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    async def expect(self, count: int) -> None:
        """Call right after publishing `count`; returns when all are confirmed, and all before them.

        Raises RuntimeError if one was refused.
        """
        first = self._published + 1
        self._published += count
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batches.append((first, self._published, done))
        self._settle()
        await done

    def answer(self, number: int, multiple: bool, confirmed: bool) -> None:
        """Note an answer for `number`, or for all up to it."""
        if not confirmed:
            self._refused.append(number)
        if multiple:
            self._floor = max(self._floor, number)
            self._above = {each for each in self._above if each > self._floor}
        else:
            self._above.add(number)
        while self._floor + 1 in self._above:
            self._floor += 1
            self._above.remove(self._floor)
        self._settle()

    def _settle(self) -> None:
        while self._batches and self._batches[0][1] <= self._floor:
            first, last, done = self._batches.popleft()
            if done.done():
                continue
            if any(first <= number <= last for number in self._refused):
                done.set_exception(RuntimeError("the broker refused a message"))
            else:
                done.set_result(None)
