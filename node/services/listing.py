"""Pages of a topic's messages: what waits in the wheel by due time, then what is released, by offset.

    WHEEL ── pending, and copies that wait for a retry ──► RETRIES ── released copies ──► TOPIC ── released
             (due time, global index)                       (queue, offset)                (offset)

A message goes from the left to the right, so none that changes its place meanwhile is missed for that; one
that a group gives back while it is listed goes to the left, and may be.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.delivery.offset_pieces import Pieces
from tarry.node.delivery.retries import within_hours
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext, MethodHandler, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.edge.names import unknown_group, unknown_topic
from tarry.node.services import message_filter
from tarry.node.services.due_scans import DueScans
from tarry.node.services.list_cursor import Phase, Place, key_of, place_of, text_of
from tarry.node.services.listed_page import PAGE_DEFAULT, PAGE_MAX, Page
from tarry.node.services.message_filter import Filter, invalid_query
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import format_ids
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import lanes
from tarry.replication.state_machine.ready_queue import ReadyQueue, released_ms
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.state import (
    HOUR_MS,
    NONE,
    Cut,
    Flags,
    MessageState,
    Numbers,
    Rows,
    UnknownMessage,
)

CALLS_AT_ONCE: Final = 4
"""Pages made at once, of some 12 MiB each at most; other calls wait for their turn."""
PIECE_RECORDS: Final = 128
"""Read and told of in one turn of the event loop: some 4 ms."""
PIECE_BYTES: Final = 2 << 20
"""Of their records together; a larger first record is read alone."""
PIECE_UNITS: Final = 4_096
"""Of a ready queue, looked at in one turn."""
QUEUE_UNITS: Final = 512
"""As many cost as much as to begin with a queue."""
PIECE_QUEUES: Final = 1_024
"""With nothing to list, passed over in one turn: some 1 ms."""

State: Final = pb.ListedState
OF_GROUPS: Final = frozenset(
    {State.LISTED_STATE_WAITING, State.LISTED_STATE_IN_HAND, State.LISTED_STATE_SETTLED}
)
RELEASED: Final = OF_GROUPS | {State.LISTED_STATE_RELEASED}

T = TypeVar("T")


class Listing(NamedTuple):
    """A request that has been checked."""

    filter: Filter
    states: frozenset[int]
    group: str
    key: int

    def wants(self, state: int) -> bool:
        """Return whether messages of a state are listed."""
        return state in self.states


class ListCalls:
    """Answers ListMessages."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._machine, self._driver, self._leadership = core.machine, core.driver, core.leadership
        self._damage, self._limits, self._shard = core.damage, core.config.limits, core.config.shard
        self._authorizer, self._calls = authorizer, calls
        self._scans = DueScans()
        self._pieces = Pieces()
        self._at_once = asyncio.Semaphore(CALLS_AT_ONCE)

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        local = parsed(pb.ListMessagesRequest, self._list)
        return {"ListMessages": self._calls.unary(f"/{service}/ListMessages", local)}

    async def _list(self, request: pb.ListMessagesRequest, context: CallContext) -> Answer:
        if (refusal := unknown_field(request)) is not None:
            return refusal
        async with self._at_once:
            await self._driver.read_barrier()
            listing = self._checked(request, context)
            if isinstance(listing, Refusal):
                return listing
            place = place_of(request.cursor, listing.key, listing.filter.queue)
            if isinstance(place, Refusal):
                return place
            page = Page(listing.filter, request.page_size or PAGE_DEFAULT, bodies=request.bodies)
            return (await self._page(listing, place, page)).SerializeToString()

    # -- what is asked -------------------------------------------------------------------

    def _checked(self, request: pb.ListMessagesRequest, context: CallContext) -> Listing | Refusal:
        filter_ = message_filter.checked(request.filter, self._machine.queues, self._limits)
        if isinstance(filter_, Refusal):
            return filter_
        topic = filter_.topic
        if not self._authorizer.sees(context)(topic):
            return unknown_topic(topic)
        if request.bodies and not self._may_read(context, topic):
            return Refusal(
                Reason.PERMISSION_DENIED,
                f"this token may neither produce to {topic} nor consume it: list it without bodies",
            )
        if request.page_size > PAGE_MAX:
            return invalid_query(f"a page of {request.page_size} messages: ask for {PAGE_MAX} at most")
        if request.group and (request.group, filter_.queue) not in self._machine.queues.acknowledged:
            return unknown_group(topic, request.group[: self._limits.group_chars_max])
        states = _states(request)
        if isinstance(states, Refusal):
            return states
        return Listing(filter_, states, request.group, key_of(request))

    def _may_read(self, context: CallContext, topic: str) -> bool:
        refused = (
            self._authorizer.refusal(context, each, [topic]) for each in (Right.PRODUCE, Right.CONSUME)
        )
        return None in refused

    # -- pages ---------------------------------------------------------------------------

    async def _page(self, listing: Listing, place: Place, page: Page) -> pb.ListMessagesResponse:
        looked_to_ms = 0
        following: Place | None = place
        retries = self._retry_queues(listing) if place.phase is not Phase.TOPIC else ()
        if place.phase is Phase.WHEEL:
            following = await self._wheel(listing, place, page, retries)
            looked_to_ms = following.looked_to_ms
        while following is not None and following.phase is not Phase.WHEEL and not page.has_looked_enough:
            following = await self._queue(listing, following, page, retries)
        cursor = "" if following is None else text_of(following, listing.key, listing.filter.queue)
        return pb.ListMessagesResponse(messages=page.messages, cursor=cursor, looked_to_ms=looked_to_ms)

    async def _wheel(self, listing: Listing, place: Place, page: Page, retries: Sequence[int]) -> Place:
        """Add what waits in the wheel; return where to go on."""
        wanted = self._wanted(listing, retries)
        if not self._machine.wheel.pending_of_all(np.flatnonzero(wanted).astype(np.uint32)):
            return Place(Phase.RETRIES)
        filter_, after = listing.filter, max(place.cut, Cut(listing.filter.due_from_ms - 1, NONE))

        def chosen(topic: Numbers, masks: NDArray[np.uint64]) -> Flags:
            queue, mask, _ = lanes.unpack(topic, masks)
            flags: Flags = wanted.take(queue, mode="clip") & filter_.tagged(mask)
            return flags

        wheel, key = self._machine.wheel, (self._driver.status().term, listing)
        number, since, looked = place.scan, after, 0
        scan = self._scans.take(number, key, wheel, after)
        if scan is None:
            number, scan = 0, wheel.due_scan(chosen, after, filter_.due_to_ms)
        while not page.is_full:
            while scan.is_under_way or not (
                len(scan.found) - looked >= page.room or scan.is_over or page.has_looked_enough
            ):
                before = scan.cost
                if (ahead := scan.ahead()) is not None:
                    await self._damage.reads.in_advance(ahead)
                await self._pieces.alone(scan.step)
                page.cost += scan.cost - before
            if looked == len(scan.found):
                if scan.is_over:
                    return Place(Phase.RETRIES)
                after = max(after, scan.seen)
                break
            looked += await self._add_pending(scan.found[looked : looked + PIECE_RECORDS], page)
            after = Cut(*scan.found[["due_ms", "global_index"]][looked - 1].item())
        return Place(Phase.WHEEL, 0, *after, self._scans.keep(number, key, wheel, scan, since))

    def _wanted(self, listing: Listing, retries: Sequence[int]) -> Flags:
        """Flag the queues, by number, whose messages in the wheel are listed; one more, for later ones."""
        wanted = np.zeros(len(self._machine.queues) + 1, np.bool_)
        wanted[listing.filter.queue] = listing.wants(State.LISTED_STATE_PENDING)
        if listing.wants(State.LISTED_STATE_RETRYING):
            wanted[np.array(retries, np.intp)] = True
        return wanted

    def _retry_queues(self, listing: Listing) -> list[int]:
        """Return the numbers of a listing's retry queues, ascending."""
        queues, topic = self._machine.queues, listing.filter.topic
        if not listing.group:
            return queues.retries_of(topic)
        queue = queues.find(topic, listing.group)
        return [] if queue is None else [queue.queue]

    async def _add_pending(self, entries: Rows, page: Page) -> int:
        """Add the first of a scan's entries that are still pending; return how many were looked at."""
        hour = (entries["due_ms"] // HOUR_MS).astype(np.uint32)
        count = within_hours(hour)
        entries, hour = entries[:count], hour[:count]
        index = np.ascontiguousarray(entries["global_index"])
        queue = lanes.queue_of(entries["topic"])
        queues, wheel = self._machine.queues, self._machine.wheel

        def living() -> Flags:
            flags: Flags = wheel.states(hour, index) == MessageState.PENDING
            return flags

        def row(at: int, id_: str) -> pb.ListedMessage:
            group = queues[int(queue[at])].group
            state = State.LISTED_STATE_RETRYING if group else State.LISTED_STATE_PENDING
            return pb.ListedMessage(id=id_, due_ms=int(entries["due_ms"][at]), state=state, group=group)

        return await self._add(hour, index, living, row, page)

    async def _queue(
        self, listing: Listing, place: Place, page: Page, retries: Sequence[int]
    ) -> Place | None:
        """Add some of a ready queue; return where to go on, None: that was all."""
        queue = await self._queue_of(listing, place, retries)
        if queue is None:
            return None
        same = place.phase is not Phase.RETRIES or place.queue == queue.queue
        phase = Phase.RETRIES if queue.group else Phase.TOPIC
        first = max(
            place.at if same and phase is place.phase else 0, queue.first, self._floor(listing, queue)
        )
        units = await self._damage.reads.read_ahead_for(lambda pread: queue.read(first, PIECE_UNITS, pread))
        page.units += max(QUEUE_UNITS, len(units))
        offsets = np.arange(first, first + len(units), dtype=np.uint64)
        state = self._states_of(listing, queue, offsets)
        listed = listing.filter.due(units["due_ms"]) & listing.filter.tagged(units["tag_mask"])
        listed &= np.isin(state, list(listing.states))
        rows = np.flatnonzero(listed)
        units, offsets, state, end = units[rows], offsets[rows], state[rows], first + len(units)
        start = 0
        while start < len(rows) and not page.is_full:
            some = slice(start, start + PIECE_RECORDS)
            start += await self._add_released(queue, units[some], offsets[some], state[some], page)
        await asyncio.sleep(0)
        at = int(offsets[start]) if start < len(rows) else end
        if at < queue.units:
            return Place(phase, queue.queue, at)
        return None if phase is Phase.TOPIC else Place(Phase.RETRIES, queue.queue + 1)

    async def _queue_of(self, listing: Listing, place: Place, retries: Sequence[int]) -> ReadyQueue | None:
        """Return the queue to look at: retry queues by number, then the topic's; None: none is left."""
        if listing.states.isdisjoint(RELEASED):
            return None
        queues = self._machine.queues
        if place.phase is Phase.RETRIES:
            for at in range(bisect_left(retries, place.queue), len(retries)):
                queue = queues[retries[at]]
                if max(queue.first, self._floor(listing, queue)) < queue.units:
                    return queue
                if at % PIECE_QUEUES == 0:
                    await asyncio.sleep(0)
        return queues[listing.filter.queue]

    def _floor(self, listing: Listing, queue: ReadyQueue) -> int:
        """Return the first offset that may be listed: what a group has settled is passed over."""
        group = queue.group or listing.group
        if not group or (not queue.group and listing.wants(State.LISTED_STATE_SETTLED)):
            return 0
        known = self._machine.queues.acknowledged.get((group, queue.queue))
        return queue.units if known is None else known.floor

    def _states_of(
        self, listing: Listing, queue: ReadyQueue, offsets: NDArray[np.uint64]
    ) -> NDArray[np.uint8]:
        """Return the ListedState of each offset, shape (n,); 0: it is not listed."""
        queues, group = self._machine.queues, queue.group or listing.group
        state = np.full(len(offsets), State.LISTED_STATE_RELEASED, np.uint8)
        known = queues.acknowledged.get((group, queue.queue))
        if group and known is not None:
            if listing.group:
                state[:] = State.LISTED_STATE_WAITING
                delivery = self._leadership.delivery
                at_leader = delivery.find(queue.topic, group) if delivery else None
                if at_leader is not None and queue.queue in at_leader.feeds:
                    in_hand = at_leader.feeds[queue.queue].in_hand(offsets)
                    state[in_hand] = State.LISTED_STATE_IN_HAND
            # a copy that is settled is done with, and its message is listed itself
            state[known.contains(offsets)] = 0 if queue.group else State.LISTED_STATE_SETTLED
        state[queues.cancelled.contains(queue.queue, offsets)] = 0
        return state

    async def _add_released(
        self,
        queue: ReadyQueue,
        units: Rows,
        offsets: NDArray[np.uint64],
        state: NDArray[np.uint8],
        page: Page,
    ) -> int:
        """Add the first of some units; return how many were looked at."""
        hour, index = np.ascontiguousarray(units["hour"]), np.ascontiguousarray(units["global_index"])
        count = within_hours(hour)
        released = released_ms(units)

        def living() -> Flags:
            flags: Flags = (offsets[:count] >= np.uint64(queue.first)) & (not queue.deleted)
            return flags

        def row(at: int, id_: str) -> pb.ListedMessage:
            return pb.ListedMessage(
                id=id_,
                due_ms=int(units["due_ms"][at]),
                state=int(state[at]),  # type: ignore[arg-type]  # of the enum
                group=queue.group,
                offset=int(offsets[at]),
                released_ms=int(released[at]),
            )

        return await self._add(hour[:count], index[:count], living, row, page)

    async def _add(
        self,
        hour: Numbers,
        index: Numbers,
        living: Callable[[], Flags],
        row: Callable[[int, str], pb.ListedMessage],
        page: Page,
    ) -> int:
        """Add the first of some messages to a page; return how many were looked at, at least one.

        ``living`` flags those that are still there, ``row`` makes a listed message of a position and an id.
        """
        wheel = self._machine.wheel
        while True:
            there = await self._pieces.alone(partial(self._readable, hour, index, living))
            if not len(there):
                return len(hour)
            try:
                sizes = wheel.units(hour[there], index[there])["size"]
                part = next(portions(sizes, PIECE_BYTES))
                chosen = there[part]
                # before the disk is waited for: of one that moves meanwhile the wheel forgets where it was
                named = wheel.ids_of(hour[chosen], index[chosen])
                records = await self._damage.reads.read(hour[chosen], index[chosen])
            except UnknownMessage:  # its hour was deleted while the disk was waited for
                continue
            break
        if None in records:
            damaged = chosen[[record is None for record in records]]
            self._damage.report(hour[damaged], index[damaged])
        ids = format_ids(self._shard, *named)
        rows = list(map(row, chosen.tolist(), ids))
        looked = await self._pieces.alone(partial(page.add, rows, records))
        if looked < len(rows):
            return int(chosen[looked])
        return len(hour) if len(chosen) == len(there) else int(there[len(chosen)])

    def _readable(self, hour: Numbers, index: Numbers, living: Callable[[], Flags]) -> NDArray[np.intp]:
        """Return which messages, places of shape (n,), are still there, with their records."""
        wheel, there = self._machine.wheel, np.flatnonzero(living())
        there = there[wheel.known(hour[there], index[there])]
        return there[wheel.readable(hour[there], index[there])]


def _states(request: pb.ListMessagesRequest) -> frozenset[int] | Refusal:
    """Return the states that are listed, RELEASED of a group as those that it stands for."""
    known = frozenset(State.values()) - {State.LISTED_STATE_UNSPECIFIED}
    asked = frozenset(request.states) or known - {State.LISTED_STATE_SETTLED}
    if request.states:
        if unknown := asked - known:
            return invalid_query(f"state {min(unknown)} is none that this version of the node knows")
        if asked & OF_GROUPS and not request.group:
            return invalid_query("waiting, in hand and settled is what a message is to a group: name one")
        if request.group and State.LISTED_STATE_RELEASED in asked:
            asked |= OF_GROUPS
    return asked
