"""Retention: what every group is past, and has been kept for long enough, is deleted.

Ready queues are cut at an offset. An hour partition goes whole, once the
release is past it, no offset that is left points into it, and the idempotency
keys of its messages count no more: the leader looks for them there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import structlog

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.defaults import dispatch
from tarry.node.delivery import redrive
from tarry.node.leader.group_moves import GroupMoves
from tarry.node.leader.letter_retention import LetterRetention
from tarry.node.leader.queue_bytes import QueueBytes
from tarry.node.recovery.queue_hours import QueueHours
from tarry.node.repair.record_reads import RecordReads
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication.errors import Overloaded
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.wheel.cached_reads import Pread
from tarry.wheel.state import HOUR_MS

log = structlog.get_logger()

EXPIRED: Final = 8_192
"""Messages of one queue and groups that have not acknowledged them, in one command: some 0.6 ms to tell."""
EXPIRED_COPIES: Final = 512
"""Of a retry queue: the record of each is read for that."""
EXPIRED_ALL: Final = 8 * EXPIRED
"""Of all queues of one command: some 5 ms."""
EXPIRED_GROUP: Final = 256
"""What a group counts for in that, beside its messages: some 20 µs."""
TRIMMED_MAX: Final = 1_024
"""Queues and hours together in one command: to forget one takes a replica some 5 µs."""


class Kept:
    """Offsets that may be dropped, and hours that the others point into; of what has been read only once.

    Units never change, so a block is read again only where the cut has come to lie within it.
    """

    def __init__(
        self,
        machine: Machine,
        retention_ms: int,
        letters: LetterRetention | None = None,
        reads: RecordReads | None = None,
        window_ms: int = 0,
    ) -> None:
        """Take ``retention_ms`` of topics that say nothing else; ``letters``: of dead-letter topics.

        ``reads``: of queues, whose older parts may not be cached; else such as wait for the disk.
        ``window_ms``: for so long behind its end an hour is kept, whatever points into it.
        """
        reads = reads or RecordReads(machine)
        self.bytes = QueueBytes(machine, reads)
        """Of what groups have yet to acknowledge, as last measured."""
        self._machine = machine
        self.retention_ms, self.window_ms = retention_ms, window_ms
        self._letters = letters
        self.reads = reads
        self._hours = QueueHours(reads)

    async def measure(self) -> None:
        """Sum up what has come. Raises UnitsDamaged."""
        for queue in list(self._machine.queues):
            await asyncio.sleep(0)
            bounded = queue.settings.retention_bytes and not queue.group
            await self.bytes.read(queue, queue.first if bounded else self._floor(queue, queue.units))
        self.bytes.forget({queue.queue for queue in self._machine.queues})

    async def plan(self, now_ms: int) -> Iterator[log_pb.TrimCommand]:
        """Return what may be forgotten now: commands to be applied one after another, each made when asked.

        A block is read a turn of the event loop. A queue's new unit points into an hour of which nothing was
        pending only where a message came meanwhile: applying finds more units in the hour, and it stays.
        """
        machine, hours = self._machine, await self._passed(now_ms)
        if self._letters is not None:
            await self._letters.read()
        cuts: dict[int, int] = {}
        hard: dict[int, int] = {}
        needed: set[int] = set()
        for queue in list(machine.queues):
            await asyncio.sleep(0)
            cut, hard[queue.queue] = await self.reads.read_ahead_for(partial(self._cut, queue, now_ms))
            if cut > queue.first:
                cuts[queue.queue] = cut
            async for _ in self._hours.read(queue, cut):
                await asyncio.sleep(0)
            needed.update(self._hours.of(queue.queue))
        there = {queue.queue for queue in machine.queues}
        self._hours.forget(there)
        cuts = {queue: cut for queue, cut in cuts.items() if queue in there}
        for at, (number, cut) in enumerate(cuts.items()):
            if at % TRIMMED_MAX == 0:
                await asyncio.sleep(0)
            if self._floor(machine.queues[number], cut) < cut and cut > hard[number]:
                return iter(())  # a group has gone back meanwhile: next time
        await asyncio.sleep(0)
        gone = {hour: hours[hour] for hour in hours.keys() - needed}
        return self._commands(cuts, gone, now_ms)

    def _commands(
        self, cuts: dict[int, int], gone: dict[int, int], now_ms: int
    ) -> Iterator[log_pb.TrimCommand]:
        last: dict[int, int] = {}
        for portion in self._portions(cuts):
            yield from commands(last, {}, now_ms)
            last = portion
        yield from commands(last, gone, now_ms)

    def _portions(self, cuts: dict[int, int]) -> Iterator[dict[int, int]]:
        """Yield the cuts, some a command: each replica tells in one turn what expires by them."""
        portion, expired = dict[int, int](), 0
        for number, cut in cuts.items():
            for offset, more in self._steps(self._machine.queues[number], cut):
                if number in portion or len(portion) == TRIMMED_MAX or expired + more > EXPIRED_ALL:
                    yield portion
                    portion, expired = {}, 0
                portion[number] = offset
                expired += more
        yield portion

    def _steps(self, queue: ReadyQueue, cut: int) -> Iterator[tuple[int, int]]:
        """Yield offsets up to a cut, which groups may not be past, and what it takes to tell what expires."""
        floor = self._floor(queue, cut)
        if floor >= cut:
            yield cut, 0
            return
        groups = len(self._machine.queues.groups_of(queue.queue))
        most = EXPIRED_COPIES if queue.group else EXPIRED
        step = max(1, most // groups)
        for begin in range(floor, cut, step):
            end = min(begin + step, cut)
            yield end, groups * (EXPIRED_GROUP + (end - begin) * EXPIRED // most)

    async def _passed(self, now_ms: int) -> dict[int, int]:
        """Return how many units there are in each hour behind the window that nothing is pending of."""
        wheel, units = self._machine.wheel, {}
        end_ms = min(self._machine.frontier_ms, now_ms - self.window_ms)
        for at, hour in enumerate(wheel.hours(max(0, end_ms // HOUR_MS))):
            if at % TRIMMED_MAX == 0:
                await asyncio.sleep(0)
            if not wheel.pending_in_hour(hour):
                units[hour] = wheel.units_in_hour(hour)
        return units

    def past(self, command: log_pb.TrimCommand, pread: Pread | None = None) -> bool:
        """Return whether all groups are past a command's cuts, or have to be, by the state as it is now."""
        cuts = zip(
            np.frombuffer(command.queue, dtype="<u4").tolist(),
            np.frombuffer(command.offset, dtype="<u8").tolist(),
            strict=True,
        )
        named = ((self._machine.queues[queue], cut) for queue, cut in cuts)
        return all(
            self._floor(queue, cut) >= cut or cut <= self._hard(queue, command.now_ms, pread)
            for queue, cut in named
        )

    def _floor(self, queue: ReadyQueue, otherwise: int) -> int:
        """Return the offset that all groups of a queue are past; `otherwise` where it has none."""
        queues = self._machine.queues
        groups = (group for group in queues.groups_of(queue.queue) if group != redrive.GROUP)
        return min((queues.acknowledged[group, queue.queue].floor for group in groups), default=otherwise)

    def _cut(self, queue: ReadyQueue, now_ms: int, pread: Pread | None) -> tuple[int, int]:
        """Return the offset below which a queue may be forgotten, and the one below which it must be.

        A retry queue belongs to one group and is kept no longer than it needs it;
        a topic without groups is kept for its retention.
        """
        settings = self._settings(queue)
        hard = self._hard(queue, now_ms, pread)
        if queue.group:
            return max(hard, self._floor(queue, queue.first)), hard
        kept_ms = settings.retention_ms or self._default_ms(queue.topic)
        kept = queue.find_released(now_ms - kept_ms, pread)
        if settings.retention_bytes:
            kept = max(kept, self.bytes.first_within(queue.queue, settings.retention_bytes))
        return max(hard, min(kept, self._floor(queue, queue.units))), hard

    def _default_ms(self, topic: str) -> int:
        of_letters = self._letters.of(topic) if self._letters is not None else None
        return self.retention_ms if of_letters is None else of_letters

    def _hard(self, queue: ReadyQueue, now_ms: int, pread: Pread | None = None) -> int:
        """Return the offset below which a queue must be forgotten, whatever its groups have had."""
        longest_ms = self._settings(queue).retention_max_ms
        if queue.group and self._machine.level < levels.RETRIES_EXPIRE:
            return queue.first
        if not longest_ms:
            return queue.first
        return queue.find_released(now_ms - longest_ms - self._delay_ms(queue), pread)

    def _delay_ms(self, queue: ReadyQueue) -> int:
        """Return the longest delay of a queue's groups: that late a group first has a message to settle."""
        queues = self._machine.queues
        groups = () if queue.group else queues.groups_of(queue.queue)
        return max((queues.delay_ms(queue.topic, group) for group in groups), default=0)

    def _settings(self, queue: ReadyQueue) -> TopicSettings:
        """Return the settings of a queue's topic."""
        of_topic = self._machine.queues.find(queue.topic)
        return of_topic.settings if of_topic else queue.settings


