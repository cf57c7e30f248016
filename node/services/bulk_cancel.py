"""A cancel of many messages, a piece a call. Between two calls no node keeps anything of it.

    call ─► cancel what the cursor names ─► look for what comes next ─► rest ─► answer: counts, next cursor

A call cancels only what an answer before it has named. So a call that is repeated, perhaps at another leader,
cancels the same messages and counts them once: one that is cancelled already was cancelled by the first try.
(Or by somebody else in the moment between: then both count it.) An answer names messages by their ids: each
is cancelled wherever it rests by then, if it still matches. (One that is rescheduled in that very moment may
be cancelled all the same, though it is due at none of the times asked for any more: the log entry names ids.)

Where the filter has keys, the index of keys says what to look at; else all hours are walked.
All of them share the leader's `BulkTurn`, which leaves most of the event loop to others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.keys.search import Wanted
from tarry.node.leader.pending_cancels import CANCEL_NS_MAX, PendingCancels
from tarry.node.leader.pending_pages import HOUR_NS, UNIT_NS, PendingPage, Place, next_page
from tarry.node.services import bulk_cursor
from tarry.node.services.bulk_cursor import (
    BY_KEY,
    CHOSEN_MAX,
    IN_WHEEL,
    OVER,
    PENDING,
    READY,
    RETRIES_LEFT,
    RETRIES_PENDING,
    Chosen,
)
from tarry.node.services.message_filter import Filter, invalid_query
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine import lanes, levels
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.keys.run import hours_of, indices_of
from tarry.wheel.state import HOUR_MS, MessageState, UnknownMessage

LOOK_NS_MAX: Final = 20_000_000
"""Estimated time in which one call looks for messages."""
READ_RECORDS: Final = 512
"""Read and parsed in one turn: some 4 ms."""
READ_BYTES: Final = 1 << 20
TURN_GROUPS: Final = 8
"""Asked in one turn."""

# Estimates of CPU time, on the machine that the turns' bounds are set on.
RECORD_NS: Final = 8_000
BYTE_NS: Final = 1
GROUP_NS: Final = 1_500
"""Of finding the number of its retry queue."""

Numbers = NDArray[np.uint32]

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
    retries: Numbers | None = None
    """Numbers of the retry queues of the topic's groups, ascending; None: they have not been looked up."""

    @property
    def goes_on(self) -> bool:
        """True while there is more to look at, and time."""
        some = self.at.phase < OVER and not len(self.chosen.hour)
        return some and self.spent_ns < LOOK_NS_MAX

    def next_phase(self) -> None:
        """Go on with the beginning of what comes next."""
        following = self.at.phase + 1 if self.purge else OVER
        counted = self.dry_run and following == RETRIES_LEFT
        self.go(OVER if counted else following)

    def go(self, phase: int) -> None:
        """Go on with the beginning of a phase."""
        self.at.phase = phase
        self.at.hour = self.at.place = 0


