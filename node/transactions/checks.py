"""Checks of transactions, on the leader: those that have come due are handed over, and asked.

    queue of checks ─► half messages whose check is due ─► CheckCommand ─► applied ─► a producer is asked
                                                            └─ each goes back into the wheel, due at its next
                                                               check; after the last one to the dead letters

A check is asked only once the next one is in the log, so that no failover in between loses a transaction: the
next leader finds in the queue what was not handed over, and in the wheel what was. So many that come due
together are handed over a second at most, and those whose producers are connected and have no room wait in
the queue until they have some, for their group's first pause at most: a check counts, heard or not. All wait
while the leader lacks disk, for each writes its record anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import CheckTimes, TransactionSettings
from tarry.node.transactions.producers import CheckStreams
from tarry.node.transactions.told import told
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Checked
from tarry.replication.state_machine.queues import CHECKED, CHECKS
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.replication.state_machine.transaction_table import OPEN, Row
from tarry.wheel.state import UnknownMessage

log = structlog.get_logger()

CHECKS_MAX: Final = 50
"""Handed over with one command: some 8 ms to apply."""
OFFSETS_MAX: Final = 1_000
"""Looked at in one turn of the event loop."""
OFFSETS_LOOK: Final = 10_000
"""Looked at one after another, before others have a while."""
LOOK_MS: Final = 100
"""Until the queue is looked at again where some of it waits for producers, or has not been looked at."""
BYTES_MAX: Final = 1 << 20
"""Of the records of one command, a lone one aside."""
DISK_S: Final = 10.0
"""Until there may be room on the disk again."""
BURST_S: Final = 0.1
"""Of checks at their greatest rate: so long after a pause they go on at once."""
DAMAGED_MS: Final = 60_000
"""Until a record is read again that no node in reach has whole."""


@dataclass(slots=True)
class CheckCounts:
    """Numbers of the checks that this node handed over as the leader, since its start."""

    asked: int = 0
    unheard: int = 0
    """No producer of the group was connected, or had room."""
    unresolved: int = 0
    """Transactions rolled back after their last check."""


class Due(NamedTuple):
    """Checks that have come due, and what else is in the queue's next offsets."""

    offsets: NDArray[np.uint64]
    """Done with once the command is applied: of the rows, and of transactions that have moved on."""
    places: NDArray[np.uint64]
    """Of their half messages: hour << 32 | global index."""
    rows: list[Row]
    wait_ms: int | None
    """Until the next check of these offsets is due; None: none is."""


