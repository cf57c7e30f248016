"""The dispatcher: the leader's loop that releases what is about to be due.

A release is committed before its messages are due; the hand-over then happens at
the due time, from memory, so that commit latency does not become lateness.

    next due far away ─► sleep until it is near (an earlier insert wakes the loop)
    next due is near  ─► propose Release(until = now + period + commit allowance)
    slice was full    ─► propose the next at once, until nothing overdue is left
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from tarry.node.clock import ClusterTime
from tarry.node.config import Dispatch
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.machine import Machine, Released

log = structlog.get_logger()


class Realign(StrEnum):
    """What a new leader finds: where the clock stands against the frontier."""

    BEHIND = "behind"  # release nothing until the clock reaches the frontier
    ALIGNED = "aligned"
    AHEAD = "ahead"  # flush what is overdue at full speed, then keep pace


def realign(now_ms: int, frontier_ms: int, next_due_ms: int | None, ahead_ms: int) -> Realign:
    """Return what a new leader has to do first.

    Args:
        now_ms: cluster time at the new leader.
        frontier_ms: everything due up to here has been released.
        next_due_ms: the earliest pending message, None where nothing is.
        ahead_ms: how far ahead of the clock a leader releases.
    """
    if frontier_ms > now_ms + ahead_ms:
        return Realign.BEHIND
    if next_due_ms is not None and next_due_ms <= now_ms:
        return Realign.AHEAD
    return Realign.ALIGNED


@dataclass(frozen=True, slots=True)
class Plan:
    """Release up to ``until_ms`` now, or (None) look again after ``sleep_ms`` (None: when woken)."""

    until_ms: int | None
    sleep_ms: int | None


def plan(now_ms: int, frontier_ms: int, next_due_ms: int | None, settings: Dispatch) -> Plan:
    """Return what to do now. Pure: the whole rhythm of releases is here."""
    if next_due_ms is None:
        return Plan(None, None)
    # What is due within one period beyond the allowance goes into this release, so that
    # a steady stream needs one release a period.
    start_ms = max(next_due_ms, frontier_ms) - settings.commit_ms
    if now_ms < start_ms:
        return Plan(None, start_ms - now_ms)
    until_ms = now_ms + settings.period_ms + settings.commit_ms
    return Plan(until_ms, None) if until_ms > frontier_ms else Plan(None, frontier_ms - until_ms + 1)


class Dispatcher:
    """Runs for as long as this node may serve as leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.ReleaseCommand], Awaitable[Any]],
    ) -> None:
        self._machine = machine
        self._wheel = machine.wheel
        self._time = time
        self._settings = settings
        self._propose = propose
        self._woken = asyncio.Event()
        self._sleeps_until_ms: int | None = None

    def inserted(self) -> None:
        """Wake the loop if the earliest pending message is now before what it sleeps for."""
        next_due_ms = self._wheel.next_due_ms()
        if next_due_ms is not None and (
            self._sleeps_until_ms is None or next_due_ms - self._settings.commit_ms < self._sleeps_until_ms
        ):
            self._woken.set()

    async def run(self) -> None:
        """Realign, then release until cancelled.

        Raises:
            NotLeader, Unknown: leadership is gone; the next leader goes on from the log.
        """
        now_ms, frontier_ms = self._time.now_ms(), self._machine.frontier_ms
        ahead_ms = self._settings.period_ms + self._settings.commit_ms
        case = realign(now_ms, frontier_ms, self._wheel.next_due_ms(), ahead_ms)
        log.info("realign", case=case.value, now_ms=now_ms, frontier_ms=frontier_ms)
        while True:
            now_ms = self._time.now_ms()
            todo = plan(now_ms, self._machine.frontier_ms, self._wheel.next_due_ms(), self._settings)
            if todo.until_ms is None:
                await self._sleep(now_ms, todo.sleep_ms)
                continue
            count = self._settings.slice_messages_max
            command = log_pb.ReleaseCommand(until_ms=todo.until_ms, count=count, now_ms=now_ms)
            released: Released = await self._propose(command)
            log.debug("released", count=released.count, until_ms=todo.until_ms)

    async def _sleep(self, now_ms: int, sleep_ms: int | None) -> None:
        self._sleeps_until_ms = None if sleep_ms is None else now_ms + sleep_ms
        self._woken.clear()
        try:
            async with asyncio.timeout(None if sleep_ms is None else sleep_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass
