"""Messages that are changed after they were scheduled, in each way that ends or moves one.

`changed`: rescheduled to sooner and to later, across hours too, updated, cancelled by id, and all that match.
`late`: a topic of two groups; what one has had is cancelled for the other. `idle`: cancelled when it is
released, before there is a consumer. All are scheduled by idempotency keys, and again by a second producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count, islice
from typing import Final, TypeVar

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Answer, Asked, Cancelled, Operation, Repeated, Sent
from tarry.chaos.traffic.traffic import GONE, TOKEN, Traffic
from tarry.client.aio import ChangeOutcome, Client, MessageState, Producer
from tarry.client.errors import TarryError

CHANGED, LATE, IDLE = "changed", "late", "idle"
SLOW: Final = "slow"
"""The group without a consumer until all cancels are done."""
MINUTE_MS: Final = 60_000  # in which no change comes too late
HOUR_MS: Final = 60 * MINUTE_MS
TRIES: Final = 30
PAUSE_S: Final = 0.2
DONE: Final = (ChangeOutcome.CHANGED, ChangeOutcome.ALREADY_SO)

T = TypeVar("T")
Batch = dict[str, int]
"""Message id -> token."""


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a call that may be repeated; raise the error of the last of TRIES."""
    for _ in range(TRIES - 1):
        try:
            return await call()
        except TarryError:
            await asyncio.sleep(PAUSE_S)
    return await call()


