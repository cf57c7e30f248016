"""Cancelling of released messages at the leader, until a consumer is given them.

    find the offsets ─► mark them ─► ask each group ─► propose ─► committed ─► lift the marks
                          │             │ one has it, or all are done: answered without a commit
                          └ no feed hands over what is marked

So between the question and the commit nothing is handed over of what is cancelled. The cancel is in the log
of one term: a later leader has applied it before it serves, or never will.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import waiting_retries
from tarry.node.delivery.offset_pieces import PIECE_BLOCKS, cut, part_of
from tarry.node.delivery.offset_search import NOT_THERE, OffsetSearch, keys_of
from tarry.node.edge.grpc_status import UNKNOWN_OUTCOME
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.outcomes import Cancelled
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import WheelDamaged

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context
    from tarry.node.delivery.feed import Feed

OFFSETS_MAX: Final = 2_048
"""Cancelled by one command."""
GROUPS_MAX: Final = 4_096
"""Of a topic whose released messages are cancelled: applying goes on behind each, in one turn."""
HAD_BY_BYTES_MAX: Final = 1 << 19
"""Of the names of groups that have had a message, in one command; with more it stays delivered."""
TURN_GROUPS: Final = 8
"""Asked in one turn of the event loop, at up to 1 ms each."""
SEARCHES_MAX: Final = 8
"""For the copy of a message that is moved each time before it is cancelled; then it stays delivered."""
DONE: Final = producer_pb.CANCEL_OUTCOME_ALREADY_DONE
DELIVERED: Final = producer_pb.CANCEL_OUTCOME_ALREADY_DELIVERED
CANCELLED: Final = producer_pb.CANCEL_OUTCOME_CANCELLED
REPEATED: Final = producer_pb.CANCEL_OUTCOME_ALREADY_CANCELLED

_MOVED: Final = Refusal(Reason.NO_LEADER, "leadership is moving: nothing was cancelled", retry_ms=100)

Flags: TypeAlias = NDArray[np.bool_]
Outcomes: TypeAlias = NDArray[np.uint32]


class Released(NamedTuple):
    """Released messages of one queue, each once: columns of shape (n,)."""

    hour: NDArray[np.uint32]
    global_index: NDArray[np.uint32]
    due_ms: NDArray[np.int64]

    def rows(self, chosen: NDArray[np.intp]) -> Released:
        """Return some of them."""
        return Released(self.hour[chosen], self.global_index[chosen], self.due_ms[chosen])


class Found(NamedTuple):
    """The same, with their offsets, ascending, and lanes."""

    messages: Released
    offset: NDArray[np.uint64]
    lane: NDArray[np.uint32]


class GroupAnswer(NamedTuple):
    """Answer of a group about offsets, shape (n,)."""

    fresh: Flags
    """No consumer of it has been given the message, and none is before the marks are lifted."""
    done: Flags
    """It is done with the message for good, or has been moved past it."""


class Cancels:
    """Cancels of released messages, as long as one delivery lasts."""

    def __init__(
        self,
        context: Context,
        feed: Callable[[str, int], Feed | None],
        feeds: Callable[[int], Iterable[Feed]],
        inherited: Callable[[str, int], int],
        pump: Callable[[int], None],
    ) -> None:
        """Take what the delivery knows.

        Args:
            feed: of a group on a queue, if the group is open.
            feeds: of all open groups on a queue.
            inherited: the offset below which a group that is not open may have had anything.
            pump: delivers to the groups of a queue.
        """
        self._context = context
        self._queues = context.machine.queues
        self._feed, self._feeds, self._inherited, self._pump = feed, feeds, inherited, pump

    async def cancel(self, number: int, messages: Released, *, remaining: bool) -> Outcomes | Refusal:
        """Return what became of released messages of a queue, by its number; a CancelOutcome each.

        ``remaining``: cancel those that some groups have had for the others. Raises NotLeader, Unknown.
        """
        outcomes = np.full(len(messages.hour), DONE, dtype=np.uint32)
        try:
            left = np.arange(len(messages.hour))
            for queue in self._places(number):
                found = await self._find(queue, messages.rows(left))
                rows = left[found >= 0]
                if isinstance(refusal := self._too_many_groups(queue, len(rows)), Refusal):
                    return refusal
                offset = found[found >= 0].astype(np.uint64)
                for piece in self._pieces(offset):
                    answer = await self._in_queue(
                        queue, offset[piece], messages.rows(rows[piece]), remaining=remaining
                    )
                    if isinstance(answer, Refusal):
                        return answer
                    outcomes[rows[piece]] = answer
                left = left[found == NOT_THERE]
            if len(left) and any(self._retries(self._queues[number], g) for g in self._of(number)):
                outcomes[left] = DELIVERED  # trimmed, and perhaps waiting for its retry
        except UnitsDamaged as damage:
            return self._damaged(damage)
        return outcomes

    async def cancel_offsets(
        self, number: int, offset: NDArray[np.uint64], *, remaining: bool
    ) -> Outcomes | Refusal:
        """Return what became of offsets of a queue, ascending, as ``cancel`` does."""
        queue = self._queues[number]
        if isinstance(refusal := self._too_many_groups(queue, len(offset)), Refusal):
            return refusal
        outcomes = np.full(len(offset), DONE, dtype=np.uint32)
        try:
            for piece in self._pieces(offset):
                known = (offset[piece] >= np.uint64(queue.first)) & (offset[piece] < np.uint64(queue.units))
                there = piece[known]
                if queue.deleted or not len(there):
                    continue
                work = partial(queue.at, offset[there])
                units = await self._context.pieces.part(part_of(len(there)), work)
                messages = Released(*(units[name].copy() for name in Released._fields))
                answer = await self._in_queue(queue, offset[there], messages, remaining=remaining)
                if isinstance(answer, Refusal):
                    return answer
                outcomes[there] = answer
        except UnitsDamaged as damage:
            return self._damaged(damage)
        return outcomes

    def _places(self, number: int) -> Iterator[ReadyQueue]:
        """Yield the queues in which a message of a queue may be: its own, then where misfires go."""
        queue = self._queues[number]
        if not queue.deleted:
            yield queue
            target = self._queues.find(dead_letter_topic(queue.topic))
            if target is not None and not queue.group:
                yield target

    async def _find(self, queue: ReadyQueue, messages: Released) -> NDArray[np.int64]:
        if not len(messages.hour):
            return np.empty(0, np.int64)
        floors = [self._queues.acknowledged[group, queue.queue].floor for group in self._groups(queue)]
        search = OffsetSearch(queue, min(floors, default=queue.first), *messages)
        await search.run(self._context.pieces.part)
        return search.found

    @staticmethod
    def _pieces(offset: NDArray[np.uint64]) -> Iterator[NDArray[np.intp]]:
        order = np.argsort(offset)
        start = 0
        for part in cut(offset[order], OFFSETS_MAX, PIECE_BLOCKS):
            yield order[start : start + len(part)]
            start += len(part)

    def _too_many_groups(self, queue: ReadyQueue, count: int) -> Refusal | None:
        groups = len(self._queues.groups_of(queue.queue))
        if not count or groups <= GROUPS_MAX:
            return None
        text = (
            f"topic {queue.topic!r} has {groups} groups: released messages are cancelled where a topic has "
            f"{GROUPS_MAX} at most; delete groups that nobody uses"
        )
        return Refusal(Reason.TOO_MANY_GROUPS, text, {"groups": str(groups), "groups_max": str(GROUPS_MAX)})

    def _damaged(self, damage: UnitsDamaged) -> Refusal:
        self._context.damage.queues.report(damage)
        text = f"{damage}; a peer's copy is on its way: cancel again in a second"
        return Refusal(Reason.MESSAGE_DAMAGED, text, retry_ms=1_000)

    def _of(self, number: int) -> list[str]:
        return [] if self._queues[number].deleted else self._queues.groups_of(number)

    def _groups(self, queue: ReadyQueue) -> list[str]:
        return self._queues.groups_of(queue.queue)

    async def _in_queue(
        self, queue: ReadyQueue, offset: NDArray[np.uint64], messages: Released, *, remaining: bool
    ) -> Outcomes | Refusal:
        """Cancel some offsets of a queue, ascending, in a task that a caller who goes does not end."""
        if self._context.over.is_set():
            return _MOVED
        there = offset >= np.uint64(queue.first)
        if queue.deleted or not there.all():  # some were trimmed since they were found
            outcomes = np.full(len(offset), DONE, dtype=np.uint32)
            if queue.deleted or not there.any():
                return outcomes
            kept = Released(messages.hour[there], messages.global_index[there], messages.due_ms[there])
            left = await self._in_queue(queue, offset[there], kept, remaining=remaining)
            if isinstance(left, Refusal):
                return left
            outcomes[there] = left
            return outcomes
        units = await self._context.pieces.part(part_of(len(offset)), partial(queue.at, offset))
        found = Found(messages, offset, units["lane"].copy())
        answer: asyncio.Future[Outcomes | Refusal] = asyncio.get_running_loop().create_future()
        work = partial(self._cancel, queue, found, remaining=remaining)
        self._context.spawn(self._told(answer, work))
        over = asyncio.ensure_future(self._context.over.wait())
        try:
            await asyncio.wait((answer, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        return answer.result() if answer.done() else UNKNOWN_OUTCOME

    @staticmethod
    async def _told(
        answer: asyncio.Future[Outcomes | Refusal], work: Callable[[], Awaitable[Outcomes | Refusal]]
    ) -> None:
        try:
            outcome = await work()
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # whoever asked may have gone
            raise
        if not answer.done():
            answer.set_result(outcome)

    async def _cancel(self, queue: ReadyQueue, found: Found, *, remaining: bool) -> Outcomes | Refusal:
        """Mark, ask, propose, lift. Marks stay where the outcome is not known: the leadership is over."""
        marks, number = self._context.marks, queue.queue
        waiting = await self._waiting(queue, found)
        await marks.add(number, found.offset)
        outcomes = np.full(len(found.offset), REPEATED, dtype=np.uint32)
        left = ~self._queues.cancelled.contains(number, found.offset)  # by a request that was marked before
        had = await self._ask(queue, found, waiting, remaining=remaining)
        if not self._context.may_serve():
            await self._lift(number, found.offset)
            return _MOVED
        outcomes[left] = np.where(had.done[left], DONE, DELIVERED)
        for had_by, rows in had.sets(left & had.chosen):
            if sum(len(group.encode()) for group in had_by) > HAD_BY_BYTES_MAX:
                continue
            gone = await self._without_retries(queue, found, rows, waiting)
            rows = rows[gone | had.fresh[rows] if remaining else gone]  # noqa: PLW2901 - what is left
            if not len(rows):
                continue
            outcome = await self._context.propose(
                log_pb.CancelReleasedCommand(
                    queue=number,
                    offset=found.offset[rows].astype("<u8").tobytes(),
                    hour=found.messages.hour[rows].astype("<u4").tobytes(),
                    global_index=found.messages.global_index[rows].astype("<u4").tobytes(),
                    due_ms=found.messages.due_ms[rows].astype("<i8").tobytes(),
                    had_by=had_by,
                    now_ms=self._context.time.now_ms(),
                )
            )
            # a refusal: the topic was deleted meanwhile
            outcomes[rows] = outcome.outcomes if isinstance(outcome, Cancelled) else DONE
        await self._lift(number, found.offset)
        return outcomes

    async def _waiting(self, queue: ReadyQueue, found: Found) -> dict[str, waiting_retries.Found]:
        """Return by group which of the messages it has had wait there for a retry."""
        waiting = {}
        for group in self._groups(queue) if not queue.group else ():
            copies = self._queues.find(queue.topic, group)
            known = self._queues.acknowledged.get((group, queue.queue))
            if copies is None or known is None or not self._retries(queue, group):
                continue
            done = known.contains(found.offset)
            if done.any():
                wanted = self._keys(found.messages)[done]
                try:
                    waiting[group] = await waiting_retries.find(self._context, copies, group, wanted)
                except UnitsDamaged as damage:
                    self._damaged(damage)
                except WheelDamaged:  # found again by what releases it, and mended
                    continue
        return waiting

    def _keys(self, messages: Released) -> NDArray[np.uint64]:
        """Return the ids of messages, shape (n,), which their copies name."""
        return keys_of(*self._context.machine.wheel.ids_of(messages.hour, messages.global_index))

    async def _without_retries(
        self,
        queue: ReadyQueue,
        found: Found,
        rows: NDArray[np.intp],
        waiting: dict[str, waiting_retries.Found],
    ) -> Flags:
        """Cancel the copies of some messages; return which no group is given again."""
        keys = self._keys(found.messages)[rows].tolist()
        gone = np.ones(len(rows), dtype=np.bool_)
        for group, copies in waiting.items():
            places = [place for place, key in enumerate(keys) if key in copies]
            target = self._queues.find(queue.topic, group)
            if not places:
                continue
            if target is None:  # the group was deleted meanwhile, and its copies go nowhere
                continue
            named = np.array([keys[place] for place in places], np.uint64)
            gone[places] &= await self._cancel_moving(target, group, named, copies)
        return gone

    async def _cancel_moving(
        self, target: ReadyQueue, group: str, keys: NDArray[np.uint64], copies: waiting_retries.Found
    ) -> Flags:
        """Cancel the copies of messages, keys of shape (n,), wherever they are moved meanwhile.

        Return which messages nobody is given. A copy that rests no more where it was found may have been
        moved as well as cancelled, so it is looked for again; what is found nowhere is not said to be gone.
        """
        gone, left = np.zeros(len(keys), np.bool_), np.arange(len(keys))
        for _ in range(SEARCHES_MAX):
            places = np.array([copies[key] for key in keys[left].tolist()], np.uint32)
            outcomes = await self._cancel_copies(target, places[:, 0].copy(), places[:, 1].copy())
            gone[left] = outcomes == CANCELLED
            left = left[outcomes == REPEATED]
            if not len(left):
                break
            try:
                copies = await waiting_retries.find(self._context, target, group, keys[left])
            except UnitsDamaged as damage:
                self._damaged(damage)
                break
            except WheelDamaged:  # found again by what releases it, and mended
                break
            left = left[np.isin(keys[left], np.array(list(copies), np.uint64))]
            if not len(left):
                break
        return gone

    async def _cancel_copies(
        self, copies: ReadyQueue, hour: NDArray[np.uint32], index: NDArray[np.uint32]
    ) -> Outcomes:
        """Cancel copies at places, in the wheel or in their retry queue; return a CancelOutcome each.

        REPEATED is one that does not rest there any more; cancelled in the retry queue is CANCELLED.
        """
        ids = self._context.machine.wheel.ids_of(hour, index)
        outcome = await self._context.propose(
            log_pb.CancelCommand(
                hour=ids[0].tobytes(), global_index=ids[1].tobytes(), now_ms=self._context.time.now_ms()
            )
        )
        outcomes: Outcomes = np.array(outcome.outcomes, np.uint32)
        (rows,) = np.nonzero(outcomes == producer_pb.CANCEL_OUTCOME_ALREADY_RELEASED)
        if len(rows):
            due_ms = self._context.machine.due_ms(hour[rows], index[rows])
            released = Released(hour[rows], index[rows], due_ms)
            answer = await self.cancel(copies.queue, released, remaining=False)
            if not isinstance(answer, Refusal):  # copies that are released are not moved any more
                outcomes[rows] = np.where(answer == REPEATED, CANCELLED, answer)
        return outcomes

    async def _ask(
        self, queue: ReadyQueue, found: Found, waiting: dict[str, waiting_retries.Found], *, remaining: bool
    ) -> _Had:
        """Ask each group what it has had; what is marked stays as they say.

        Those beyond TURN_GROUPS have turns of their own: each may take 1 ms, and many requests ask at once.
        """
        keys = self._keys(found.messages)
        had = _Had(len(found.offset), remaining=remaining)
        for position, group in enumerate(self._groups(queue), start=1):
            if (group, queue.queue) in self._queues.acknowledged:
                copies = np.array(list(waiting.get(group, ())), np.uint64)
                had.add(group, self._answer(queue, group, found), np.isin(keys, copies))
            if not position % TURN_GROUPS:
                await self._context.pieces.alone(lambda: None)
        return had

    def _answer(self, queue: ReadyQueue, group: str, found: Found) -> GroupAnswer:
        acknowledged = self._queues.acknowledged[group, queue.queue].contains(found.offset)
        feed = self._feed(group, queue.queue)
        if feed is not None:
            fresh = feed.set_aside(found.offset, found.lane)
        else:
            fresh = ~acknowledged & (found.offset >= np.uint64(self._inherited(group, queue.queue)))
        return GroupAnswer(fresh, acknowledged & (not self._retries(queue, group)))

    def _retries(self, queue: ReadyQueue, group: str) -> bool:
        """Return whether anything that the group has had may wait for its retry, or be in hand again."""
        copies = self._queues.find(queue.topic, group)
        if copies is None or queue.group:
            return False
        done = self._queues.acknowledged[group, copies.queue]
        waiting = done.floor + len(done.acked) < copies.units
        return waiting or self._context.machine.wheel.pending_of(copies.queue) > 0

    async def _lift(self, number: int, offset: NDArray[np.uint64]) -> None:
        self._context.marks.lift(number, offset)
        for position, feed in enumerate(list(self._feeds(number)), start=1):
            feed.end_marks(offset)
            if not position % TURN_GROUPS:
                await asyncio.sleep(0)
        self._pump(number)


class _Had:
    """Sum of the answers of a queue's groups about n offsets."""

    def __init__(self, n: int, *, remaining: bool) -> None:
        self._remaining = remaining
        self.done = np.ones(n, dtype=np.bool_)  # for good, in every group
        self.fresh = np.zeros(n, dtype=np.bool_)  # in some group
        self._waits = np.zeros(n, dtype=np.bool_)  # for its retry, in some group
        self._had_somewhere = np.zeros(n, dtype=np.bool_)  # and do not wait for its retry
        self._groups: list[str] = []
        self._had: list[Flags] = []

    def add(self, group: str, answer: GroupAnswer, waits: Flags) -> None:
        """Take in what a group says, and what waits there for its retry."""
        had = ~answer.fresh
        self.done &= answer.done
        self.fresh |= answer.fresh
        self._waits |= had & waits
        self._had_somewhere |= had & ~waits
        if had.any():
            self._groups.append(group)
            self._had.append(had)

    @property
    def chosen(self) -> Flags:
        """The offsets to cancel: in every group fresh or waiting for a retry, with ``remaining`` in some."""
        if self._remaining:
            return self.fresh | self._waits | ~self._had_somewhere
        return ~self._had_somewhere

    def sets(self, chosen: Flags) -> Iterator[tuple[list[str], NDArray[np.intp]]]:
        """Yield the chosen offsets' positions, by the groups that have had them."""
        (rows,) = np.nonzero(chosen)
        if not len(rows):
            return
        if not self._had:
            yield [], rows
            return
        table = np.packbits(np.array(self._had)[:, rows], axis=0).T
        _, which = np.unique(table, axis=0, return_inverse=True)
        which = which.reshape(-1)
        for one in range(int(which.max()) + 1):
            mine = rows[which == one]
            yield [g for g, had in zip(self._groups, self._had, strict=True) if had[mine[0]]], mine