class BulkCancels:
    """Cancels of many messages at this leader."""

    def __init__(self, core: Core) -> None:
        self._machine, self._driver = core.machine, core.driver
        self._damage, self._leadership, self._journal = core.damage, core.leadership, core.journal
        self._keys = core.key_search
        self._pending = PendingCancels(core.machine, core.driver, core.time)

    async def step(
        self, request: Any, wanted: Filter, *, dry_run: bool, purge: bool = False, exact: bool = True
    ) -> pb.BulkCancel | Refusal:
        """Do what one call does; return how far it is.

        ``purge``: also cancel what is released and what waits for a retry. ``exact``: the caller may know how
        many messages all topics have. Raises what proposals do.
        """
        asked = bulk_cursor.hash_of(request, self._journal.cluster_incarnation)
        at = bulk_cursor.read(request.cursor, asked, wanted.queue)
        if isinstance(at, Refusal):
            return at
        if purge and not self._machine.may_propose(levels.CANCELS_RELEASED):
            return levels.too_low(levels.CANCELS_RELEASED, self._machine.level)
        if at.phase not in (BY_KEY, PENDING, OVER) and not purge:
            return invalid_query("the cursor is of a purge: begin without it")
        turn = self._leadership.bulk_turn
        if away_ms := turn.stay_away_ms(hash((asked, request.cursor))):
            text = "other cancels of many messages come first: go on with the same cursor then"
            return Refusal(Reason.OVERLOADED, text, retry_ms=away_ms)
        walk = _Walk(at, wanted, dry_run, purge)
        async with turn.taken():
            try:
                refusal = await self._do(walk)
            finally:
                turn.rest(walk.spent_ns)
        return refusal or self._told(walk, exact=exact)

    async def _do(self, walk: _Walk) -> Refusal | None:
        await self._driver.read_barrier()
        try:
            refusal = None if walk.dry_run else await self._cancel(walk)
            if refusal is not None:
                return refusal
            while walk.goes_on:
                if walk.at.phase == BY_KEY:
                    await self._look_by_key(walk)
                elif walk.at.phase in IN_WHEEL:
                    await self._look_in_wheel(walk)
                else:
                    await self._look_in_queues(walk)
                await asyncio.sleep(0)
        except UnitsDamaged as damage:
            self._damage.queues.report(damage)
            return _mended_soon(str(damage))
        return None

    def _told(self, walk: _Walk, *, exact: bool) -> pb.BulkCancel:
        """Return the counts so far, with the cursor of the next call."""
        at = walk.at
        at.chosen = bulk_cursor.packed(walk.chosen)
        done = at.phase >= OVER and not len(walk.chosen.hour)
        past, total = self._passed(walk)
        past = total if done else past
        if not exact:  # what all topics have is told to nobody who may not know of all
            past, total = 1_000 * past // total if total else 1_000 * done, 1_000
        told = pb.BulkCancel()
        told.MergeFrom(at.counts)
        told.done, told.cursor, told.looked_at, told.total = done, bulk_cursor.text_of(at), past, total
        return told

    def _passed(self, walk: _Walk) -> tuple[int, int]:
        """Return how many places of messages the walk is past, and how many there are, as of now."""
        wheel, at, wanted = self._machine.wheel, walk.at, walk.wanted
        first, end = max(wanted.due_from_ms, wheel.cut.due_ms) // HOUR_MS, -(-wanted.due_to_ms // HOUR_MS)
        total = wheel.units_between(first, end)
        past = wheel.units_between(first, at.hour) + (at.place if at.hour >= first else 0)
        past = min(past, total) if at.phase in (BY_KEY, PENDING, RETRIES_PENDING) else total
        if at.phase == BY_KEY:
            return at.key * total + past, max(1, len(wanted.keys)) * total
        if not walk.purge:
            return past, total
        queue = self._machine.queues[wanted.queue]
        ready = queue.units - queue.first
        if at.phase < READY:
            walked = (at.phase - PENDING) * total if at.phase in IN_WHEEL else total
            return walked + past, 2 * total + ready
        gone = at.place - queue.first if at.phase == READY else ready
        return 2 * total + max(0, min(gone, ready)), 2 * total + ready

    # What an answer has named is cancelled

    async def _cancel(self, walk: _Walk) -> Refusal | None:
        chosen = bulk_cursor.unpacked(walk.at.chosen)
        if chosen is None or not len(chosen.hour):
            return None
        walk.at.chosen = b""
        in_wheel = walk.at.phase in IN_WHEEL
        return await (self._cancel_pending(walk, chosen) if in_wheel else self._cancel_ready(walk, chosen))

    async def _cancel_pending(self, walk: _Walk, chosen: Chosen) -> Refusal | None:
        hour, index = chosen.hour, chosen.place.astype(np.uint32)
        numbers, wheel, counts = self._numbers(walk), self._machine.wheel, walk.at.counts
        if walk.wanted.needs_records:
            left = await self._with_records_as_wanted(walk, hour, index)
            counts.matched = max(0, counts.matched - int(np.count_nonzero(~left)))
            hour, index = hour[left], index[left]

        def own(hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
            there = self._there(hour, index)
            units = wheel.units(hour[there], index[there])
            due_ms = hour[there].astype(np.int64) * HOUR_MS + units["due_in_hour_ms"]
            there[there] = np.isin(lanes.queue_of(units["topic"]), numbers) & walk.wanted.due(due_ms)
            return there

        walk.spent_ns += self._pending.cost_ns_of_ids(hour, index) + CANCEL_NS_MAX // 4
        outcomes = np.full(len(hour), producer_pb.CANCEL_OUTCOME_NOT_FOUND, dtype=np.uint32)
        refusal = await self._pending.cancel(hour, index, outcomes, own, released=True)
        if refusal is not None:
            return refusal
        # a retry that rests there no more may have been rescheduled as well as cancelled
        counted = GONE if walk.at.phase in (BY_KEY, PENDING) else GONE[:1]
        gone = int(np.isin(outcomes, counted).sum())
        released = int((outcomes == producer_pb.CANCEL_OUTCOME_ALREADY_RELEASED).sum())
        lost = outcomes == producer_pb.CANCEL_OUTCOME_NOT_FOUND
        lost[lost] = ~self._there(*wheel.places_of(hour[lost], index[lost]))
        not_found = int(lost.sum())
        other = len(outcomes) - gone - released - not_found  # rescheduled, so that they match no more
        if walk.purge:  # what was released meanwhile is found again in its queue
            other, released = other + released, 0
        counts.matched = max(0, counts.matched - other)
        counts.released += released
        counts.not_found += not_found
        if walk.at.phase in (RETRIES_PENDING, RETRIES_LEFT):
            counts.retries += gone
        else:
            counts.cancelled += gone
        return None

    def _there(self, hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
        """Flag places, shape (n,), of messages that the wheel has."""
        there = self._machine.wheel.known(hour, index)
        there[there] = self._machine.wheel.readable(hour[there], index[there])
        return there

    async def _with_records_as_wanted(self, walk: _Walk, hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
        """Flag messages, ids of shape (n,), unless they were given records since that do not match."""
        at_hour, at_index = self._machine.wheel.places_of(hour, index)
        first = self._machine.wheel.first_places_of(hour, index)
        fit: NDArray[np.bool_] = (at_hour == first[0]) & (at_index == first[1])  # as it was looked at
        (rows,) = np.nonzero(~fit)
        rows = rows[np.argsort(at_hour[rows], kind="stable")]
        rows = rows[self._there(at_hour[rows], at_index[rows])]
        fit[~fit] = True
        fit[rows] = await self._as_wanted(walk, at_hour[rows], at_index[rows])
        return fit

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

    def _numbers(self, walk: _Walk) -> Numbers:
        """Return the numbers of the queues that the phase is about, ascending."""
        if walk.at.phase in (BY_KEY, PENDING, READY):
            return np.array([walk.wanted.queue], np.uint32)
        if walk.retries is None:
            queues, groups = self._machine.queues, self._machine.queues.groups_of(walk.wanted.queue)
            found = [queues.find(walk.wanted.topic, group) for group in groups]
            walk.spent_ns += GROUP_NS * len(found)
            walk.retries = np.array(sorted(one.queue for one in found if one is not None), np.uint32)
        return walk.retries

    async def _look_by_key(self, walk: _Walk) -> None:
        """Look at what the index has for one of the filter's keys; a message counts with its first."""
        at, wanted, keys = walk.at, walk.wanted, sorted(walk.wanted.keys)
        if at.key >= len(keys):
            walk.go(OVER if keys else PENDING)
            return
        key = keys[at.key]
        search = Wanted(wanted.queue, key, wanted.due_from_ms, wanted.due_to_ms, (MessageState.PENDING,))
        step = await self._keys.step(search, min(at.hour << 32 | at.place, search.end))
        if isinstance(step, Refusal):  # the index is not complete
            if walk.dry_run:
                at.counts.Clear()
            walk.go(PENDING)
            return
        walk.spent_ns += step.spent_ns
        keys_of = (Record.FromString(one.record).keys for one in step.found)
        first = np.array([min(wanted.keys.intersection(some)) == key for some in keys_of], np.bool_)
        flags = first & wanted.matching([one.record for one in step.found])
        found = [one for one, flag in zip(step.found, flags.tolist(), strict=True) if flag]
        place = np.array([one.place for one in found], np.uint64)
        most = len(found) if walk.dry_run else self._fitting(hours_of(place), indices_of(place))
        behind = step.next if most == len(found) else found[most].place
        at.counts.matched += most
        at.counts.unreadable += sum(behind is None or one < behind for one in step.unreadable)
        if behind is None:
            at.key, at.hour, at.place = at.key + 1, 0, 0
        else:
            at.hour, at.place = behind >> 32, behind & 0xFFFFFFFF
        if not walk.dry_run and most:
            hour = np.array([one.hour for one in found[:most]], np.uint32)
            walk.chosen = Chosen(hour, np.array([one.global_index for one in found[:most]], np.int64))

    async def _look_in_wheel(self, walk: _Walk) -> None:
        wheel, at, wanted = self._machine.wheel, walk.at, walk.wanted
        place = Place(at.hour, at.place)
        found = next_page(wheel, self._numbers(walk), place, wanted.due_from_ms, wanted.due_to_ms)
        if found is None:
            walk.next_phase()
            return
        walk.spent_ns += found.spent_ns
        rows, index = await self._matching(walk, found), found.page.global_index
        hours = np.full(len(rows), found.hour, np.uint32)
        most = len(rows) if walk.dry_run else self._fitting(hours, index[rows])
        at.hour, at.place = found.next if most == len(rows) else (found.hour, int(index[rows[most]]))
        at.counts.matched += most
        if not walk.dry_run and most:
            hours, index = (column[rows[:most]] for column in found.ids)
            walk.chosen = Chosen(hours, index.astype(np.int64))

    def _fitting(self, hour: Numbers, index: Numbers) -> int:
        """Return how many of messages, by their places, one command may cancel."""
        costs_ns = self._pending.costs_ns(hour[:CHOSEN_MAX], index[:CHOSEN_MAX])
        return next(portions(costs_ns, CANCEL_NS_MAX), slice(0, 0)).stop

    async def _matching(self, walk: _Walk, found: PendingPage) -> NDArray[np.intp]:
        """Return the rows of a page that match."""
        wanted, units, index = walk.wanted, found.page.units, found.page.global_index
        flags = wanted.due(units["due_in_hour_ms"] + np.int64(found.hour * HOUR_MS))
        if wanted.tags:
            flags &= wanted.tagged(lanes.unpack(units["topic"], units["tag_mask"])[1])
        (rows,) = np.nonzero(flags)
        if not wanted.needs_records:
            return rows
        return rows[await self._as_wanted(walk, np.full(len(rows), found.hour, np.uint32), index[rows])]

    async def _as_wanted(self, walk: _Walk, hour: Numbers, index: Numbers) -> NDArray[np.bool_]:
        """Flag messages, places of shape (n,) by hour, whose records match."""
        flags: NDArray[np.bool_] = np.zeros(len(hour), np.bool_)
        sizes = self._machine.wheel.units(hour, index)["size"]
        for rows in portions(np.maximum(sizes, READ_BYTES // READ_RECORDS), READ_BYTES):
            walk.spent_ns += RECORD_NS * len(sizes[rows]) + BYTE_NS * int(sizes[rows].sum(dtype=np.int64))
            try:
                records = await self._damage.read(hour[rows], index[rows])
            except UnknownMessage:  # released and deleted meanwhile
                continue
            walk.at.counts.unreadable += records.count(None)
            flags[rows] = walk.wanted.matching(records)
            await asyncio.sleep(0)
        return flags

    async def _look_in_queues(self, walk: _Walk) -> None:
        at, numbers = walk.at, self._numbers(walk)
        left = numbers[numbers >= at.hour]
        if not len(left):
            walk.next_phase()
            return
        queue = self._machine.queues[int(left[0])]
        if queue.deleted:  # in this call
            at.hour, at.place = queue.queue + 1, 0
            return
        place = at.place if queue.queue == at.hour else 0
        begin = max(place, queue.first, self._floor(queue))
        end = min(begin + CHOSEN_MAX, queue.units)
        offsets = np.arange(begin, max(begin, end), dtype=np.uint64)
        walk.spent_ns += HOUR_NS + UNIT_NS * len(offsets)
        waiting = offsets[await self._wait(queue, offsets)]
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


def _mended_soon(what: str) -> Refusal:
    text = f"{what}; a peer's copy is on its way: go on with the same cursor in a second"
    return Refusal(Reason.MESSAGE_DAMAGED, text, retry_ms=1_000)
