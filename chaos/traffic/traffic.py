"""Seeded producers and consumers that record what they sent and received.

What is sent, and when, follows from the seed alone; the answers do not, so the plan is a value and the
history another.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Answer, Cancelled, Delivered, History, Sent
from tarry.client.aio import CancelOutcome, Client, Message, Producer, Scheduled
from tarry.client.errors import Overloaded, Refused, TarryError, Unavailable

TOKEN = struct.Struct("<Q")
GONE = (CancelOutcome.CANCELLED, CancelOutcome.ALREADY_CANCELLED)
"""Outcomes of a cancel after which nobody may be given the message; the second where an answer was lost."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A load: `messages` evenly over `spread_ms`, each delayed by up to `delay_ms_max`.

    `cancel_share` of those that are due after a second or more are cancelled again at once.
    """

    messages: int
    topics: tuple[str, ...]
    spread_ms: int
    delay_ms_max: int
    body_bytes: int = 100
    cancel_share: float = 0.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Planned:
    """One message to be sent `at_ms` after the start."""

    token: int
    topic: str
    at_ms: int
    delay_ms: int
    absolute: bool  # named by due time rather than by delay
    cancel: bool  # as soon as it is acknowledged


def plan(load: Workload) -> tuple[Planned, ...]:
    """Return the messages of a load, in the order of sending.

    One in ten is due at once, two in ten within a second, one in ten together with others at the same
    moment late in the run, the rest anywhere.
    """
    chance = random.Random(load.seed)
    together_ms = load.spread_ms + load.delay_ms_max // 2

    def delay_ms(at_ms: int) -> int:
        kind = chance.randrange(10)
        if kind == 0:
            return 0
        if kind <= 2:
            return chance.randint(1, min(1_000, load.delay_ms_max))
        if kind == 3:
            return min(together_ms - at_ms, load.delay_ms_max)
        return chance.randint(0, load.delay_ms_max)

    moments = sorted(chance.randrange(max(1, load.spread_ms)) for _ in range(load.messages))

    def planned(token: int, at_ms: int) -> Planned:
        topic, delay = chance.choice(load.topics), delay_ms(at_ms)
        absolute, cancel = chance.random() < 0.5, chance.random() < load.cancel_share
        return Planned(token, topic, at_ms, delay, absolute, cancel and delay >= 1_000)

    return tuple(planned(token, at_ms) for token, at_ms in enumerate(moments, 1))


@dataclass(slots=True)
class Traffic:
    """Producers and consumers of one run, and their history."""

    client: Client
    body_bytes: int = 100
    lease_ms: int = 0  # of the consumers; 0: the cluster's default
    history: History = field(default_factory=History)

    async def produce(self, planned: Sequence[Planned]) -> None:
        """Send the plan at its moments and return when every message and cancel has an answer."""
        start_ms = mono_ms()
        async with self.client.producer() as producer, asyncio.TaskGroup() as cancels:
            answers: list[asyncio.Future[Scheduled]] = []
            for message in planned:
                if (ahead_ms := message.at_ms - (mono_ms() - start_ms)) > 0:
                    await asyncio.sleep(ahead_ms / 1_000)
                body = TOKEN.pack(message.token).ljust(self.body_bytes, b"\0")
                sent_mono_ms, sent_ms = mono_ms(), now_ms()  # in this order: else a wait seems shorter
                due_ms = sent_ms + message.delay_ms
                answer = producer.schedule(
                    message.topic,
                    body,
                    due_ms=due_ms if message.absolute else None,
                    delay_ms=None if message.absolute else message.delay_ms,
                )
                draft = Sent(message.token, message.topic, due_ms, sent_ms, sent_mono_ms)
                answer.add_done_callback(partial(self._answered, draft))
                answers.append(answer)
                if message.cancel:
                    cancels.create_task(self._cancel(producer, message.token, answer))
            await asyncio.gather(*answers, return_exceptions=True)

    def _answered(self, draft: Sent, answer: asyncio.Future[Scheduled]) -> None:
        self.history.sent.append(answered(draft, *outcome(answer)))

    async def _cancel(self, producer: Producer, token: int, answer: asyncio.Future[Scheduled]) -> None:
        try:
            outcome = await producer.cancel((await answer).id)
        except TarryError as error:
            if answer_of(error) is Answer.UNKNOWN and answer.exception() is None:
                self.history.cancelled.append(Cancelled(token, now_ms(), certain=False))
            return
        if outcome in GONE:
            self.history.cancelled.append(Cancelled(token, now_ms()))

    async def consume(self, topic: str, group: str, name: str = "") -> None:
        """Receive as one consumer of a group and settle each delivery, until cancelled."""
        async with self.client.consumer(topic, group, name=name, lease_ms=self.lease_ms) as consumer:
            async for message in consumer:
                self.history.delivered.append(received(message, group, name))
                await self.settle(message)

    async def settle(self, message: Message) -> None:
        """Acknowledge a delivery."""
        message.ack_soon()

    @asynccontextmanager
    async def consuming(
        self, topics: Sequence[str], group: str, names: Sequence[str] = ("",)
    ) -> AsyncIterator[None]:
        """Have these consumers on each topic named while the block lasts; an error in any ends the block."""
        async with asyncio.TaskGroup() as tasks:
            consumers = [
                tasks.create_task(self.consume(topic, group, name)) for topic in topics for name in names
            ]
            yield
            for consumer in consumers:
                consumer.cancel()

    async def drained(self, patience_s: float) -> bool:
        """Wait until all that was acknowledged is delivered; False if nothing comes for `patience_s`."""

        async def delivered() -> int | None:
            gone = {cancel.token for cancel in self.history.cancelled}
            expected = {sent.token for sent in self.history.acknowledged()} - gone
            left = expected - {delivery.token for delivery in self.history.delivered}
            return len(self.history.delivered) if left else None

        return await patiently(delivered, patience_s)


async def patiently(progress: Callable[[], Awaitable[int | None]], patience_s: float) -> bool:
    """Wait until there is no more progress to be made (None); False if it stays the same for `patience_s`."""
    seen, since_ms = -1, mono_ms()
    while (now := await progress()) is not None:
        if now != seen:
            seen, since_ms = now, mono_ms()
        elif mono_ms() - since_ms > patience_s * 1_000:
            return False
        await asyncio.sleep(0.2)
    return True


def received(message: Message, group: str, consumer: str, ahead_ms: int = 0) -> Delivered:
    """Return a delivery as its consumer records it now, on a wall clock that is `ahead_ms` ahead."""
    stamp = message.stamp
    return Delivered(
        token=TOKEN.unpack_from(message.body)[0],
        topic=message.topic,
        group=group,
        id=message.id,
        due_ms=message.due_ms,
        attempt=message.attempt,
        maybe_duplicate=message.maybe_duplicate,
        received_ms=now_ms() + ahead_ms,
        received_mono_ms=mono_ms(),
        consumer=consumer,
        queue=message.queue,
        offset=message.offset,
        node=stamp.node,
        term=stamp.term,
        delay_ms=message.delay_ms,
    )


def outcome(answer: asyncio.Future[Scheduled]) -> tuple[TarryError | None, str, int]:
    """Return a schedule's error, id and due time; raise an error that is no refusal."""
    error = answer.exception()
    if error is None:
        return None, answer.result().id, answer.result().due_ms
    if not isinstance(error, TarryError):
        raise error
    return error, "", 0


def answered(
    draft: Sent, error: BaseException | None = None, found: str = "", due_ms: int = 0, ahead_ms: int = 0
) -> Sent:
    """Return a message with its answer, as its producer records it now (see `received`)."""
    return replace(
        draft, answer=answer_of(error), answered_ms=now_ms() + ahead_ms, answered_mono_ms=mono_ms(),
        id=found, acknowledged_due_ms=due_ms, reason=str(error) if error else "",
    )  # fmt: skip


def answer_of(error: BaseException | None) -> Answer:
    """Return what an outcome means to the producer: only some errors say that nothing was done."""
    if error is None:
        return Answer.ACKNOWLEDGED
    return Answer.REFUSED if isinstance(error, Refused | Unavailable | Overloaded) else Answer.UNKNOWN
