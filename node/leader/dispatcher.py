"""The dispatcher: the leader's loop that releases what is about to be due.

A release is committed before its messages are due; the delivery then happens at
the due time, from memory, so that commit latency does not become lateness.

    next due far away ─► sleep until it is near (an earlier insert wakes the loop)
    next due is near  ─► propose Release(until = now + period + commit allowance)
    slice was full    ─► propose twice as many at once, until nothing overdue is left, and what
                         other topics have due behind the backlog with them
    over many hours      ─► some of them at a time, each as soon as the one before
    a crowded second  ─► begin so much earlier that all of it is released when it begins
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.leader.recent_lateness import RecentLateness
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Released

log = structlog.get_logger()

PER_S_GUESSED: Final = 50_000.0
"""Messages released in a second, before it was measured."""

HOURS_MAX: Final = 12
"""With messages, released with one commit: the first use of an hour takes each replica some 1 ms."""

COPIES_MAX: Final = 2_500
"""Of retries, released with one commit, and of others that overtake while more are pending. The ledger has
each copy read, which takes every replica some 2.5 µs."""

QUEUES_MAX: Final = 500
"""Ready queues that messages are released to with one commit: one takes every replica some 10 to 20 µs."""

EPSILON: Final = 1e-9
"""Of a sum of shares, for what its rounding may add up to."""

COMMIT_MARGIN: Final = 1.5
"""Of what a commit took, what the next ones are allowed."""
COMMIT_DECAY: Final = 0.98
"""Factor of that allowance after each quicker one: half of it is left after 34 releases, some 2 s."""


@dataclass(slots=True)
class ReleaseCost:
    """Measured duration of releases."""

    commit_ms: float = 0.0
    per_s: float = PER_S_GUESSED

    def took(self, count: int, seconds: float, *, full: bool) -> None:
        """Learn from a release of so many messages; full: there are more."""
        self.commit_ms = max(COMMIT_MARGIN * seconds * 1000, COMMIT_DECAY * self.commit_ms)
        if full and seconds > 0:
            self.per_s += (count / seconds - self.per_s) / 4

    def allowed(self, settings: Dispatch) -> int:
        """Return the time by which a release begins before it is due, ms."""
        return int(max(settings.commit_ms, min(self.commit_ms, settings.commit_ms_max)))


@dataclass(frozen=True, slots=True)
class Plan:
    """Release up to ``until_ms`` now, or (None) look again after ``sleep_ms`` (None: when woken)."""

    until_ms: int | None
    sleep_ms: int | None


@dataclass(frozen=True, slots=True)
class Crowd:
    """A second that takes so long to release that it has to be begun with early."""

    start_ms: int
    until_ms: int


def crowd(
    second: int, pending: NDArray[np.uint32], frontier_ms: int, cost: ReleaseCost, settings: Dispatch
) -> Crowd | None:
    """Return the crowded second that has to be begun with first.

    Args:
        second: the one that ``pending``, shape (n,), begins with.
        pending: how many messages are pending in each.
        frontier_ms: everything due up to here has been released.
    """
    ends_ms = (second + 1 + np.arange(len(pending))) * 1000 - 1
    crowded = (pending > settings.slice_messages_max) & (ends_ms > frontier_ms)
    if not crowded.any():
        return None
    takes_ms = np.minimum(np.cumsum(pending) * 1000 / cost.per_s, settings.ahead_ms_max)
    start_ms = (ends_ms - 999 - cost.allowed(settings) - takes_ms)[crowded].astype(np.int64)
    first = int(start_ms.argmin())
    return Crowd(int(start_ms[first]), int(ends_ms[crowded][first]))


def plan(
    now_ms: int,
    frontier_ms: int,
    next_due_ms: int | None,
    commit_ms: int,
    period_ms: int,
    ahead: Crowd | None = None,
) -> Plan:
    """Return what to do now. Pure: the whole rhythm of releases is here.

    Args:
        commit_ms: how much earlier than due a release begins.
        period_ms: how far beyond that it reaches.
    """
    todo = _plan_next(now_ms, frontier_ms, next_due_ms, commit_ms, period_ms)
    if ahead is None:
        return todo
    if ahead.start_ms <= now_ms:
        return Plan(ahead.until_ms, None)
    until_start_ms = ahead.start_ms - now_ms
    if todo.until_ms is not None or (todo.sleep_ms is not None and todo.sleep_ms < until_start_ms):
        return todo
    return Plan(None, until_start_ms)


def _plan_next(
    now_ms: int, frontier_ms: int, next_due_ms: int | None, commit_ms: int, period_ms: int
) -> Plan:
    if next_due_ms is None:
        return Plan(None, None)
    # What is due within one period beyond the allowance goes into this release, so that
    # a steady stream needs one release a period.
    start_ms = max(next_due_ms, frontier_ms) - commit_ms
    if now_ms < start_ms:
        return Plan(None, start_ms - now_ms)
    until_ms = now_ms + period_ms + commit_ms
    return Plan(until_ms, None) if until_ms > frontier_ms else Plan(None, frontier_ms - until_ms + 1)


class Dispatcher:
    """Runs for as long as this node may serve as leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.ReleaseCommand], Awaitable[Any]],
        copies_coming: Callable[[], int],
    ) -> None:
        """Take ``copies_coming``, the number of copies for retries that are proposed and not applied."""
        self._machine = machine
        self._wheel = machine.wheel
        self._time = time
        self._settings = settings
        self._propose = propose
        self._copies_coming = copies_coming
        self._woken = asyncio.Event()
        self._sleeps_until_ms: int | None = None
        self._cost = ReleaseCost()
        self._is_copy = np.empty(0, np.bool_)  # by queue
        self.lateness = RecentLateness()

    def look(self, now_ms: int) -> None:
        """Wake the loop if cluster time has run ahead of what it sleeps by: a wrong clock was put right."""
        if self._sleeps_until_ms is not None and now_ms >= self._sleeps_until_ms:
            self._woken.set()

    def inserted(self) -> None:
        """Wake the loop if something has to be done now before what it sleeps for."""
        if self._woken.is_set():
            return
        next_due_ms, ahead = self._wheel.next_due_ms(), self._crowd(self._time.now_ms())
        starts = [] if next_due_ms is None else [next_due_ms - self._cost.allowed(self._settings)]
        starts += [] if ahead is None else [ahead.start_ms]
        if starts and (self._sleeps_until_ms is None or min(starts) < self._sleeps_until_ms):
            self._woken.set()

    def _crowd(self, now_ms: int) -> Crowd | None:
        """Return the crowded second, of those soon enough, that has to be begun with first."""
        if self._wheel.pending <= self._settings.slice_messages_max:
            return None
        frontier_ms = self._machine.frontier_ms
        second = max(now_ms, frontier_ms) // 1000
        pending = self._wheel.pending_ahead(second, 2 * self._settings.ahead_ms_max // 1000 + 1)
        return crowd(second, pending, frontier_ms, self._cost, self._settings)

    async def _release(self, commands: Sequence[log_pb.ReleaseCommand]) -> bool:
        """Release slices with one commit; return whether all were full. Measures how fast that goes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        done = await asyncio.gather(*map(self._release_slice, commands))
        seconds, count = loop.time() - began, sum(released.count for released in done)
        log.debug("released", count=count, until_ms=commands[-1].until_ms)
        full = done[-1].count == commands[-1].count
        self._cost.took(count, seconds, full=full)
        return full

    async def _release_slice(self, command: log_pb.ReleaseCommand) -> Released:
        """Release a slice; note how late it was as soon as that is applied."""
        released: Released = await self._propose(command)
        self.lateness.add(self._time.now_ms(), released.taken)
        return released

    async def run(self) -> None:
        """Realign, then release until cancelled.

        Raises:
            NotLeader, Unknown: leadership is gone; the next leader goes on from the log.
        """
        log.info(
            "realign",
            now_ms=self._time.now_ms(),
            frontier_ms=self._machine.frontier_ms,
            next_due_ms=self._wheel.next_due_ms(),
        )
        full, slices, settings = False, 1, self._settings
        while True:
            now_ms = self._time.now_ms()
            ahead = self._crowd(now_ms)
            next_due_ms = self._wheel.next_due_ms()
            commit_ms = self._cost.allowed(settings)
            todo = plan(now_ms, self._machine.frontier_ms, next_due_ms, commit_ms, settings.period_ms, ahead)
            if todo.until_ms is None:
                await self._sleep(now_ms, self._within_sight(todo.sleep_ms))
                continue
            until_ms = self._wheel.until_of_hours(todo.until_ms, HOURS_MAX)
            count, slices = self._bounded(until_ms, settings.slice_messages_max, slices)
            command = log_pb.ReleaseCommand(until_ms=until_ms, count=count, now_ms=now_ms)
            commands = [command] * slices
            if full and settings.overtaking_messages_max:
                soon_ms = min(todo.until_ms, now_ms + commit_ms + settings.period_ms)
                commands[0] = self._overtaken(command, soon_ms)
            full = await self._release(commands)
            slices = min(2 * slices, settings.slices_max) if full else 1

    def _bounded(self, until_ms: int, count: int, slices: int) -> tuple[int, int]:
        """Return the messages a slice and the slices, reduced to COPIES_MAX and QUEUES_MAX together."""
        topics = self._wheel.topics_pending()
        coming = self._copies_coming()
        if coming and coming + self._copies_pending() > COPIES_MAX:  # some may be applied before the release
            count, slices = min(count, COPIES_MAX), 1
        slices = min(slices, max(1, QUEUES_MAX // max(1, topics)))
        copy = 1 / COPIES_MAX if self._copies_pending() > COPIES_MAX else 0.0
        queue = 1 / QUEUES_MAX if topics > QUEUES_MAX else 0.0
        if not copy and not queue:
            return count, slices
        front = self._wheel.front(until_ms, count * slices)
        share = self._is_copy[front] * copy
        share[np.unique(front, return_index=True)[1]] += queue
        used = np.cumsum(share)
        within = int(np.searchsorted(used, 1 + EPSILON, side="right"))
        if within == len(front):  # what is not in memory may all be copies, and each of another queue
            within += int((1 + EPSILON - (used[-1] if len(used) else 0)) / (copy + queue))
        return min(count, max(1, within)), max(1, min(slices, within // count))

    def _copies_pending(self) -> int:
        queues, known = self._machine.queues, len(self._is_copy)
        if known < len(queues):
            fresh = [bool(queues[number].group) for number in range(known, len(queues))]
            self._is_copy = np.append(self._is_copy, np.array(fresh, np.bool_))
        return self._wheel.pending_of_all(np.flatnonzero(self._is_copy).astype(np.uint32))

    def _overtaken(self, command: log_pb.ReleaseCommand, soon_ms: int) -> log_pb.ReleaseCommand:
        """Add to the command what is soon due behind the backlog, of topics with little of it."""
        quota = min(self._settings.overtaking_messages_max, command.count)
        if self._copies_pending() > COPIES_MAX:
            quota = min(quota, COPIES_MAX)
        if self._wheel.topics_pending() > QUEUES_MAX:
            quota = min(quota, QUEUES_MAX // 2)
        hour, global_index = self._wheel.overtaking(soon_ms, command.count, quota)
        fuller = log_pb.ReleaseCommand(hour=hour.tobytes(), global_index=global_index.tobytes())
        fuller.MergeFrom(command)
        return fuller

    def _within_sight(self, sleep_ms: int | None) -> int | None:
        """Sleep less where a crowd may lie that is too far away to be seen yet."""
        sight_ms = self._settings.ahead_ms_max
        if (
            sleep_ms is None
            or sleep_ms <= sight_ms
            or self._wheel.pending <= self._settings.slice_messages_max
        ):
            return sleep_ms
        return sleep_ms - sight_ms

    async def _sleep(self, now_ms: int, sleep_ms: int | None) -> None:
        self._sleeps_until_ms = None if sleep_ms is None else now_ms + sleep_ms
        self._woken.clear()
        try:
            async with asyncio.timeout(None if sleep_ms is None else sleep_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass
