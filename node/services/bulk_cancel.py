"""A cancel of many messages, a piece a call. Between two calls no node keeps anything of it.

    call ─► cancel what the cursor names ─► look for what comes next ─► rest ─► answer: counts, next cursor

A call cancels only what an answer before it has named. So a call that is repeated, perhaps at another leader,
cancels the same messages and counts them once: one that is cancelled already was cancelled by the first try.
(Or by somebody else in the moment between: then both count it.)

All of them share the leader's `BulkTurn`, which leaves most of the event loop to others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.leader.pending_cancels import CANCEL_NS_MAX, PendingCancels
from tarry.node.services import bulk_cursor
from tarry.node.services.bulk_cursor import CHOSEN_MAX, Chosen
from tarry.node.services.message_filter import Filter
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import lanes, levels
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.messages import Page
from tarry.wheel.state import HOUR_MS, UnknownMessage

LOOK_NS_MAX: Final = 20_000_000
"""Estimated time in which one call looks for messages."""
PAGE_UNITS: Final = 8_192
"""Looked at in one turn of the event loop: some 1 ms."""
READ_RECORDS: Final = 512
"""Read and parsed in one turn: some 4 ms."""
READ_BYTES: Final = 1 << 20
TURN_GROUPS: Final = 8
"""Asked in one turn."""

# Estimates of CPU time, on the machine that the turns' bounds are set on.
HOUR_NS: Final = 200_000
UNIT_NS: Final = 50
RECORD_NS: Final = 8_000
BYTE_NS: Final = 1

PENDING, RETRIES_PENDING, RETRIES_READY, READY, OVER = range(5)
"""Phases; all but the first are of a purge. A retry goes before its message: that then waits nowhere else."""

GONE: Final = (producer_pb.CANCEL_OUTCOME_CANCELLED, producer_pb.CANCEL_OUTCOME_ALREADY_CANCELLED)


@dataclass(slots=True)
class _Walk:
    """One call: where it is, and what it has taken."""

    at: pb.BulkCursor
    wanted: Filter
    dry_run: bool
    purge: bool
    spent_ns: int = 0
    chosen: Chosen = bulk_cursor.NOTHING

    @property
    def goes_on(self) -> bool:
        """True while there is more to look at, and time."""
        some = self.at.phase < OVER and not len(self.chosen.hour)
        return some and self.spent_ns < LOOK_NS_MAX

    def next_phase(self) -> None:
        """Go on with the beginning of what comes next."""
        self.at.phase = self.at.phase + 1 if self.purge else OVER
        self.at.hour = self.at.place = 0


class BulkCancels:
    """Cancels of many messages at this leader."""

    def __init__(self, core: Core) -> None:
        self._machine, self._driver = core.machine, core.driver
        self._damage, self._leadership = core.damage, core.leadership
        self._pending = PendingCancels(core.machine, core.driver, core.time)

    async def step(
        self, request: Any, wanted: Filter, *, dry_run: bool, purge: bool = False
    ) -> pb.BulkCancel | Refusal:
        """Do what one call does; return how far it is.

        ``purge``: also cancel what is released and what waits for a retry. Raises what proposals do.
        """
        at = bulk_cursor.read(request.cursor, bulk_cursor.hash_of(request), wanted.queue)
        if isinstance(at, Refusal):
            return at
        if purge and not self._machine.may_propose(levels.CANCELS_RELEASED):
            return levels.too_low(levels.CANCELS_RELEASED, self._machine.level)
        if at.phase not in (PENDING, OVER) and not purge:
            return bulk_cursor.invalid("the cursor is of a purge: begin without it")
        turn = self._leadership.bulk_turn
        if away_ms := turn.stay_away_ms(hash((at.request, request.cursor))):
            text = "other cancels of many messages come first: go on with the same cursor then"
            return Refusal(Reason.OVERLOADED, text, retry_ms=away_ms)
        walk = _Walk(at, wanted, dry_run, purge)
        async with turn.taken():
            try:
                refusal = await self._do(walk)
            finally:
                turn.rest(walk.spent_ns)
        return refusal or _progress(walk)

    async def _do(self, walk: _Walk) -> Refusal | None:
        await self._driver.read_barrier()
        try:
            refusal = None if walk.dry_run else await self._cancel(walk)
            if refusal is not None:
                return refusal
            if not walk.at.counts.total:
                walk.at.counts.total = self._total(walk)
            while walk.goes_on:
                in_wheel = walk.at.phase in (PENDING, RETRIES_PENDING)
                await (self._look_in_wheel(walk) if in_wheel else self._look_in_queues(walk))
                await asyncio.sleep(0)
        except UnitsDamaged as damage:
            self._damage.queues.report(damage)
            return _mended_soon(str(damage))
        return None

    # What an answer has named is cancelled

    async def _cancel(self, walk: _Walk) -> Refusal | None:
        chosen = bulk_cursor.unpacked(walk.at.chosen)
        if chosen is None or not len(chosen.hour):
            return None
        walk.at.chosen = b""
        in_wheel = walk.at.phase in (PENDING, RETRIES_PENDING)
        return await (self._cancel_pending(walk, chosen) if in_wheel else self._cancel_ready(walk, chosen))

    async def _cancel_pending(self, walk: _Walk, chosen: Chosen) -> Refusal | None:
        hour, index = chosen.hour, chosen.place.astype(np.uint32)
        numbers, wheel = self._numbers(walk), self._machine.wheel

        def own(hour: NDArray[np.uint32], index: NDArray[np.uint32]) -> NDArray[np.bool_]:
            there = wheel.known(hour, index)
            there[there] = wheel.readable(hour[there], index[there])
            units = wheel.units(hour[there], index[there])
            there[there] = np.isin(lanes.queue_of(units["topic"]), numbers)
            return there

        walk.spent_ns += int(self._pending.costs_ns(hour, index).sum(dtype=np.int64)) + CANCEL_NS_MAX // 4
        outcomes = np.full(len(hour), producer_pb.CANCEL_OUTCOME_NOT_FOUND, dtype=np.uint32)
        refusal = await self._pending.cancel(hour, index, outcomes, own, released=True)
        if refusal is not None:
            return refusal
        gone, counts = int(np.isin(outcomes, GONE).sum()), walk.at.counts
        left = len(outcomes) - gone
        if walk.purge:  # what was released meanwhile is found again in its queue
            counts.matched = max(0, counts.matched - left)
        else:
            counts.released += left
        if walk.at.phase == PENDING:
            counts.cancelled += gone
        else:
            counts.retries += gone
        return None

    async def _cancel_ready(self, walk: _Walk, chosen: Chosen) -> Refusal | None:
        counts = walk.at.counts
        number = int(chosen.hour[0])
        if (chosen.hour != number).any() or number not in self._numbers(walk):
            return None  # the group was deleted since, and its retries with it
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        walk.spent_ns += CANCEL_NS_MAX
        outcomes = await delivery.cancels.cancel_offsets(
            number, chosen.place.astype(np.uint64), remaining=walk.at.phase == READY
        )
        if isinstance(outcomes, Refusal):
            return outcomes
        gone = int(np.isin(outcomes, GONE).sum())
        kept = int((outcomes == producer_pb.CANCEL_OUTCOME_ALREADY_DELIVERED).sum())
        counts.in_hand += kept
        counts.matched = max(0, counts.matched - (len(outcomes) - gone - kept))
        if walk.at.phase == READY:
            counts.ready += gone
        else:
            counts.retries += gone
        return None

    # What comes next is looked for

    def _numbers(self, walk: _Walk) -> NDArray[np.uint32]:
        """Return the numbers of the queues that the phase is about, ascending."""
        if walk.at.phase in (PENDING, READY):
            return np.array([walk.wanted.queue], np.uint32)
        queues = self._machine.queues
        retries = (queues.find(walk.wanted.topic, group) for group in queues.groups_of(walk.wanted.queue))
        return np.array(sorted(queue.queue for queue in retries if queue is not None), np.uint32)

    def _total(self, walk: _Walk) -> int:
        begin = max(walk.wanted.due_from_ms, self._machine.wheel.cut.due_ms) // HOUR_MS
        total = self._machine.wheel.units_between(begin, -(-walk.wanted.due_to_ms // HOUR_MS))
        if walk.purge:
            queue = self._machine.queues[walk.wanted.queue]
            total += max(0, queue.units - max(queue.first, self._floor(queue)))
        return total

    async def _look_in_wheel(self, walk: _Walk) -> None:
        wheel, at, wanted = self._machine.wheel, walk.at, walk.wanted
        numbers = self._numbers(walk)
        first = max(wanted.due_from_ms, wheel.cut.due_ms) // HOUR_MS
        hour = wheel.next_pending_hour(max(at.hour, first)) if wheel.pending_of_all(numbers) else None
        if hour is None or hour * HOUR_MS >= wanted.due_to_ms:
            walk.next_phase()
            return
        units = wheel.units_in_hour(hour)
        place = min(at.place, units) if hour == at.hour else 0
        page = wheel.pending_page(hour, numbers, place, PAGE_UNITS)
        walk.spent_ns += HOUR_NS + UNIT_NS * (page.end - place)
        found = await self._matching(walk, hour, page)
        most = len(found) if walk.dry_run else self._fitting(hour, found)
        end = page.end if most == len(found) else int(found[most])
        found = found[:most]
        at.counts.looked_at += end - place
        at.counts.matched += len(found)
        at.hour, at.place = (hour, end) if end < units else (hour + 1, 0)
        if not walk.dry_run and len(found):
            hours, index = self._machine.wheel.ids_of(np.full(len(found), hour, np.uint32), found)
            walk.chosen = Chosen(hours, index.astype(np.int64))

    def _fitting(self, hour: int, index: NDArray[np.uint32]) -> int:
        """Return how many of these messages one command may cancel."""
        some = index[:CHOSEN_MAX]
        costs_ns = self._pending.costs_ns(np.full(len(some), hour, np.uint32), some)
        return next(portions(costs_ns, CANCEL_NS_MAX), slice(0, 0)).stop

    async def _matching(self, walk: _Walk, hour: int, page: Page) -> NDArray[np.uint32]:
        wanted, units = walk.wanted, page.units
        flags = wanted.due(units["due_in_hour_ms"] + np.int64(hour * HOUR_MS))
        if wanted.tags:
            flags &= wanted.tagged(lanes.unpack(units["topic"], units["tag_mask"])[1])
        index, sizes = page.global_index[flags], units["size"][flags]
        if not wanted.needs_records:
            return index
        parts = [np.empty(0, np.uint32)]
        for rows in portions(np.maximum(sizes, READ_BYTES // READ_RECORDS), READ_BYTES):
            some = index[rows]
            walk.spent_ns += RECORD_NS * len(some) + BYTE_NS * int(sizes[rows].sum(dtype=np.int64))
            try:
                records = await self._damage.read(np.full(len(some), hour, np.uint32), some)
            except UnknownMessage:  # released and deleted meanwhile
                continue
            walk.at.counts.unreadable += records.count(None)
            parts.append(some[wanted.matching(records)])
            await asyncio.sleep(0)
        return np.concatenate(parts)

    async def _look_in_queues(self, walk: _Walk) -> None:
        at, numbers = walk.at, self._numbers(walk)
        left = numbers[numbers >= at.hour]
        if not len(left):
            walk.next_phase()
            return
        queue = self._machine.queues[int(left[0])]
        place = at.place if queue.queue == at.hour else 0
        begin = max(place, queue.first, self._floor(queue))
        end = min(begin + CHOSEN_MAX, queue.units)
        offsets = np.arange(begin, max(begin, end), dtype=np.uint64)
        walk.spent_ns += HOUR_NS + UNIT_NS * len(offsets)
        waiting = offsets[await self._wait(queue, offsets)]
        at.counts.looked_at += len(offsets) if at.phase == READY else 0
        at.counts.matched += len(waiting)
        at.hour, at.place = (queue.queue, end) if end < queue.units else (queue.queue + 1, 0)
        if not walk.dry_run and len(waiting):
            walk.chosen = Chosen(np.full(len(waiting), queue.queue, np.uint32), waiting.astype(np.int64))

    def _floor(self, queue: ReadyQueue) -> int:
        """Return the offset that all groups of a queue are past."""
        queues = self._machine.queues
        floors = (queues.acknowledged[group, queue.queue].floor for group in queues.groups_of(queue.queue))
        return min(floors, default=queue.first)

    async def _wait(self, queue: ReadyQueue, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Flag offsets that are not cancelled, and that some group, if there is any, is not done with."""
        queues = self._machine.queues
        groups = queues.groups_of(queue.queue)
        waits: NDArray[np.bool_] = np.full(len(offsets), not groups)
        for position, group in enumerate(groups, start=1):
            known = queues.acknowledged.get((group, queue.queue))
            if known is not None:
                waits |= ~known.contains(offsets)
            if not position % TURN_GROUPS:
                await asyncio.sleep(0)
        return waits & ~queues.cancelled.contains(queue.queue, offsets)


def _progress(walk: _Walk) -> pb.BulkCancel:
    """Return the counts so far, with the cursor of the next call."""
    at = walk.at
    at.chosen = bulk_cursor.packed(walk.chosen)
    done = at.phase >= OVER and not len(walk.chosen.hour)
    if done:
        at.counts.total = at.counts.looked_at
    told = pb.BulkCancel(done=done, cursor=bulk_cursor.text_of(at))
    told.MergeFrom(at.counts)
    return told


def _mended_soon(what: str) -> Refusal:
    text = f"{what}; a peer's copy is on its way: go on with the same cursor in a second"
    return Refusal(Reason.MESSAGE_DAMAGED, text, retry_ms=1_000)
