"""Settlement of deliveries: acks, nacks and extensions of consumers become entries of the log.

Acks that arrive while one is being committed gather, and go as one command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery import retries
from tarry.node.delivery.batch import Read
from tarry.node.delivery.feed import Feed
from tarry.node.delivery.in_flight import Batch
from tarry.node.delivery.offset_pieces import PIECE_BLOCKS, cut, part_of
from tarry.node.delivery.retries import BY_BACK_OFF, Delay
from tarry.node.edge.grpc_status import UNKNOWN_OUTCOME
from tarry.node.repair.record_reads import RecordsNotCached
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import RetryReason
from tarry.replication.state_machine.event_details import of_ids, settled
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal

if TYPE_CHECKING:
    from tarry.node.delivery.context import Context

ACK_OFFSETS_MAX: Final = 4_096
"""In one command, however many are acknowledged at once: the log bounds a command's bytes."""
COMMIT_OFFSETS_MAX: Final = 8 * ACK_OFFSETS_MAX
"""Acknowledged by a queue's commands under way; a request beyond goes with the next."""
ACK_COPIES_MAX: Final = 2_048
"""The same of a retry queue: the ledger has each copy read."""
COPY_BLOCKS_MAX: Final = PIECE_BLOCKS // 4
"""Blocks of a retry queue that a command names: applying reads each twice, besides the copies."""
ANSWERS_PIECE: Final = 100
"""Acks answered in one turn of the event loop: some 0.1 ms each, with what their calls do then."""
RETRIES_MAX: Final = 512
"""In one command: its copies are made in one turn of the event loop."""

Offsets: TypeAlias = NDArray[np.uint64]
Stale: TypeAlias = "asyncio.Future[Offsets]"


@dataclass(frozen=True, slots=True)
class _WaitingAck:
    own: Offsets
    stale: Offsets
    answer: Stale


