"""Fires of schedules that recur, on the leader: a heap of next looks, one timer, plans into the log.

    heap ─► schedules to look at ─► plan (`plan.py`) ─► FireCommand ─► applied ─► changed schedules ─► heap
                                     │ is the last message settled?
                                     └─► asked beside it, one at a time, then looked at again

A plan names how often its schedule had changed, so one made before a pause or a put is not applied; what it
was to fire is planned anew. A new leader begins with the heap of all schedules, from the state alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

import structlog

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.recurring import plan
from tarry.node.recurring.timing import TimingInvalid, timing_of
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Fired
from tarry.replication.state_machine.recurring_table import NONE_COMES, Entry

log = structlog.get_logger()

PLANS: Final = 50
"""Looked at in one turn of the event loop, and proposed with one command: some 5 ms to plan, and to apply.

Fewer, where more than plan.WORKED_MAX fires are worked out, or records have more than plan.BYTES_MAX bytes.
"""
ENTRIES: Final = 5_000
"""Put into a new leader's heap in one turn."""
STALE_MAX: Final = 10_000
"""Items beyond twice the schedules at which the heap is built anew: most are of what has changed since."""
UNSETTLED_MS: Final = 1_000
"""From one look to the next at whether a message that a fire waits for is settled, at least."""
UNSETTLED_MS_MAX: Final = 30_000
"""At most. Between both a sixteenth of what it has waited: thousands that wait for a consumer which is gone
would else keep the leader busy with questions."""
UNPLANNED_MS: Final = 60_000
"""Until the next look at a schedule whose zone this node does not know."""


@dataclass(slots=True)
class FireCounts:
    """Numbers of the fires that this node decided as the leader, since its start."""

    fired: int = 0
    skipped: int = 0
    missed: int = 0
    unplannable: int = 0
    """Looks that have found a time zone which this node does not know."""

    def add(self, plan: log_pb.SchedulePlan) -> None:
        """Count a plan that was applied."""
        for fire in plan.fires:
            self.fired += fire.outcome == pb.FIRE_OUTCOME_FIRED
            if fire.outcome == pb.FIRE_OUTCOME_SKIPPED:
                self.skipped += fire.fires
            if fire.outcome == pb.FIRE_OUTCOME_MISSED:
                self.missed += fire.fires


