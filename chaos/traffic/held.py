"""Messages that are released and wait, behind a rate, in a crowd, behind their keys; some are cancelled.

Everything is written down in the run's history: deliveries, answers to schedules, cancels and look-ups.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Answer, Asked, Cancelled, History, Operation, Sent
from tarry.chaos.traffic.insistence import AGAIN_S, insist
from tarry.chaos.traffic.traffic import GONE, TOKEN, answer_of, answered, received
from tarry.client.aio import AckOutcome, Client, Producer
from tarry.client.errors import OutcomeUnknown, Overloaded, TarryError, Unavailable
from tarry.client.results import MessageState

TOPIC, GROUP = "held", "held"
RELEASE_PER_S = 120
CROWD = 60  # due at one instant
KEYS = 6
EVERY_S = 0.25
AT_ONCE = 8  # ids of one cancel
NACKED_SHARE = 0.1


@dataclass(slots=True)
class Held:
    """A producer that cancels what it has scheduled, and a consumer that is slow and gives some back."""

    client: Client
    history: History
    tokens: Iterator[int]
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of cancels, by name."""
    of_released: Counter[str] = field(default_factory=Counter)
    """Of them, those of messages that were released when it was looked just before."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begin(self) -> None:
        """Make the topic with its rate, and start."""
        await insist(self._make)
        chance = random.Random(f"{self.seed} held")
        self._tasks = [
            asyncio.create_task(self._consume(random.Random(chance.random()))),
            asyncio.create_task(self._produce(random.Random(chance.random()))),
        ]

    async def _make(self) -> None:
        operator = self.client.operator()
        await operator.create_topic(TOPIC, release_per_s_max=RELEASE_PER_S)
        await operator.create_group(TOPIC, GROUP)

    async def stop_producing(self) -> None:
        """Schedule and cancel nothing more; raises what has ended a task before."""
        self._stopped.set()
        await self._tasks[1]

    async def end(self) -> None:
        """End the consumer, too."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def left(self) -> set[int]:
        """Return the tokens of what was acknowledged, perhaps not cancelled, and not delivered."""
        gone = {one.token for one in self.history.cancelled}
        here = {one.token for one in self.history.delivered if one.topic == TOPIC}
        return {
            one.token for one in self.history.acknowledged() if one.topic == TOPIC
        } - gone - here  # fmt: skip

    async def _produce(self, chance: random.Random) -> None:
        known: dict[int, str] = {}
        async with self.client.producer() as producer:
            while not self._stopped.is_set():
                known |= await self._schedule(producer, chance)
                for _ in range(3):
                    await asyncio.sleep(EVERY_S / 3)
                    if known:
                        tokens = chance.sample(sorted(known), min(len(known), chance.randint(1, AT_ONCE)))
                        await self._cancel(producer, {token: known[token] for token in tokens})
                known = dict(list(known.items())[-4 * CROWD :])

    async def _schedule(self, producer: Producer, chance: random.Random) -> dict[int, str]:
        """Schedule a crowd; return the ids by token, none where there is no answer."""
        delay_ms, keyed = chance.choice((0, 100, 400)), chance.random() < 0.5
        at_mono_ms, at_ms = mono_ms(), now_ms()
        keys = [f"key {chance.randrange(KEYS)}" if keyed else "" for _ in range(CROWD)]
        drafts = [
            Sent(next(self.tokens), TOPIC, at_ms + delay_ms, at_ms, at_mono_ms, key=key) for key in keys
        ]
        bodies = [TOKEN.pack(draft.token) for draft in drafts]
        try:
            answer = await producer.schedule_batch(
                TOPIC, bodies, due_ms=at_ms + delay_ms, ordering_keys=keys if keyed else None
            )
        except TarryError as error:
            self.history.sent += [answered(draft, error) for draft in drafts]
            return {}
        rows = zip(drafts, answer.ids, answer.due_ms.tolist(), strict=True)
        self.history.sent += [answered(draft, None, found, due) for draft, found, due in rows]
        return {draft.token: found for draft, found in zip(drafts, answer.ids, strict=True)}

    async def _cancel(self, producer: Producer, ids: dict[int, str]) -> None:
        looks = await asyncio.gather(*(self._is_released(producer, *pair) for pair in ids.items()))
        released = {token for token, there in zip(ids, looks, strict=True) if there}
        at_ms = mono_ms()
        try:
            outcomes = await producer.cancel_many(ids.values())
        except TarryError as error:
            if answer_of(error) is Answer.UNKNOWN:
                self.history.operations += [Operation(token, Asked.CANCEL, "", at_ms, None) for token in ids]
                self.history.cancelled += [Cancelled(token, now_ms(), certain=False) for token in ids]
            return
        for token, outcome in zip(ids, outcomes, strict=True):
            self.outcomes[outcome.value] += 1
            self.of_released[outcome.value] += token in released
            self.history.operations.append(Operation(token, Asked.CANCEL, outcome.value, at_ms, mono_ms()))
            if outcome in GONE:
                self.history.cancelled.append(Cancelled(token, now_ms()))

    async def _is_released(self, producer: Producer, token: int, found: str) -> bool:
        at_ms = mono_ms()
        try:
            state = (await producer.get(found)).state
        except TarryError:
            return False
        self.history.operations.append(Operation(token, Asked.GET, state.value, at_ms, mono_ms()))
        return state is MessageState.RELEASED

    async def _consume(self, chance: random.Random) -> None:
        while True:
            try:
                async with self.client.consumer(TOPIC, GROUP, name="slow", credit=20, lease_ms=1_500) as slow:
                    async for message in slow:
                        self.history.delivered.append(received(message, GROUP, "slow"))
                        await asyncio.sleep(chance.choice((0, 0, 0, 0.02)))
                        if message.attempt == 1 and chance.random() < NACKED_SHARE:
                            message.nack(delay_ms=chance.randint(0, 800)).add_done_callback(_forget)
                        else:
                            message.ack_soon()
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)


def _forget(answer: asyncio.Future[AckOutcome]) -> None:
    """Take the error of a nack for known: the message comes again."""
    if not answer.cancelled():
        answer.exception()