class LedgerChanges:
    """The changes of one run, written into the history of its traffic."""

    def __init__(self, traffic: Traffic, size: int) -> None:
        """Take the messages of each kind: `size`."""
        self.skipped: set[int] = set()
        """Tokens of LATE that were cancelled for SLOW, and not for the group that had had them."""
        self.cancelled_released = 0
        """Messages of IDLE that were cancelled once the last of them was released."""
        self._history = traffic.history
        self._client: Client = traffic.client
        self._size = size
        self._tokens = count(1 << 32)  # beyond those of plans

    async def prepare(self, groups: Sequence[tuple[str, str]]) -> None:
        """Make groups before anything is scheduled, and have the cluster reschedule."""
        operator = self._client.operator()
        await insist(operator.finish_upgrade)
        for topic, group in groups:
            await insist(partial(operator.create_group, topic, group))

    async def play(self, kept: Callable[[int], bool]) -> None:
        """Do all changes; `kept`: whether a token's first delivery is acknowledged. Raises TarryError."""
        async with self._client.producer() as first, self._client.producer() as second:
            batches = [await self._schedule(first, CHANGED, ms) for ms in (3 * HOUR_MS, MINUTE_MS, MINUTE_MS)]
            _, later, updated = batches
            await self._reschedule(first, later, 2 * HOUR_MS)
            await self._repeat(second, later)
            await self._update(first, updated)
            for batch in batches:
                await self._reschedule(first, batch, 2_000)
            await self._cancel_pending(first)
            for _ in range(TRIES):
                late, idle = [await self._schedule(first, topic, 300) for topic in (LATE, IDLE)]
                batches += [late, idle]
                await self._cancel_released(first, idle)
                await self._cancel_for_slow(first, late, kept)
                if self.cancelled_released and self.skipped:
                    break  # else the leader fell, and of what it had released SLOW may have been given all
            for batch in batches:
                await self._repeat(second, batch)

    async def _schedule(self, producer: Producer, topic: str, ahead_ms: int) -> Batch:
        tokens = list(islice(self._tokens, self._size))
        sent_mono_ms, sent_ms = mono_ms(), now_ms()
        due_ms = sent_ms + ahead_ms
        ids = await insist(lambda: _schedule(producer, topic, tokens, due_ms))
        for token, name in zip(tokens, ids, strict=True):
            self._history.sent.append(
                Sent(
                    token, topic, due_ms, sent_ms, sent_mono_ms, Answer.ACKNOWLEDGED,
                    now_ms(), mono_ms(), name, due_ms,
                )
            )  # fmt: skip
        return dict(zip(ids, tokens, strict=True))

    async def _repeat(self, producer: Producer, batch: Batch) -> None:
        """Schedule again what was sent, by its keys."""
        tokens = list(batch.values())
        topics = {one.token: one.topic for one in self._history.sent}
        due_ms = now_ms() + HOUR_MS
        ids = await insist(lambda: _schedule(producer, topics[tokens[0]], tokens, due_ms))
        for token, old, new in zip(tokens, batch, ids, strict=True):
            self._history.repeated.append(Repeated(token, old, new))

    async def _reschedule(self, producer: Producer, batch: Batch, ahead_ms: int) -> None:
        sent_mono_ms, due_ms = mono_ms(), now_ms() + ahead_ms
        changes = await insist(lambda: producer.reschedule_many(list(batch), due_ms=due_ms))
        for token, change in zip(batch.values(), changes, strict=True):
            self._changed(token, Asked.RESCHEDULE, change.outcome, sent_mono_ms, due_ms)

    async def _update(self, producer: Producer, batch: Batch) -> None:
        for name, token in batch.items():
            sent_mono_ms, body = mono_ms(), TOKEN.pack(token) + b"updated"
            change = await insist(partial(producer.update, name, body=body))
            self._changed(token, Asked.UPDATE, change.outcome, sent_mono_ms)

    def _changed(
        self, token: int, asked: Asked, outcome: ChangeOutcome, sent_mono_ms: int, due_ms: int = 0
    ) -> None:
        self._history.operations.append(
            Operation(token, asked, outcome.value, sent_mono_ms, mono_ms(), due_ms=due_ms)
        )

    async def _cancel_pending(self, producer: Producer) -> None:
        """Cancel some by id, and all others that are due in hours."""
        by_id = await self._schedule(producer, CHANGED, 2 * HOUR_MS)
        match = await self._schedule(producer, CHANGED, 5 * HOUR_MS)
        await self._cancel(producer, by_id)
        await insist(self._cancel_matching)
        self._history.cancelled += [Cancelled(token, now_ms()) for token in match.values()]

    async def _cancel_matching(self) -> None:
        matching = self._client.query().cancel_matching(CHANGED, due_from_ms=now_ms() + 4 * HOUR_MS)
        async with aclosing(matching) as steps:
            async for _ in steps:
                pass

    async def _cancel(self, producer: Producer, batch: Batch) -> int:
        """Cancel by id; return how many are."""
        outcomes = await insist(lambda: producer.cancel_many(batch))
        gone = [token for token, outcome in zip(batch.values(), outcomes, strict=True) if outcome in GONE]
        self._history.cancelled += [Cancelled(token, now_ms()) for token in gone]
        return len(gone)

    async def _cancel_released(self, producer: Producer, batch: Batch) -> None:
        last = list(batch)[-1]

        async def released() -> bool:
            return (await producer.get(last)).state is MessageState.RELEASED

        while not await insist(released):  # noqa: ASYNC110  the cluster's state
            await asyncio.sleep(PAUSE_S)
        self.cancelled_released += await self._cancel(producer, dict(islice(batch.items(), len(batch) // 2)))

    async def _cancel_for_slow(self, producer: Producer, batch: Batch, kept: Callable[[int], bool]) -> None:
        """Cancel for SLOW some of what the other group has had and acknowledged."""

        def given() -> set[int]:
            return {one.token for one in self._history.delivered}

        while not given().issuperset(batch.values()):  # noqa: ASYNC110  the cluster's pace
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(2 * PAUSE_S)  # until the acks are in the log
        some = {name: token for name, token in batch.items() if token % 2 and kept(token)}
        outcomes = await insist(lambda: producer.cancel_many(some, remaining_groups=True))
        pairs = zip(some.values(), outcomes, strict=True)
        self.skipped.update(token for token, outcome in pairs if outcome in GONE)


async def _schedule(producer: Producer, topic: str, tokens: Sequence[int], due_ms: int) -> Sequence[str]:
    bodies, keys = [TOKEN.pack(token) for token in tokens], [str(token) for token in tokens]
    return (await producer.schedule_batch(topic, bodies, due_ms=due_ms, idempotency_keys=keys)).ids
