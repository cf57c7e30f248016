"""Schedules that fire each second or so, their consumer, and looks at their histories.

Everything is written down in the run's `Fires`; `checks/fires.py` judges it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.history import FireMessage, Fires, FireSeen, PlannedFires
from tarry.chaos.traffic.traffic import patiently
from tarry.client.aio import Client, Cron, Interval, Missed, RecurringSchedule, Start
from tarry.client.errors import OutcomeUnknown, Overloaded, TarryError, Unavailable
from tarry.client.recurring.specification import Timing

TOPIC, GROUP = "fires", "fires"
SECOND_MS: Final = 1_000
BEGINS_MS: Final = 2_000
"""From the making of the schedules to their first fires."""
ENDS_MS: Final = 10_000
"""From the change that ends a schedule to its end: longer than that change is repeated."""
LOOKS_S: Final = 1.0
AGAIN_S: Final = 0.2
SETTLES_S: Final = 60.0
TIMINGS: Final[dict[str, tuple[Timing, int, int]]] = {
    "each-second": (Interval(SECOND_MS), SECOND_MS, 0),
    "between": (Interval(SECOND_MS), SECOND_MS, 487),
    "now-and-then": (Interval(1_700), 1_700, 113),
    "cron": (Cron("* * * * * *", "Europe/Berlin"), SECOND_MS, 0),
    "cron-by-twos": (Cron("*/2 * * * * *"), 2 * SECOND_MS, 0),
}
"""Timing, the step from one fire to the next, and by how much the first is later than an even second."""

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class Firing:
    """Schedules that fire until they are ended, by a change that leaves their other fires as they are."""

    client: Client
    fires: Fires
    failed_looks: int = 0
    _started_ms: dict[str, int] = field(default_factory=dict)
    _seen: set[FireSeen] = field(default_factory=set)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Fire, consume and look while the block lasts; a failure of any of these ends it."""
        await self._begin()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._consume()), tasks.create_task(self._look())]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def end(self) -> bool:
        """End the schedules, and return once all messages have come; False: long none came."""
        for name, start_ms in self._started_ms.items():
            end_ms = now_ms() + ENDS_MS
            await self._put(name, start_ms, end_ms)
            self.fires.planned.append(PlannedFires(name, start_ms, TIMINGS[name][1], end_ms))
        await asyncio.sleep(ENDS_MS / 1_000)
        wanted = sum(len(plan.times_ms()) for plan in self.fires.planned)

        async def come() -> int | None:
            came = len({one.id for one in self.fires.messages})
            return None if came >= wanted else came

        settled = await patiently(come, SETTLES_S)
        await asyncio.sleep(SECOND_MS / 1_000)  # in which one too many would come
        for name in self._started_ms:
            self._see(await insisted(lambda name=name: self.client.recurring().get(name)))  # type: ignore[misc]
        return settled

    async def _begin(self) -> None:
        start: Start = "earliest"
        await insisted(lambda: self.client.operator().create_topic(TOPIC))
        await insisted(lambda: self.client.operator().create_group(TOPIC, GROUP, start))
        even_ms = -(-(now_ms() + BEGINS_MS) // (2 * SECOND_MS)) * 2 * SECOND_MS
        for name, (_, _, later_ms) in TIMINGS.items():
            self._started_ms[name] = even_ms + later_ms
            await self._put(name, even_ms + later_ms, 0)

    async def _put(self, name: str, start_ms: int, end_ms: int) -> RecurringSchedule:
        put = self.client.recurring().put
        return await insisted(
            lambda: put(
                name,
                TOPIC,
                name.encode(),
                timing=TIMINGS[name][0],
                start_ms=start_ms,
                end_ms=end_ms,
                missed=Missed.ALL,
            )
        )

    async def _consume(self) -> None:
        while True:
            try:
                async with self.client.consumer(TOPIC, GROUP, name="fires") as consumer:
                    async for message in consumer:
                        name = message.body.decode()
                        one = FireMessage(name, message.id, message.due_ms, message.received_ms)
                        self.fires.messages.append(one)
                        message.ack_soon()
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOKS_S)
            for name in self._started_ms:
                try:
                    self._see(await self.client.recurring().get(name))
                except TarryError:
                    self.failed_looks += 1

    def _see(self, schedule: RecurringSchedule) -> None:
        for fire in schedule.history:
            seen = FireSeen(schedule.name, fire.outcome.value, fire.fire_ms, fire.id)
            if seen not in self._seen:
                self._seen.add(seen)
                self.fires.seen.append(seen)


async def insisted(work: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Return the answer to a call that may be repeated, however often it takes."""
    while True:
        try:
            return await work()
        except (Unavailable, OutcomeUnknown, Overloaded):
            await asyncio.sleep(AGAIN_S)