class Settlement:
    """Acks, nacks and extensions of one group."""

    def __init__(
        self,
        context: Context,
        group: str,
        feeds: Mapping[int, Feed],
        pump: Callable[[], None],
        leases_changed: Callable[[str], None],
    ) -> None:
        self._context = context
        self._group = group
        self._feeds = feeds
        self._pump = pump  # what is settled may let others out
        self._leases_changed = leases_changed
        self._acks: dict[Feed, list[_WaitingAck]] = {}
        self._committing = False
        self.passing = 0  # offsets being passed over, not committed
        self.ended = False  # nothing more is delivered
        self._waiting: dict[asyncio.Future[None], None] = {}  # calls that wait for an answer; done: over

    @property
    def busy(self) -> bool:
        """True while a caller waits for an answer, or an acknowledgement for its commit."""
        return self._committing or self.passing > 0

    def ack(self, consumer: str, queue: int, offsets: Offsets) -> Stale | Refusal:
        """Acknowledge: once it is committed, the answer is the offsets that were not the consumer's."""
        feed = self._feeds.get(queue)
        if feed is None:
            return self._unknown(queue)
        own = feed.take_back(consumer, offsets)
        self._leases_changed(consumer)
        waiting = _WaitingAck(offsets[own], offsets[~own], asyncio.get_running_loop().create_future())
        self._acks.setdefault(feed, []).append(waiting)
        if not self._committing:
            self._committing = True
            self._context.spawn(self._commit_acks())
        return waiting.answer

    def nack(
        self, consumer: str, queue: int, offsets: Offsets, delay: Delay, no_more: bool = False
    ) -> Stale | Refusal:
        """Send messages round again after a delay; answer as ``ack``.

        With ``no_more`` they are dead letters at once.
        """
        feed = self._feeds.get(queue)
        if feed is None:
            return self._unknown(queue)
        own = feed.take_back(consumer, offsets)
        self._leases_changed(consumer)
        answer: Stale = asyncio.get_running_loop().create_future()
        work = self._nack(consumer, feed, offsets[own], delay, no_more, answer, offsets[~own])
        self._context.spawn(work)
        return answer

    def extend(
        self, consumer: str, queue: int, offsets: Offsets, until_ms: int
    ) -> tuple[Batch | None, Offsets] | Refusal:
        """Return the renewed lease of what is the consumer's, and the offsets that are not."""
        feed = self._feeds.get(queue)
        if feed is None:
            return self._unknown(queue)
        self._leases_changed(consumer)
        return feed.extend(consumer, offsets, until_ms)

    def pass_over(self, feed: Feed, offsets: Offsets) -> None:
        """Acknowledge for the group what its filter leaves out."""
        self.passing += len(offsets)
        self._context.spawn(self._pass_over(feed.queue, offsets))

    async def until_end(self, pending: Stale) -> Offsets | Refusal:
        """Return what settling answers, or why there will be no answer: the leadership is over."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.ended:
            self._waiting[over] = None
            try:
                await asyncio.wait((pending, over), return_when=asyncio.FIRST_COMPLETED)
            finally:
                del self._waiting[over]
        return pending.result() if pending.done() else UNKNOWN_OUTCOME

    def ends(self) -> list[Callable[[], None]]:
        """Return for each call in ``until_end`` what lets it go on without an answer."""
        return [partial(_end_wait, over) for over in self._waiting]

    async def _pass_over(self, queue: ReadyQueue, offsets: Offsets) -> None:
        offsets, lanes = np.sort(offsets), set[int]()
        for part in cut(offsets, len(offsets)) if queue.group else ():  # what their lanes waited for
            units = await self._context.pieces.part(part_of(len(part)), partial(queue.at, part))
            lanes.update(units["lane"].tolist())
        await self._acknowledge(queue.queue, offsets)
        self.passing -= len(offsets)
        opened = lanes - {0}
        self._feeds[queue.queue].lanes.open(opened)
        if opened or any(feed.to_look() for feed in self._feeds.values()):
            self._pump()

    async def _acknowledge(self, queue: int, offsets: Offsets) -> Offsets:
        """Commit that the group is done with the offsets, ascending; return which it had been before."""
        of, stale = self._context.machine.queues[queue], [offsets[:0]]
        if not of.group:
            parts = cut(offsets, ACK_OFFSETS_MAX)
            stale += await asyncio.gather(*(self._acknowledged(queue, part) for part in parts))
            return np.concatenate(stale)
        for part in cut(offsets, ACK_COPIES_MAX, COPY_BLOCKS_MAX):
            left = part
            while len(left):
                count = _readable(of, left)
                stale.append(await self._acknowledged(queue, left[:count]))
                left = left[count:]
        return np.concatenate(stale)

    async def _acknowledged(self, queue: int, offsets: Offsets) -> Offsets:
        outcome = await self._context.propose(
            log_pb.AckCommand(
                group=self._group,
                queue=queue,
                offset=offsets.astype("<u8").tobytes(),
                now_ms=self._context.time.now_ms(),
            )
        )
        if isinstance(outcome, Refusal):  # the group is gone
            return offsets
        stale: Offsets = outcome.stale
        return stale

    async def retry(
        self,
        feed: Feed,
        offsets: Offsets,
        reason: RetryReason,
        delay: Delay = BY_BACK_OFF,
        no_more: bool = False,
    ) -> None:
        """Put copies of the deliveries into the wheel; of those with a damaged record, once it is mended."""
        blocks_max = COPY_BLOCKS_MAX if feed.queue.group else PIECE_BLOCKS
        while len(offsets) and not feed.queue.deleted:
            part, do = next(cut(offsets, RETRIES_MAX, blocks_max)), self._context.pieces.part
            copies = None
            sized = await do(part_of(len(part), COPY_BLOCKS_MAX), partial(self._sized, feed, part))
            if sized is not None:
                units, share = sized
                work = partial(self._copies, feed, part[: len(units)], units, reason, delay, no_more)
                try:
                    copies = await do(share, partial(work, self._context.damage.reads.cached))
                except RecordsNotCached as error:
                    await self._context.damage.reads.ahead(error.hour, error.global_index)
                    if not self._has(feed):
                        return
                    copies = await do(share, partial(work, self._context.machine.wheel.read))
            if not self._has(feed):
                return
            if copies is None:
                gone = offsets < np.uint64(feed.queue.first)
                self._leave(feed, offsets[gone])
                offsets = offsets[~gone]
                continue
            whole, commands = copies
            for command in commands:
                if not self._has(feed):
                    return
                await self._context.propose(command)
            done, offsets = offsets[: len(whole)], offsets[len(whole) :]
            self._leave(feed, done[whole])
            if not whole.all():
                self._context.spawn(self._retry_mended(feed, done[~whole], reason, delay, no_more))

    def _has(self, feed: Feed) -> bool:
        """Return whether a feed is still the group's: a move makes another, which delivers all again.

        Of a group that has ended, as for it was deleted, another of its name may be there.
        """
        return not self.ended and feed in self._feeds.values()

    def _sized(self, feed: Feed, offsets: Offsets) -> tuple[NDArray[np.void], float] | None:
        """Return the units of as many as one turn reads, and which part of one their records take.

        None where some have been trimmed meanwhile: their hours may be gone.
        """
        if int(offsets.min()) < feed.queue.first:
            return None
        bytes_max = self._context.config.limits.retries_bytes_max
        units = feed.queue.at(offsets)
        units = units[: retries.within_hours(units["hour"])]
        sizes = self._context.machine.wheel.units(units["hour"], units["global_index"])["size"]
        count = retries.fitting(sizes, bytes_max)
        return units[:count], max(count / RETRIES_MAX, int(sizes[:count].sum()) / bytes_max)

    def _copies(
        self,
        feed: Feed,
        offsets: Offsets,
        units: NDArray[np.void],
        reason: RetryReason,
        delay: Delay,
        no_more: bool,
        read: Read,
    ) -> tuple[NDArray[np.bool_], list[log_pb.RetryCommand]] | None:
        """Return which records are whole, and the commands that retry these.

        None where some have been trimmed meanwhile: their hours may be gone. Raises RecordsNotCached.
        """
        if int(offsets.min()) < feed.queue.first:
            return None
        wheel, units = self._context.machine.wheel, units.copy()
        records = read(units["hour"], units["global_index"])
        whole = np.array([record is not None for record in records], dtype=np.bool_)
        if not feed.queue.group:  # copies name their messages
            units["hour"], units["global_index"] = wheel.ids_of(units["hour"], units["global_index"])
        commands = retries.commands(
            self._context.config.shard,
            feed.queue,
            self._group,
            offsets[whole],
            units[whole],
            [record for record in records if record is not None],
            reason,
            delay,
            self._context.time.latest_ms(),
            self._context.policy(feed.queue.topic, self._group),
            no_more,
        )
        return whole, commands

    async def _retry_mended(
        self, feed: Feed, offsets: Offsets, reason: RetryReason, delay: Delay, no_more: bool
    ) -> None:
        damage, units = self._context.damage, feed.queue.at(offsets)
        damage.report(units["hour"], units["global_index"])
        while len(offsets):
            mended = await damage.mended(units["hour"], units["global_index"])
            if not self._has(feed):
                return  # the group has been moved: it begins again with all that is not acknowledged
            if mended.any():
                await self.retry(feed, offsets[mended], reason, delay, no_more)
            offsets, units = offsets[~mended], units[~mended]

    async def _commit_acks(self) -> None:
        await asyncio.sleep(0)
        while self._acks:
            waiting, self._acks = self._acks, {}
            for feed, acks in waiting.items():
                if later := _beyond(acks, COMMIT_OFFSETS_MAX):
                    self._acks[feed] = later + self._acks.get(feed, [])
                offsets = np.sort(np.concatenate([ack.own for ack in acks]))
                stale = offsets[:0]
                if not self._has(feed):
                    stale = offsets  # the group was moved or deleted meanwhile: a move delivers them again
                elif len(offsets):
                    stale = await self._acknowledge(feed.queue.queue, offsets)
                    self._leave(feed, offsets)
                for position, ack in enumerate(acks, start=1):
                    late = np.intersect1d(ack.own, stale) if len(stale) else stale
                    _settle(ack.answer, np.concatenate([ack.stale, late]))
                    if not position % ANSWERS_PIECE:
                        await asyncio.sleep(0)
        self._committing = False

    async def _nack(
        self,
        consumer: str,
        feed: Feed,
        own: Offsets,
        delay: Delay,
        no_more: bool,
        answer: Stale,
        stale: Offsets,
    ) -> None:
        if len(own):
            self._context.traffic.nacked(feed.queue.topic, self._group, len(own))
            await self._record_nacks(consumer, feed.queue, own)
            await self.retry(feed, own, RetryReason.RETRY_REASON_NACKED, delay, no_more)
        _settle(answer, stale)

    async def _record_nacks(self, consumer: str, queue: ReadyQueue, offsets: Offsets) -> None:
        machine, ledger = self._context.machine, self._context.ledger
        where = (machine.wheel, machine.queues, queue.queue, self._group)
        now_ms = self._context.time.now_ms()

        def told() -> Event | None:
            if int(offsets.min()) < queue.first:
                return None
            event = settled(Kind.NACKED, *where, offsets[: _readable(queue, offsets)], now_ms)
            return of_ids(machine.wheel, machine.queues, [event])[0]

        while ledger.enabled and len(offsets) and not queue.deleted:
            event = await self._context.pieces.part(part_of(len(offsets), COPY_BLOCKS_MAX), told)
            if event is None:  # some have been trimmed meanwhile
                offsets = offsets[offsets >= np.uint64(queue.first)]
                continue
            ledger.nacked(event, consumer, machine.queues)
            offsets = offsets[event.n :]

    def _leave(self, feed: Feed, offsets: Offsets) -> None:
        if feed.lanes.leave(feed.queue.queue, offsets):
            self._pump()

    def _unknown(self, queue: int) -> Refusal:
        return Refusal(Reason.QUEUE_UNKNOWN, f"queue {queue} is none of group {self._group!r}'s")


def _readable(queue: ReadyQueue, offsets: Offsets) -> int:
    """Return of how many of the first offsets one turn may tell: copies are read for it."""
    if not queue.group or queue.deleted:
        return len(offsets)
    try:
        return retries.within_hours(queue.at(offsets)["hour"])
    except UnitsDamaged:  # of them nothing is read
        return len(offsets)


def _end_wait(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _settle(answer: Stale, stale: Offsets) -> None:
    if not answer.done():
        answer.set_result(stale)


def _beyond(acks: list[_WaitingAck], most: int) -> list[_WaitingAck]:
    """Take out, and return, the acks behind the first that fill ``most``."""
    count = 0
    for position, ack in enumerate(acks):
        count += len(ack.own)
        if count >= most:
            later = acks[position + 1 :]
            del acks[position + 1 :]
            return later
    return []
