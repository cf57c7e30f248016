"""Forecast: how many pending messages are due when, what is overdue, and how late what comes will be.

open the hours' slots        one an hour, each in a turn of its own
capture a view               one turn: what is counted is the state as of one entry
count                        in a thread, from copies and from files that only grow
read records                 only for tags, and only of a few messages
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import grpc
import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls
from tarry.node.edge.names import unknown_topic
from tarry.node.leader.leftovers import pending_of_live
from tarry.node.metrics.release_rate import DEFAULT_PER_S
from tarry.node.services.forecast_request import Asked, Buckets, checked
from tarry.node.services.message_filter import Filter
from tarry.node.services.predicted_lateness import Releases, lateness_ms, longest
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.state_machine import lanes
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.pending_view import Found, PendingView, ViewLost
from tarry.wheel.state import HOUR_MS, SECOND_MS, Flags, Masks, Numbers, Times, UnknownMessage, WheelDamaged

UNDER_WAY_MAX: Final = 4
"""Forecasts of a node at once: each takes a thread, by topic for up to a second."""
HOURS_MAX: Final = 1_024
"""With messages, that are looked into for one topic: some 4 ms to capture."""
UNITS_MAX: Final = 50_000_000
"""Messages that these may ever have got: some 10 ms a million, in a thread."""
FAR_UNITS_MAX: Final = 262_144
"""Of these in the far log: some 3 us each, in a thread."""
TAGGED_MAX: Final = 10_000
"""Messages whose records are read for their tags; of more only their masks are looked at."""
TAGGED_BYTES_MAX: Final = 64 << 20
"""Bytes of these records."""
PIECE_RECORDS: Final = 256
PIECE_BYTES: Final = 1 << 20
"""Looked at in one turn of the event loop; a larger record alone."""
ATTEMPTS_MAX: Final = 3
"""How often a view is captured anew because hours were dropped or thinned while it was counted."""


class Seen(NamedTuple):
    """State captured in one turn of the event loop."""

    view: PendingView
    buckets: Buckets
    by_hour: Numbers
    """Pending messages of each bucket, where these are hours."""
    units_of: list[int]
    """Hours to be looked into for a topic."""
    first_due_ms: int | None
    releases: Releases
    answer: pb.ForecastResponse
    """What is known by then."""


class Tally:
    """Counts of due times."""

    def __init__(self, buckets: Buckets, now_ms: int) -> None:
        self._buckets, self._now_ms = buckets, now_ms
        self.counts: NDArray[np.int64] = np.zeros(buckets.length, np.int64)
        self.overdue = 0
        self.first_due_ms: int | None = None

    def asked(self, due_ms: Times) -> Flags:
        """Flag the due times, shape (n,), that are counted at all."""
        within: Flags = (due_ms >= self._buckets.first_ms) & (due_ms < self._buckets.end_ms)
        return within | (due_ms <= self._now_ms)

    def add(self, due_ms: Times) -> None:
        """Count due times, shape (n,)."""
        self.counts += self._buckets.counts(due_ms)
        overdue = due_ms[due_ms <= self._now_ms]
        if len(overdue):
            self.overdue += len(overdue)
            first_ms = int(overdue.min())
            self.first_due_ms = first_ms if self.first_due_ms is None else min(self.first_due_ms, first_ms)


class Tagged:
    """Messages that may have a tag, as long as they are few enough to read them."""

    def __init__(self) -> None:
        self.found: list[tuple[int, Found]] = []  # by hour
        self.room, self.room_bytes = TAGGED_MAX, TAGGED_BYTES_MAX

    @property
    def has_room(self) -> bool:
        """True if none has been left out."""
        return self.room >= 0 and self.room_bytes >= 0

    def add(self, hour: int, found: Found) -> None:
        """Take in messages of an hour, or forget all of them where they are too many."""
        self.room -= len(found.due_ms)
        self.room_bytes -= int(found.size.sum(dtype=np.int64))
        if self.has_room:
            self.found.append((hour, found))
        else:
            self.found.clear()


class ForecastCalls:
    """Answers forecasts."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._core, self._authorizer, self._calls = core, authorizer, calls
        self._machine, self._limits = core.machine, core.config.limits
        self._under_way = 0

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""

        async def handle(raw: bytes, context: CallContext) -> bytes:
            answer = await self.answer(f"/{service}/Forecast", raw, context)
            if isinstance(answer, Refusal):
                await abort(context, answer)
            return answer

        return {"Forecast": grpc.unary_unary_rpc_method_handler(handle)}

    async def answer(self, path: str, raw: bytes, context: CallContext) -> Answer:
        """Return this node's answer; with ``linearizable`` the leader's."""
        request = parse(pb.ForecastRequest, raw)
        if isinstance(request, Refusal):
            return request
        if not request.linearizable:
            return await self._answer(request, context)

        async def local(_: bytes, context: CallContext) -> Answer:
            await self._core.driver.read_barrier()
            return await self._answer(request, context)

        return await self._calls.answer(path, raw, context, local)

    async def _answer(self, request: pb.ForecastRequest, context: CallContext) -> Answer:
        right = None if request.topic else Right.OPERATE
        refusal = self._authorizer.refusal(context, right) or unknown_field(request)
        if refusal is not None:
            return refusal
        asked = checked(request, self._machine.queues, self._limits)
        if isinstance(asked, Refusal):
            return asked
        if asked.messages is not None and not self._authorizer.sees(context)(request.topic):
            return unknown_topic(request.topic)
        if self._under_way >= UNDER_WAY_MAX:
            text = f"{UNDER_WAY_MAX} forecasts are under way on this node: try again later"
            return Refusal(Reason.OVERLOADED, text, retry_ms=200)
        return await self._bounded(self._told(asked))

    async def _bounded(self, work: Awaitable[Answer]) -> Answer:
        """Return what the work returns; it counts until it ends, also where the caller has gone."""
        self._under_way += 1
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Answer]) -> None:
        self._under_way -= 1
        if not task.cancelled():
            task.exception()  # whoever waits for it is told

    async def _told(self, asked: Asked) -> Answer:
        lost: object = ""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._counted(asked)
            except (ViewLost, UnknownMessage, OSError) as error:
                lost = error
            except WheelDamaged as damage:
                lost = damage
                with suppress(WheelDamaged):  # of another file: its caller is told all the same
                    self._core.damage.indices.report_path(damage)
        text = f"this node could not count what is pending: {lost}; try again, or ask another node"
        return Refusal(Reason.OVERLOADED, text, retry_ms=1_000)

    async def _counted(self, asked: Asked) -> Answer:
        await self._open(asked)
        seen = self._capture(asked)
        if isinstance(seen, Refusal):
            return seen
        tally, tagged, lateness = await in_thread(partial(_count, seen, asked.messages))
        if asked.messages is not None and asked.messages.tags:
            seen.answer.upper_bound = True
            if tagged.has_room:
                tally = Tally(seen.buckets, seen.view.now_ms)
                seen.answer.upper_bound = await self._read(tagged, asked.messages, tally)
        answer = seen.answer
        answer.counts.extend(tally.counts.tolist())
        answer.lateness_ms.extend(lateness.tolist())
        answer.overdue = tally.overdue
        if tally.overdue and tally.first_due_ms is not None:
            answer.oldest_overdue_ms = max(0, answer.now_ms - tally.first_due_ms)
        return answer.SerializeToString()

    async def _open(self, asked: Asked) -> None:
        """Open the slots that are going to be captured, one an hour a turn."""
        now_ms = self._core.time.now_ms()
        hours = {now_ms // HOUR_MS, *_seconds_of(asked.beginning(now_ms))}
        for hour in sorted(hours):
            self._machine.wheel.open_seconds(hour)
            await asyncio.sleep(0)

    def _capture(self, asked: Asked) -> Seen | Refusal:
        """Capture what is to be counted, in one turn."""
        wheel, now_ms = self._machine.wheel, self._core.time.now_ms()
        buckets, by_hour = asked.beginning(now_ms), np.empty(0, np.uint32)
        if buckets.bucket_ms == HOUR_MS:
            by_hour = wheel.pending_by_hour(buckets.first_ms // HOUR_MS, buckets.length)
            if not asked.buckets:
                some = np.flatnonzero(by_hour)
                by_hour = by_hour[: int(some[-1]) + 1 if len(some) else 1]
                buckets = buckets._replace(length=len(by_hour))
        units_of: list[int] = []
        pending = pending_of_live(self._machine)
        if asked.messages is not None:
            pending = wheel.pending_of(asked.messages.queue)
            units_of = self._hours_of(buckets, now_ms) if pending else []
            units = sum(map(wheel.units_in_hour, units_of))
            if len(units_of) > HOURS_MAX or units > UNITS_MAX:
                text = f"these are {len(units_of)} hours with {units} messages of all topics, and may be"
                text += f" {HOURS_MAX} with {UNITS_MAX}: ask for fewer, or without a topic"
                return _too_much(text)
        view = wheel.pending_view(now_ms, _seconds_of(buckets), units_of)
        far_units = sum(hour.far_units for hour in view.hours.values())
        if far_units > FAR_UNITS_MAX:
            text = f"the far log has {far_units} messages of these hours, and may have {FAR_UNITS_MAX}"
            return _too_much(f"{text}: ask for fewer, or by hours")
        answer = self._answered(now_ms, buckets, pending)
        dispatch = self._core.config.dispatch
        releases = Releases(answer.released_per_s, dispatch.slice_messages_max, dispatch.ahead_ms_max)
        return Seen(view, buckets, by_hour, units_of, wheel.first_due_ms(), releases, answer)

    def _hours_of(self, buckets: Buckets, now_ms: int) -> list[int]:
        """Return the hours with messages that are overdue, or in one of the buckets; too many at most."""
        wheel, most = self._machine.wheel, HOURS_MAX + 1
        overdue = wheel.pending_hours(wheel.cut.due_ms // HOUR_MS, now_ms // HOUR_MS + 1, most)
        end = -(-buckets.end_ms // HOUR_MS)
        return sorted({*overdue, *wheel.pending_hours(buckets.first_ms // HOUR_MS, end, most)})

    def _answered(self, now_ms: int, buckets: Buckets, pending: int) -> pb.ForecastResponse:
        status, rate = self._core.driver.status(), self._core.release_rate.per_s
        leads = self._core.leadership.serves()
        leader = None if leads else status.peers.get(status.leader or "")
        heard_ms = None if leader is None else leader.heard_ms_ago
        return pb.ForecastResponse(
            first_ms=buckets.first_ms,
            bucket_ms=buckets.bucket_ms,
            pending=pending,
            now_ms=now_ms,
            applied_index=self._machine.applied_index,
            released_per_s=DEFAULT_PER_S if rate is None else rate,
            released_measured=rate is not None,
            node=status.node,
            leads=leads,
            heard_ms_ago=0 if heard_ms is None else max(1, math.ceil(heard_ms)),
        )

    async def _read(self, tagged: Tagged, messages: Filter, tally: Tally) -> bool:
        """Count those that have one of the tags; return whether a record that is damaged was counted too."""
        damaged = False
        for hour, found in tagged.found:
            for rows in portions(found.size, PIECE_BYTES):
                for start in range(rows.start, rows.stop, PIECE_RECORDS):
                    piece = slice(start, min(start + PIECE_RECORDS, rows.stop))
                    index, due_ms = found.global_index[piece], found.due_ms[piece]
                    hours = np.full(len(index), hour, np.uint32)
                    records = await self._core.damage.reads.read(hours, index)
                    unread = np.array([record is None for record in records], np.bool_)
                    damaged |= bool(unread.any())
                    tally.add(due_ms[messages.matching(records) | unread])
                    await asyncio.sleep(0)
        return damaged


def _seconds_of(buckets: Buckets) -> range:
    """Return the hours whose seconds are counted."""
    if buckets.bucket_ms == HOUR_MS:
        return range(0)
    return range(buckets.first_ms // HOUR_MS, -(-buckets.end_ms // HOUR_MS))


def _count(seen: Seen, messages: Filter | None) -> tuple[Tally, Tagged, NDArray[np.int64]]:
    """Count what was seen, from any thread. Raises OSError and ViewLost."""
    counts, lateness = _of_all(seen)
    tally, tagged = Tally(seen.buckets, seen.view.now_ms), Tagged()
    if messages is None:
        tally.counts, tally.overdue = counts, seen.view.overdue()
        tally.first_due_ms = seen.first_due_ms
        return tally, tagged, lateness
    wanted = partial(_wanted, messages)
    for hour in seen.units_of:
        for found in seen.view.matching(hour, wanted):
            asked = tally.asked(found.due_ms)
            due_ms, index, size = found.due_ms[asked], found.global_index[asked], found.size[asked]
            tally.add(due_ms)
            if messages.tags:
                tagged.add(hour, Found(due_ms, index, size))
    return tally, tagged, lateness


def _wanted(messages: Filter, topic: Numbers, tag_mask: Masks) -> Flags:
    wanted: Flags = lanes.queue_of(topic) == messages.queue
    if messages.tags:
        wanted &= messages.tagged(lanes.unpack(topic, tag_mask)[1])
    return wanted


def _of_all(seen: Seen) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what is due in each bucket of all topics, and how late it will be; none where not from now on.

    A topic is late as all are: what is due is released in the order of due times.
    """
    view, (first_ms, bucket_ms, length) = seen.view, seen.buckets
    if bucket_ms == HOUR_MS:
        coming, step_ms, begin = seen.by_hour, HOUR_MS, 0
        counts, waiting = coming.astype(np.int64), view.earlier
    else:
        step_ms, size = SECOND_MS, bucket_ms // SECOND_MS
        seconds = view.seconds(first_ms // SECOND_MS, length * size)
        counts = seconds.reshape(length, size).sum(axis=1, dtype=np.int64)
        begin = (view.now_ms - first_ms) // SECOND_MS
        coming, waiting = seconds[max(0, begin) :], view.before_present()
    if first_ms > view.now_ms:
        return counts, np.empty(0, np.int64)
    late_ms = lateness_ms(coming, step_ms - view.now_ms % step_ms, step_ms, waiting, seen.releases)
    size = bucket_ms // step_ms
    return counts, longest(late_ms, size - begin, size)


def _too_much(text: str) -> Refusal:
    return Refusal(Reason.QUERY_INVALID, text)
