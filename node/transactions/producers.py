"""Producers that answer checks: their streams at the leader, by producer group, asked in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

CHECKS_WAITING_MAX: Final = 100
"""Checks that a stream has yet to write; one with more is passed over."""
BYTES_WAITING_MAX: Final = 4 << 20
"""Of these, likewise; a lone one may have more."""
REFUSALS_WAITING_MAX: Final = 100
"""Refused answers of which a stream has yet to be told; one with more reads none of them, and is ended."""


class CheckStream:
    """Stream of a producer: what is to be written to it, and why it ends."""

    def __init__(self, producer_group: str, may_produce: Callable[[str], bool]) -> None:
        self.producer_group, self.may_produce = producer_group, may_produce
        self.ended: Refusal | None = None
        self._over = False
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    def has_room(self) -> bool:
        """Return whether another check may wait here."""
        return not self._over and len(self._waiting) < CHECKS_WAITING_MAX and self._bytes < BYTES_WAITING_MAX

    def room(self) -> int:
        """Return how many checks may wait here beside those that do, of a command's bytes."""
        free = CHECKS_WAITING_MAX - len(self._waiting)
        return max(0, free) if not self._over and self._bytes < BYTES_WAITING_MAX // 2 else 0

    def send(self, response: bytes) -> None:
        """Have a response written, unless the stream is over."""
        if not self._over:
            self._waiting.append(response)
            self._bytes += len(response)
            self._changed.set()

    def refuse(self, response: bytes) -> None:
        """Have a producer told of an answer that was refused, unless it reads none of what it is told."""
        if len(self._waiting) < CHECKS_WAITING_MAX + REFUSALS_WAITING_MAX:
            self.send(response)
            return
        text = f"{len(self._waiting)} responses wait for the producer, which does not read them: read on"
        self.end(Refusal(Reason.OVERLOADED, text, retry_ms=1_000))

    def end(self, refusal: Refusal | None = None) -> None:
        """End the stream, after what waits; the first end counts."""
        if not self._over:
            self._over, self.ended = True, refusal
            self._changed.set()

    async def next_response(self) -> bytes | None:
        """Return what is to be written next; None: nothing more."""
        while not self._waiting:
            if self._over:
                return None
            self._changed.clear()
            await self._changed.wait()
        response = self._waiting.popleft()
        self._bytes -= len(response)
        return response


class CheckStreams:
    """Streams of all producers that answer checks at this node."""

    def __init__(self) -> None:
        self._groups: dict[str, deque[CheckStream]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, stream: CheckStream) -> None:
        """Have a stream asked from now on."""
        self._groups.setdefault(stream.producer_group, deque()).append(stream)
        self._count += 1

    def leave(self, stream: CheckStream) -> None:
        """Ask a stream no more."""
        group = self._groups[stream.producer_group]
        group.remove(stream)
        self._count -= 1
        if not group:
            del self._groups[stream.producer_group]

    def room(self, producer_group: str) -> int | None:
        """Return how many checks the producers of a group may be asked now; None: none is connected."""
        group = self._groups.get(producer_group)
        return None if group is None else sum(stream.room() for stream in group)

    def ask(self, producer_group: str, topic: str, check: bytes) -> bool:
        """Send a check to one producer of the group, each in its turn; False: there is none with room."""
        group = self._groups.get(producer_group, deque())
        for _ in range(len(group)):
            stream = group[0]
            group.rotate(-1)
            if stream.has_room() and stream.may_produce(topic):
                stream.send(check)
                return True
        return False

    def end(self, refusal: Refusal) -> None:
        """End all streams: this node does not lead any more."""
        for group in self._groups.values():
            for stream in group:
                stream.end(refusal)
