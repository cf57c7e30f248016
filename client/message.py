"""Messages as the async consumer hands them out: what was delivered, and the verdicts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Protocol

from tarry.client.delivery import Columns, View
from tarry.client.hand import AckOutcome, Verdict
from tarry.proto import tarry_consumer_pb2 as consumer_pb


class Settler(Protocol):
    """Takes verdicts: the consumer that received the messages."""

    def settle_soon(self, verdict: Verdict, offset: int) -> None: ...
    def settle(self, verdict: Verdict, offset: int) -> asyncio.Future[AckOutcome]: ...
    def settle_many_soon(self, verdict: Verdict, offsets: Sequence[int]) -> None: ...
    def settle_many(self, verdict: Verdict, offsets: Sequence[int]) -> asyncio.Future[list[AckOutcome]]: ...


class Message(View):
    """One delivered message."""

    __slots__ = ("_settler",)

    def __init__(self, batch: Columns, position: int, offset: int, settler: Settler) -> None:
        super().__init__(batch, position, offset)
        self._settler = settler

    def ack(self) -> asyncio.Future[AckOutcome]:
        """Acknowledge; await the outcome: fsynced on a majority, or stale."""
        return self._settler.settle(self._batch.ack_verdict, self.offset)

    def ack_soon(self) -> None:
        """Acknowledge without waiting: sent within ``Settings.ack_linger_ms``, again after a reconnect."""
        self._settler.settle_soon(self._batch.ack_verdict, self.offset)

    def nack(self, delay_ms: int | None = None) -> asyncio.Future[AckOutcome]:
        """Have it delivered again after ``delay_ms``, or by the group's back-off table.

        Raises InvalidTime for a delay out of range.
        """
        return self._settler.settle(Verdict.nacking(self._batch.queue, delay_ms), self.offset)

    def extend(self, lease_ms: int) -> asyncio.Future[AckOutcome]:
        """Keep it in hand for ``lease_ms`` from now on; await whether it still was in hand.

        Raises InvalidSubscription for a lease out of range.
        """
        return self._settler.settle(Verdict.extending(self._batch.queue, lease_ms), self.offset)


class MessageBatch(Columns):
    """Messages of one queue that came together; iterating gives messages."""

    def __init__(
        self, deliveries: consumer_pb.Deliveries, received_ms: int, settler: Settler, leased_s: float
    ) -> None:
        super().__init__(deliveries, received_ms)
        self.leased_s = leased_s
        """From when the leases count, in monotonic seconds, of what was not handed out yet."""
        self._settler = settler

    def __iter__(self) -> Iterator[Message]:
        return map(Message, repeat(self), range(len(self.offsets)), self.offsets, repeat(self._settler))

    def ack(self) -> asyncio.Future[list[AckOutcome]]:
        """Acknowledge all; await the outcomes, one a message, in order."""
        return self._settler.settle_many(self.ack_verdict, self.offsets)

    def ack_soon(self) -> None:
        """Acknowledge all without waiting, like ``Message.ack_soon``."""
        self._settler.settle_many_soon(self.ack_verdict, self.offsets)

    def nack(self, delay_ms: int | None = None) -> asyncio.Future[list[AckOutcome]]:
        """Have all delivered again after ``delay_ms``, or by the group's back-off table."""
        return self._settler.settle_many(Verdict.nacking(self.queue, delay_ms), self.offsets)

    def extend(self, lease_ms: int) -> asyncio.Future[list[AckOutcome]]:
        """Keep all in hand for ``lease_ms`` from now on; await whether each still was in hand."""
        return self._settler.settle_many(Verdict.extending(self.queue, lease_ms), self.offsets)