class Checks:
    """Runs for as long as this node may serve as leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: TransactionSettings,
        ended_max: int,
        propose: Callable[[log_pb.CheckCommand], Awaitable[Checked]],
        read: Callable[[NDArray[np.uint32], NDArray[np.uint32]], Awaitable[list[bytes | None]]],
        streams: CheckStreams,
        counts: CheckCounts,
        shard: int,
        has_disk: Callable[[], bool],
    ) -> None:
        """Take ``read``: of records at places; None where one is damaged. Raises UnknownMessage.

        ``has_disk``: whether there is room for what clients write.
        """
        self._machine, self._time = machine, time
        self._settings, self._ended_max = settings, ended_max
        self._propose, self._read, self._streams, self._counts = propose, read, streams, counts
        self._shard, self._has_disk = shard, has_disk
        self._woken = asyncio.Event()
        self._sleeps_until_ms: int | None = None
        self._damaged: dict[int, int] = {}  # number of a transaction: when to read its record again
        self._at = 0
        """Offset from which on to look where all of the queue's next offsets have to stay."""
        self._paced_s = 0.0
        """By the loop's time, when all that was handed over would have been at the greatest rate."""

    def look(self, now_ms: int) -> None:
        """Wake the loop if cluster time has run ahead of what it sleeps by: a wrong clock was put right."""
        if self._sleeps_until_ms is not None and now_ms >= self._sleeps_until_ms:
            self._woken.set()

    def released(self, queues: Iterable[int]) -> None:
        """Take note of queues to which something was released."""
        known = self._queue()
        if known is not None and known.queue in queues:
            self._woken.set()

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown, UnitsDamaged: the next leader goes on."""
        while True:
            self._woken.clear()
            now_ms = self._time.now_ms()
            due = await self._due(now_ms)
            if due.rows and not self._has_disk():
                log.warning("checks of transactions wait for disk space")
                await asyncio.sleep(DISK_S)
                continue
            if len(due.offsets):
                await self._hand_over(due)
                await asyncio.sleep(self._pause_s(len(due.rows)))
                continue
            self._sleeps_until_ms = None if due.wait_ms is None else now_ms + due.wait_ms
            try:
                async with asyncio.timeout(None if due.wait_ms is None else due.wait_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _queue(self) -> ReadyQueue | None:
        return self._machine.queues.find(CHECKS, CHECKED)

    def _pause_s(self, count: int) -> float:
        """Return how long others come first, so many checks having been handed over."""
        now_s = asyncio.get_running_loop().time()
        self._paced_s = max(self._paced_s, now_s - BURST_S) + count / self._settings.checks_per_s_max
        return max(0.0, self._paced_s - now_s)

    async def _due(self, now_ms: int) -> Due:
        """Return what of the queue's next offsets is due, and of transactions that have moved on.

        Where all of the first have to stay, as damaged ones do, it looks further on: each time at some.
        """
        queue, none = self._queue(), np.empty(0, np.uint64)
        if queue is None:
            return Due(none, none, [], None)
        done = self._machine.queues.acknowledged[CHECKED, queue.queue]
        first_end = done.floor + OFFSETS_MAX
        due = self._of(queue, done.missing(done.floor, min(first_end, queue.units)), now_ms)
        if len(due.offsets) or queue.units <= first_end:
            return due
        further = done.missing(first_end, queue.units)
        start, waits = int(np.searchsorted(further, np.uint64(self._at))), [due.wait_ms]
        around = np.concatenate((further[start:], further[:start]))
        for at in range(0, min(OFFSETS_LOOK, len(around)), OFFSETS_MAX):
            await asyncio.sleep(0)
            self._at = int(around[at])
            due = self._of(queue, np.sort(around[at : at + OFFSETS_MAX]), now_ms)
            waits.append(due.wait_ms)
            if len(due.offsets):
                return due
        self._at = int(around[min(OFFSETS_LOOK, len(around)) - 1]) + 1 if len(around) else 0
        if len(around) > OFFSETS_LOOK:
            waits.append(LOOK_MS)
        return due._replace(wait_ms=min((ms for ms in waits if ms is not None), default=None))

    def _of(self, queue: ReadyQueue, offsets: NDArray[np.uint64], now_ms: int) -> Due:
        units = queue.at(offsets) if len(offsets) else queue.read(0, 0)
        chosen: list[int] = []
        rows: list[Row] = []
        room: dict[str, int | None] = {}  # by producer group: checks that may be asked beside those chosen
        size_bytes, wait_ms = 0, None
        places = zip(units["hour"].tolist(), units["global_index"].tolist(), strict=True)
        for at, ((hour, index), check_ms) in enumerate(zip(places, units["due_ms"].tolist(), strict=True)):
            row = self._machine.transactions.at(hour, index)
            if row is None:
                chosen.append(at)
                continue
            due_ms = max(check_ms, self._damaged.get(row.number, 0))
            if due_ms > now_ms:
                wait_ms = min(due_ms - now_ms, wait_ms or due_ms)
                continue
            group = row.producer_group
            if group not in room:
                room[group] = self._streams.room(group)
            left = room[group]
            if left == 0 and now_ms < due_ms + self._settings.of(group).check_pauses_ms[0]:
                wait_ms = min(LOOK_MS, wait_ms or LOOK_MS)
                continue
            size_bytes += row.state().record_bytes
            if rows and (size_bytes > BYTES_MAX or len(rows) == CHECKS_MAX):
                break
            room[group] = left - 1 if left else left
            chosen.append(at)
            rows.append(row)
        where = units["hour"].astype(np.uint64) << np.uint64(32) | units["global_index"]
        return Due(offsets[chosen], where[chosen], rows, wait_ms)

    async def _hand_over(self, due: Due) -> None:
        """Have the next checks in the log, then ask."""
        records = await self._records(due.rows)
        now_ms = self._time.now_ms()
        planned: list[log_pb.PlannedCheck] = []
        asked: list[bytes] = []
        kept: list[int] = []  # places of what is damaged: it stays in the queue
        for row, record in zip(due.rows, records, strict=True):
            state = row.state()
            if record is None:
                self._damaged[row.number] = now_ms + DAMAGED_MS
                kept.append(row.place)
                log.error("record of a half message is damaged", transaction=row.name, number=row.number)
                continue
            self._damaged.pop(row.number, None)
            planned.append(plan(state, record, self._settings.of(state.producer_group), now_ms))
            asked.append(record)
        left = ~np.isin(due.places, np.array(kept, np.uint64))
        places = due.places[left]
        command = log_pb.CheckCommand(
            offset=due.offsets[left].astype("<u8").tobytes(),
            hour=(places >> np.uint64(32)).astype("<u4").tobytes(),
            global_index=places.astype("<u4").tobytes(),
            checks=planned,
            ended_max=self._ended_max,
            now_ms=now_ms,
        )
        self._damaged = {
            number: read_ms
            for number, read_ms in self._damaged.items()
            if self._machine.transactions.numbered(number) is not None
        }
        if not command.offset:
            return
        done = await self._propose(command)
        for state_then, record in zip(done.states, asked, strict=True):
            self._ask(state_then, record)

    async def _records(self, rows: Sequence[Row]) -> list[bytes | None]:
        if not rows:
            return []
        hour = np.array([row.place >> 32 for row in rows], np.uint32)
        index = np.array([row.place & 0xFFFFFFFF for row in rows], np.uint32)
        try:
            return await self._read(hour, index)
        except UnknownMessage:  # one was ended meanwhile, and its hour deleted
            return [None] * len(rows)

    def _ask(self, state: log_pb.TransactionCheckpoint | None, record: bytes) -> None:
        if state is None:  # it was ended before the command
            return
        if state.state != OPEN:
            self._counts.unresolved += 1
            log.warning(
                "transaction unresolved",
                transaction=state.transaction,
                producer_group=state.producer_group,
                topic=state.topic,
                checks=state.checks,
            )
            return
        check = pb.Check(transaction=told(state, self._shard), record=Record.FromString(record))
        response = pb.ChecksResponse(check=check).SerializeToString()
        if self._streams.ask(state.producer_group, state.topic, response):
            self._counts.asked += 1
        else:
            self._counts.unheard += 1


def plan(
    state: log_pb.TransactionCheckpoint, record: bytes, times: CheckTimes, now_ms: int
) -> log_pb.PlannedCheck:
    """Return what becomes of a half message whose check has come due: asked, and another, or the end."""
    planned = log_pb.PlannedCheck(
        number=state.number, place_hour=state.place_hour, place_index=state.place_index, record=record
    )
    if state.checks >= times.checks_max:
        planned.record = letter(state, record)
    else:
        pauses = times.check_pauses_ms
        planned.due_ms = now_ms + pauses[min(state.checks, len(pauses) - 1)]
    return planned


def letter(state: log_pb.TransactionCheckpoint, record: bytes) -> bytes:
    """Return the record that goes to the dead letters: the message, with its transaction in properties."""
    dead = Record.FromString(record)
    dead.properties["tarry.origin_topic"] = state.topic
    dead.properties["tarry.producer_group"] = state.producer_group
    dead.properties["tarry.transaction"] = state.transaction
    dead.properties["tarry.checks"] = str(state.checks)
    dead.properties["tarry.reason"] = "UNRESOLVED"
    dead.born_ms, dead.stored_ms = state.born_ms, state.prepared_ms
    return dead.SerializeToString(deterministic=True)