class Fires:
    """Runs for as long as this node may serve as leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        propose: Callable[[log_pb.FireCommand], Awaitable[Fired]],
        settled: Callable[[int, int], Awaitable[bool]],
        counts: FireCounts,
    ) -> None:
        """Take ``settled``: whether the message of an id, hour and global index, waits for nothing."""
        self._machine, self._time, self._propose = machine, time, propose
        self._settled, self._counts = settled, counts
        self._heap: list[tuple[int, int, int]] = []  # when to look, number, changes then
        self._ready = False  # the heap has all schedules
        self._woken = asyncio.Event()
        self._sleeps_until_ms: int | None = None
        self._asked: deque[tuple[int, int]] = deque()  # number, changes then
        self._answers: dict[int, tuple[int, bool]] = {}  # by number: changes then, settled
        self._to_ask = asyncio.Event()

    def look(self, now_ms: int) -> None:
        """Wake the loop if cluster time has run ahead of what it sleeps by: a wrong clock was put right."""
        if self._sleeps_until_ms is not None and now_ms >= self._sleeps_until_ms:
            self._woken.set()

    def changed(self, numbers: Iterable[int]) -> None:
        """Take note of schedules that an entry has changed."""
        for number in numbers:
            entry = self._machine.recurring.numbered(number)
            if entry is None:
                self._answers.pop(number, None)
            elif (when_ms := _looked_at_ms(entry)) is not None:
                self._push(when_ms, entry)

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on from the state."""
        await self._begin()
        while True:
            if len(self._heap) > 2 * len(self._machine.recurring) + STALE_MAX:
                await self._begin()
            now_ms = self._time.now_ms()
            plans = self._plans(now_ms)
            if plans:
                command = log_pb.FireCommand(plans=plans, now_ms=now_ms)
                done = await self._propose(command)
                self._done(plans, done)
            elif self._heap and self._heap[0][0] <= now_ms + plan.AHEAD_MS:
                await asyncio.sleep(0)
            else:
                await self._sleep(now_ms)

    async def ask(self) -> None:
        """Find out, one after another, whether messages are settled that fires wait for, until cancelled."""
        while True:
            while self._asked:
                number, changes = self._asked.popleft()
                entry = self._machine.recurring.numbered(number)
                if entry is None or entry.changes != changes:
                    continue
                state = entry.state()
                settled = await self._settled(state.last_hour, state.last_index)
                if self._machine.recurring.numbered(number) is entry:  # else it has changed, or is gone
                    self._answers[number] = changes, settled
                    self._push(0, entry)
                await asyncio.sleep(0)
            self._to_ask.clear()
            await self._to_ask.wait()

    async def _begin(self) -> None:
        """Build the heap; what changes meanwhile is pushed beside it, and looked at twice at most."""
        table, self._ready, self._heap = self._machine.recurring, False, []
        for place, number in enumerate(numbers := table.numbers()):
            if place % ENTRIES == 0:
                await asyncio.sleep(0)
            entry = table.numbered(number)
            if entry is not None and (when_ms := _looked_at_ms(entry)) is not None:
                self._heap.append((when_ms, number, entry.changes))
        heapify(self._heap)
        self._ready = True
        log.debug("recurring schedules", count=len(numbers))

    def _done(self, plans: list[log_pb.SchedulePlan], done: Fired) -> None:
        """Count what was applied; what was not has changed since, and is in the heap as it is now."""
        for one, last in zip(plans, done.last, strict=True):
            entry = self._machine.recurring.numbered(one.number)
            if last is not None:
                self._counts.add(one)
            elif entry is not None and entry.changes == one.changes:
                log.error("plan of a schedule was refused", schedule=entry.name, plan=str(one))
                self._push(self._time.now_ms() + plan.AHEAD_MS + UNPLANNED_MS, entry)

    def _push(self, when_ms: int, entry: Entry) -> None:
        if not self._ready:
            self._heap.append((when_ms, entry.number, entry.changes))
            return
        heappush(self._heap, (when_ms, entry.number, entry.changes))
        if self._sleeps_until_ms is None or when_ms - plan.AHEAD_MS < self._sleeps_until_ms:
            self._woken.set()

    def _plans(self, now_ms: int) -> list[log_pb.SchedulePlan]:
        """Look at some of the schedules whose time has come; return the plans."""
        plans: dict[int, log_pb.SchedulePlan] = {}
        worked = size_bytes = 0
        for _ in range(PLANS):
            if not self._heap or self._heap[0][0] > now_ms + plan.AHEAD_MS:
                break
            if worked > plan.WORKED_MAX or size_bytes > plan.BYTES_MAX:
                break
            _, number, changes = heappop(self._heap)
            entry = self._machine.recurring.numbered(number)
            if entry is None or entry.changes != changes or number in plans:
                continue  # changed since: another item of the heap is of it as it is now
            looked = self._looked(entry, now_ms)
            worked, size_bytes = worked + looked.worked, size_bytes + looked.size_bytes
            if looked.plan is not None:
                plans[number] = looked.plan
            elif looked.again_ms is not None:
                heappush(self._heap, (looked.again_ms, number, changes))
        return list(plans.values())

    def _looked(self, entry: Entry, now_ms: int) -> plan.Look:
        state = entry.state()
        spec = pb.RecurringSpec.FromString(state.spec)
        try:
            timing = timing_of(spec, state.created_ms)
        except TimingInvalid as fault:
            self._counts.unplannable += 1
            log.error("schedule cannot be planned", schedule=entry.name, fault=str(fault))
            return plan.Look(None, now_ms + plan.AHEAD_MS + UNPLANNED_MS)
        changes, settled = self._answers.pop(entry.number, (0, False))
        known = settled if changes == entry.changes else None
        looked = plan.look(state, spec, timing, now_ms, settled=known)
        if looked.needs_settled:
            self._asked.append((entry.number, entry.changes))
            self._to_ask.set()
            return plan.Look(None)
        if looked.plan is not None or known is None:
            return looked
        # the last message is not settled: at the fire's time it is asked once more, not earlier
        again_ms = [] if looked.again_ms is None else [looked.again_ms + plan.AHEAD_MS]
        if entry.waiting_ms:
            waited_ms = (now_ms - entry.waiting_ms) // 16
            pause_ms = min(max(UNSETTLED_MS, waited_ms), UNSETTLED_MS_MAX)
            again_ms.append(now_ms + plan.AHEAD_MS + pause_ms)
        return plan.Look(None, min(again_ms, default=None))

    async def _sleep(self, now_ms: int) -> None:
        until_ms = self._heap[0][0] - plan.AHEAD_MS if self._heap else None
        self._sleeps_until_ms = until_ms
        self._woken.clear()
        try:
            async with asyncio.timeout(None if until_ms is None else max(0, until_ms - now_ms) / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._sleeps_until_ms = None


def _looked_at_ms(entry: Entry) -> int | None:
    """Return when to look at a schedule, as it is now; None: not before it has changed."""
    if entry.paused:
        return None
    if entry.waiting_ms or entry.next_ms == 0:
        return 0
    return None if entry.next_ms == NONE_COMES else entry.next_ms
