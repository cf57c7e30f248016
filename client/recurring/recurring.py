"""Schedules that recur: puts, reads, pauses, triggers and deletes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, Unpack

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import InvalidQuery
from tarry.client.integers import INT64_MAX, UINT64_MAX, whole
from tarry.client.recurring.schedule import Fire, NextFires, RecurringSchedule, SchedulePage, Triggered
from tarry.client.recurring.specification import ScheduleOptions, Timing, packed, put_timing
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.reasons import Reason

PAGE_MAX: Final = 1_000
"""Schedules that a node puts in a page at most."""
FIRES_MAX: Final = 1_000
"""Fires to come that a node computes in a call at most."""


class Recurring:
    """Keeps schedules that recur. Made by ``Client.recurring``.

    Who may produce to a schedule's topic may do all that is here with the schedule. It needs a cluster of
    level 2: below there are no schedules, and ``put`` raises UpgradeRefused.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._calls = Calls(nodes)

    async def put(
        self,
        name: str,
        topic: str,
        body: bytes = b"",
        *,
        timing: Timing,
        paused: bool = False,
        if_revision: int | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> RecurringSchedule:
        """Create a schedule, or give the one of that name all of this instead of what it had.

        Each fire is a message of the topic with this body, and the tags, keys, properties and ordering key
        among the options. What has fired stays; fires to come follow what is new. Where the schedule is so
        already, nothing changes, so the call may be repeated.

        Args:
            timing: an Interval, or a Cron in a time zone.
            paused: created paused; a schedule that is there stays as it is.
            if_revision: only where the schedule has this revision; 0: only where there is none of that name.

        Raises InvalidSchedule, InvalidName, TooLarge, NotPermitted, NoRoom; RevisionDiffers with the present
        ``revision``, or OutcomeUnknown where an answer was lost and the retry finds another than it asks for.
        """
        request = pb.PutRecurringRequest(
            name=name,
            spec=packed(topic, body, timing, options),
            if_revision=_revision(if_revision),
            paused=paused,
        )
        answer = await self._calls.call(lambda node: node.recurring.PutRecurring, request)
        return RecurringSchedule.of(answer.recurring)

    async def get(self, name: str) -> RecurringSchedule:
        """Return a schedule with its last fires. Linearizable. Raises NotFound, NotPermitted."""
        request = pb.GetRecurringRequest(name=name)
        answer = await self._calls.call(lambda node: node.recurring.GetRecurring, request, changes=False)
        return RecurringSchedule.of(answer.recurring)

    async def history(self, name: str) -> tuple[Fire, ...]:
        """Return a schedule's last ten fires, the newest first. Raises NotFound, NotPermitted."""
        return (await self.get(name)).history

    async def list_page(
        self, topic: str = "", *, prefix: str = "", size: int = 100, cursor: str = ""
    ) -> SchedulePage:
        """Return a page of schedules by name, ``size`` at most, up to 1,000; ``cursor``: of the page before.

        Each has its newest fire only, and no body.

        Args:
            topic: only of this one; empty: of all topics that the caller may produce to.
            prefix: only names that begin with it.

        Raises InvalidQuery, NotPermitted.
        """
        request = pb.ListRecurringRequest(
            topic=topic,
            name_prefix=prefix,
            page_size=whole("size", size, InvalidQuery, Reason.QUERY_INVALID, PAGE_MAX, 1),
            cursor=cursor,
        )
        answer = await self._calls.call(lambda node: node.recurring.ListRecurring, request, changes=False)
        return SchedulePage.of(answer)

    async def list(
        self, topic: str = "", *, prefix: str = "", limit: int | None = None
    ) -> AsyncGenerator[RecurringSchedule, None]:
        """Yield schedules by name, ``limit`` at most, also across leaders.

        One that is there all the time comes once. Raises as ``list_page``.
        """
        cursor, left = "", limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(PAGE_MAX, left)
            page = await self.list_page(topic, prefix=prefix, size=size, cursor=cursor)
            for schedule in page.schedules:
                yield schedule
            left = None if left is None else left - len(page.schedules)
            if not (cursor := page.cursor):
                return

    async def pause(self, name: str, *, if_revision: int | None = None) -> RecurringSchedule:
        """Stop fires until ``resume``; a fire whose message is not due yet is cancelled.

        Of a paused schedule it changes nothing. Raises NotFound, NotPermitted, RevisionDiffers.
        """
        request = pb.PauseRecurringRequest(name=name, if_revision=_revision(if_revision))
        answer = await self._calls.call(lambda node: node.recurring.PauseRecurring, request)
        return RecurringSchedule.of(answer.recurring)

    async def resume(self, name: str, *, if_revision: int | None = None) -> RecurringSchedule:
        """Go on with the first fire after now; what lay in the pause does not fire.

        Of a schedule that is not paused it changes nothing. Raises NotFound, NotPermitted, RevisionDiffers.
        """
        request = pb.ResumeRecurringRequest(name=name, if_revision=_revision(if_revision))
        answer = await self._calls.call(lambda node: node.recurring.ResumeRecurring, request)
        return RecurringSchedule.of(answer.recurring)

    async def trigger(self, name: str, *, if_triggered: int | None = None) -> Triggered:
        """Fire once, now, also a paused or ended schedule, whatever its overlap policy; other fires stay.

        Args:
            if_triggered: only where the schedule was triggered so often so far. Without, the call reads that
                first, so that its own retries fire once; of two such calls at the same moment one may be told
                RevisionDiffers: it has not fired, and may be made again.

        Raises NotFound, NotPermitted, NoRoom, RevisionDiffers; OutcomeUnknown where an answer was lost: the
        schedule's history tells whether it has fired.
        """
        so_far = (await self.get(name)).triggered if if_triggered is None else if_triggered
        request = pb.TriggerRecurringRequest(name=name, if_triggered=_count("if_triggered", so_far))
        answer = await self._calls.call(lambda node: node.recurring.TriggerRecurring, request)
        return Triggered(answer.id, answer.due_ms, answer.triggered)

    async def delete(self, name: str, *, if_revision: int | None = None) -> None:
        """Delete a schedule; a fire whose message is not due yet is cancelled.

        Raises NotFound, NotPermitted, RevisionDiffers; OutcomeUnknown where an answer was lost and a retry
        finds no such schedule.
        """
        request = pb.DeleteRecurringRequest(name=name, if_revision=_revision(if_revision))
        await self._calls.call(lambda node: node.recurring.DeleteRecurring, request)

    async def next_fires(
        self,
        name: str = "",
        *,
        timing: Timing | None = None,
        start_ms: int = 0,
        end_ms: int = 0,
        count: int = 10,
        after_ms: int = 0,
    ) -> NextFires:
        """Return the next fires of a schedule, or of a timing that no schedule has yet.

        Args:
            name: of a schedule; else give a ``timing``.
            start_ms, end_ms: with a timing, its bounds; 0: none.
            count: fires at most, up to 1,000.
            after_ms: only later ones; 0: after now.

        Raises NotFound, NotPermitted, InvalidQuery, InvalidSchedule.
        """
        if (timing is None) == (not name):
            raise InvalidQuery(Reason.QUERY_INVALID, "give the name of a schedule, or a timing")
        request = pb.NextFiresRequest(
            name=name,
            fires_max=whole("count", count, InvalidQuery, Reason.QUERY_INVALID, FIRES_MAX, 1),
            after_ms=whole("after_ms", after_ms, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX),
        )
        if timing is not None:
            put_timing(request.spec, timing)
            request.spec.start_ms = whole("start_ms", start_ms, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX)
            request.spec.end_ms = whole("end_ms", end_ms, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX)
        answer = await self._calls.call(lambda node: node.recurring.NextFires, request, changes=False)
        return NextFires.of(answer)


def _count(name: str, given: int) -> int:
    return whole(name, given, InvalidQuery, Reason.QUERY_INVALID, UINT64_MAX)


def _revision(given: int | None) -> int | None:
    return None if given is None else _count("if_revision", given)
