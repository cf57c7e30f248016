"""Accumulator of single messages: those scheduled in one turn of the event loop share a request.

put ──► open, one for each way to name a time ──► sealed (full, or its turn came) ──► in flight
                 ▲ stays open while enough requests are in flight: the busier, the larger

Messages with idempotency keys have requests of their own: all messages of a request have one, or none.
So have those that ask to be flushed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tarry.client.producers.batch import Batch, Time
from tarry.client.producers.completions import Waiter
from tarry.client.settings import Settings


@dataclass(slots=True, eq=False)
class SharedRequest:
    """Messages that name their time in the same way, and the waiter of each."""

    time: Time
    idempotent: bool = False
    """Each has an idempotency key; else none."""
    synced: bool = False
    """They are answered once a majority has flushed them, whatever the cluster's durability."""
    topics: dict[str, int] = field(default_factory=dict)
    topic: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    masks_any: int = 0
    jitters: dict[int, int] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    record_bytes: int = 0
    waiters: list[Waiter] = field(default_factory=list)

    def put(self, topic: str, time: int, mask: int, jitter_ms: int, record: bytes, waiter: Waiter) -> None:
        """Add one message."""
        if jitter_ms:
            self.jitters[len(self.records)] = jitter_ms
        self.topic.append(self.topics.setdefault(topic, len(self.topics)))
        self.times.append(time)
        self.masks.append(mask)
        self.masks_any |= mask
        self.records.append(record)
        self.record_bytes += len(record)
        self.waiters.append(waiter)

    def batch(self) -> Batch:
        """Return the messages as columns."""
        jitter = None
        if self.jitters:
            jitter = np.zeros(len(self.records), "<u4")
            jitter[list(self.jitters)] = list(self.jitters.values())
        return Batch(
            self.time,
            np.array(self.times, dtype=self.time.dtype),
            list(self.topics),
            self.topic if len(self.topics) > 1 else None,
            self.masks if self.masks_any else None,
            self.records,
            jitter,
            idempotent=self.idempotent,
            synced=self.synced,
        )


Send = Callable[[SharedRequest], Coroutine[Any, Any, None]]


class Accumulator:
    """Collects messages into requests, and starts ``send`` for full or due ones, a few at a time."""

    def __init__(self, settings: Settings, send: Send) -> None:
        self._settings = settings
        self._bytes_max = min(settings.batch_bytes_max, settings.gather_bytes_max)
        self._send = send
        self._open: tuple[dict[Time, SharedRequest], ...] = ({}, {}, {}, {})
        """Without idempotency keys, and with; then the same of those that ask to be flushed."""
        self._sealed: deque[SharedRequest] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self.waiting = 0
        """Messages put and not yet sent with an outcome."""

    def put(
        self,
        time: Time,
        topic: str,
        value: int,
        mask: int,
        jitter_ms: int,
        idempotent: bool,
        record: bytes,
        waiter: Waiter,
        *,
        synced: bool = False,
    ) -> None:
        """Add one message; it leaves with the loop's next turn, or with the next free request."""
        opened = self._open[idempotent + 2 * synced]
        shared = opened.get(time)
        if shared is None:
            shared = opened[time] = SharedRequest(time, idempotent, synced)
        shared.put(topic, value, mask, jitter_ms, record, waiter)
        self.waiting += 1
        settings = self._settings
        if len(shared.records) >= settings.batch_messages_max or shared.record_bytes >= self._bytes_max:
            self._sealed.append(opened.pop(time))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            if settings.linger_ms:
                self._timer = loop.call_later(settings.linger_ms / 1_000, self._turn)
            else:
                self._timer = loop.call_soon(self._turn)

    async def drain(self) -> None:
        """Return when everything put so far has its outcome."""
        self._start()
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))
            self._start()

    def _turn(self) -> None:
        self._timer = None
        self._start()

    def _start(self) -> None:
        while len(self._in_flight) < self._settings.gather_in_flight_max:
            if not self._sealed:
                for opened in self._open:
                    self._sealed.extend(opened.values())
                    opened.clear()
                if not self._sealed:
                    return
            shared = self._sealed.popleft()
            task = asyncio.create_task(self._send(shared))
            self._in_flight.add(task)
            task.add_done_callback(partial(self._ended, shared))

    def _ended(self, shared: SharedRequest, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self.waiting -= len(shared.records)
        self._start()
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            # `send` passes on every TarryError. Any other exception is a fault of the program,
            # from which no waiter may hang.
            for waiter in shared.waiters:
                if not waiter.done():
                    waiter.set_exception(fault)
            raise fault
