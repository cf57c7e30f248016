"""Messages of which one group gets each at once, and another later by its delay.

Everything is written down in the run's history. What the delay was at which time is the scenario's to judge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Delivered, History, Sent
from tarry.chaos.traffic.insistence import AGAIN_S, insist
from tarry.chaos.traffic.traffic import TOKEN, answered, received
from tarry.client.aio import AckOutcome, Client
from tarry.client.errors import OutcomeUnknown, Overloaded, TarryError, Unavailable

TOPIC, NOW, LATER = "delayed", "delayed-now", "delayed-later"
CROWD = 20
EVERY_S = 0.2
KEYS = 6
NACKED_SHARE = 0.1


@dataclass(slots=True)
class Delayed:
    """A producer, and a consumer of each of the two groups; some of what they get they give back."""

    client: Client
    history: History
    tokens: Iterator[int]
    seed: int
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begin(self, delay_ms: int) -> None:
        """Make the topic and its groups, and start."""
        for group in (NOW, LATER):
            await insist(partial(self.client.operator().create_group, TOPIC, group))
        await self.set_delay(delay_ms)
        chance = random.Random(f"{self.seed} delayed")
        work = [self._produce(random.Random(chance.random()))]
        work += [self._consume(group, random.Random(chance.random())) for group in (NOW, LATER)]
        self._tasks = [asyncio.create_task(one) for one in work]

    async def set_delay(self, delay_ms: int) -> None:
        """Set the delay of the later group, however often that takes."""
        await insist(partial(self.client.operator().set_group, TOPIC, LATER, delay_ms=delay_ms))

    async def stop_producing(self) -> None:
        """Schedule nothing more; raises what has ended a task before."""
        self._stopped.set()
        await self._tasks[0]

    async def end(self) -> None:
        """End the consumers, too."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def left(self, group: str) -> set[int]:
        """Return the tokens of what was acknowledged and a group was not given."""
        here = {one.token for one in self.history.delivered if (one.topic, one.group) == (TOPIC, group)}
        return {one.token for one in self.history.acknowledged() if one.topic == TOPIC} - here

    def early(self, delay_ms: int) -> list[Delivered]:
        """Return what the later group was given sooner than so long after it was due."""
        due_ms = {one.token: one.acknowledged_due_ms for one in self.history.acknowledged()}
        return [
            one
            for one in self.history.delivered
            if (one.topic, one.group, one.attempt) == (TOPIC, LATER, 1)
            and one.token in due_ms
            and one.received_ms < due_ms[one.token] + delay_ms
        ]

    async def _produce(self, chance: random.Random) -> None:
        async with self.client.producer() as producer:
            while not self._stopped.is_set():
                delay_ms, keyed = chance.choice((0, 100, 400)), chance.random() < 0.3
                at_mono_ms, at_ms = mono_ms(), now_ms()
                keys = [f"key {chance.randrange(KEYS)}" if keyed else "" for _ in range(CROWD)]
                due_ms = at_ms + delay_ms
                drafts = [Sent(next(self.tokens), TOPIC, due_ms, at_ms, at_mono_ms, key=key) for key in keys]
                bodies = [TOKEN.pack(draft.token) for draft in drafts]
                try:
                    answer = await producer.schedule_batch(
                        TOPIC, bodies, due_ms=due_ms, ordering_keys=keys if keyed else None
                    )
                except TarryError as error:
                    self.history.sent += [answered(draft, error) for draft in drafts]
                else:
                    rows = zip(drafts, answer.ids, answer.due_ms.tolist(), strict=True)
                    self.history.sent += [answered(draft, None, found, due) for draft, found, due in rows]
                await asyncio.sleep(EVERY_S)

    async def _consume(self, group: str, chance: random.Random) -> None:
        while True:
            try:
                async with self.client.consumer(TOPIC, group, name=group, lease_ms=1_500) as consumer:
                    async for message in consumer:
                        self.history.delivered.append(received(message, group, group))
                        if message.attempt == 1 and chance.random() < NACKED_SHARE:
                            message.nack(delay_ms=chance.randint(0, 500)).add_done_callback(_forget)
                        else:
                            message.ack_soon()
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)


def _forget(answer: asyncio.Future[AckOutcome]) -> None:
    """Take the error of a nack for known: the message comes again."""
    if not answer.cancelled():
        answer.exception()