def commands(cuts: dict[int, int], units: dict[int, int], now_ms: int) -> list[log_pb.TrimCommand]:
    """Return the commands that cut queues, then forget hours: what points into those is gone by then."""
    queues, hours = list(cuts), sorted(units)
    planned = []
    for start in range(0, len(queues) + len(hours), TRIMMED_MAX):
        end = start + TRIMMED_MAX
        cut, gone = queues[start:end], hours[max(0, start - len(queues)) : max(0, end - len(queues))]
        planned.append(
            log_pb.TrimCommand(
                queue=np.array(cut, dtype="<u4").tobytes(),
                offset=np.array([cuts[queue] for queue in cut], dtype="<u8").tobytes(),
                hour=np.array(gone, dtype="<u4").tobytes(),
                units=np.array([units[hour] for hour in gone], dtype="<u8").tobytes(),
                now_ms=now_ms,
            )
        )
    return planned


class Retention:
    """Deletes now and then, on the leader, what no group needs any more."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.TrimCommand], Awaitable[Any]],
        on_damage: Callable[[UnitsDamaged], None],
        moves: GroupMoves,
        letters: LetterRetention | None = None,
        reads: RecordReads | None = None,
    ) -> None:
        self._kept = Kept(machine, settings.retention_ms, letters, reads)
        self._machine = machine
        self.bytes = self._kept.bytes
        self._time = time
        self._settings = settings
        self._propose = propose
        self._on_damage = on_damage
        self._moves = moves

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            try:
                times = dispatch(self._machine.queues.defaults, self._settings)
                self._kept.retention_ms = times.retention_ms
                self._kept.window_ms = times.idempotency_window_ms
                await self._kept.measure()
                await self._delete(await self._kept.plan(self._time.now_ms()))
            except UnitsDamaged as damage:  # whatever its units point into is not known: nothing goes
                self._on_damage(damage)

    async def _delete(self, planned: Iterable[log_pb.TrimCommand]) -> None:
        """Propose what is planned, for as long as it holds."""
        for command in planned:
            past = await self._kept.reads.read_ahead_for(partial(self._kept.past, command))
            if self._moves.under_way or not past:
                return  # a group is made or has gone back meanwhile: next time
            try:
                await self._propose(command)
            except Overloaded:
                return
            log.info("trimmed", queues=len(command.queue) // 4, hours=len(command.hour) // 4)
