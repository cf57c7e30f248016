"""Schedules that fire each second or so, their consumer, and looks at their histories.

Everything is written down in the run's `Fires`; `checks/fires.py` judges it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.history import FireAcknowledged, FireMessage, Fires, FireSeen, PlannedFires
from tarry.chaos.traffic.traffic import patiently
from tarry.client.aio import Client, Cron, Interval, Message, Missed, Overlap, RecurringSchedule, Start
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
MISSED_AFTER_MS: Final = 2_000
HOLDS_S: Final = 1.5
"""Until a message whose schedule lets none overlap is acknowledged: fires come meanwhile."""


class Kind(NamedTuple):
    """A schedule: its timing, the step from one fire to the next, and its policy."""

    timing: Timing
    step_ms: int
    later_ms: int = 0
    """By so much the first fire is later than an even second."""
    missed: Missed = Missed.ALL
    missed_after_ms: int = 0
    overlap: Overlap = Overlap.ALLOW


STEADY: Final = {
    "each-second": Kind(Interval(SECOND_MS), SECOND_MS),
    "between": Kind(Interval(SECOND_MS), SECOND_MS, 487),
    "now-and-then": Kind(Interval(1_700), 1_700, 113),
    "cron": Kind(Cron("* * * * * *", "Europe/Berlin"), SECOND_MS),
    "cron-by-twos": Kind(Cron("*/2 * * * * *"), 2 * SECOND_MS),
    "skipping": Kind(Interval(SECOND_MS), SECOND_MS, overlap=Overlap.SKIP),
    "queueing": Kind(Interval(1_300), 1_300, 271, overlap=Overlap.QUEUE),
}
MISSING: Final = {
    f"missed-{policy}": Kind(Interval(SECOND_MS), SECOND_MS, 0, policy, MISSED_AFTER_MS) for policy in Missed
}
"""Schedules that fire at the same times, and differ in what becomes of fires that are missed."""

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class Firing:
    """Schedules that fire until they are ended, by a change that leaves their other fires as they are."""

    client: Client
    fires: Fires
    kinds: Mapping[str, Kind] = field(default_factory=lambda: STEADY)
    failed_looks: int = 0
    _started_ms: dict[str, int] = field(default_factory=dict)
    _first_ms: dict[str, int] = field(default_factory=dict)
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
        plans: dict[str, PlannedFires] = {}
        for name, start_ms in self._started_ms.items():
            end_ms = now_ms() + ENDS_MS
            await self._put(name, start_ms, end_ms)
            apart = self.kinds[name].overlap is not Overlap.ALLOW
            step_ms = self.kinds[name].step_ms
            plans[name] = PlannedFires(name, self._first_ms[name], step_ms, end_ms, apart=apart)
        await asyncio.sleep((ENDS_MS + SECOND_MS) / 1_000)  # in which the last ones are decided
        for name, plan in plans.items():
            told = await self._got(name)
            self.fires.planned.append(replace(plan, missed=told.missed + told.skipped))
        wanted = sum(len(plan.times_ms()) - plan.missed for plan in self.fires.planned)

        async def come() -> int | None:
            came = len({one.id for one in self.fires.messages})
            return None if came >= wanted else came

        settled = await patiently(come, SETTLES_S)
        await asyncio.sleep(SECOND_MS / 1_000)  # in which one too many would come
        for name in self._started_ms:
            self._see(await self._got(name))
        return settled

    async def _begin(self) -> None:
        start: Start = "earliest"
        await insisted(lambda: self.client.operator().create_topic(TOPIC))
        await insisted(lambda: self.client.operator().create_group(TOPIC, GROUP, start))
        even_ms = -(-(now_ms() + BEGINS_MS) // (2 * SECOND_MS)) * 2 * SECOND_MS
        for name, kind in self.kinds.items():
            start_ms = even_ms + kind.later_ms
            created_ms = (await self._put(name, start_ms, 0)).created_ms
            late = max(
                0, (created_ms - start_ms) // kind.step_ms + 1
            )  # fires before its creation do not come
            self._started_ms[name] = start_ms
            self._first_ms[name] = start_ms + late * kind.step_ms

    async def _put(self, name: str, start_ms: int, end_ms: int) -> RecurringSchedule:
        put, kind = self.client.recurring().put, self.kinds[name]
        return await insisted(
            lambda: put(
                name,
                TOPIC,
                name.encode(),
                timing=kind.timing,
                start_ms=start_ms,
                end_ms=end_ms,
                missed=kind.missed,
                missed_after_ms=kind.missed_after_ms,
                overlap=kind.overlap,
            )
        )

    async def _got(self, name: str) -> RecurringSchedule:
        return await insisted(lambda: self.client.recurring().get(name))

    async def _consume(self) -> None:
        while True:
            try:
                async with self.client.consumer(TOPIC, GROUP, name="fires") as consumer:
                    async for message in consumer:
                        name = message.body.decode()
                        one = FireMessage(name, message.id, message.due_ms, message.received_ms)
                        self.fires.messages.append(one)
                        if self.kinds[name].overlap is Overlap.ALLOW:
                            message.ack_soon()
                        else:
                            asyncio.get_running_loop().call_later(HOLDS_S, self._acknowledge, message)
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)

    def _acknowledge(self, message: Message) -> None:
        self.fires.acknowledged.append(FireAcknowledged(message.id, now_ms()))
        message.ack_soon()

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
