"""The ledger: what this node did, row by row, on its way to Parquet. See proto/ledger/schema.py.

    applied / delivered ──► Buffer ──every flush_ms, in a thread──► open segment ──► Parquet + manifest

Nothing waits for it and nothing fails with it: what the disk does not take is dropped, counted, told in
status and log, and stands in the ledger as a gap as soon as that can be written again. A checkpoint takes
the rows up to it along, so that a restart, which replays from there, tells all that is missing again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from tarry.node.config import NodeConfig
from tarry.node.ledger import went_alone
from tarry.node.ledger.buffer import Buffer
from tarry.node.ledger.closer import Closer
from tarry.node.ledger.went_alone import WentAlone
from tarry.node.ledger.writer import DAY_MS, Disk, Left
from tarry.proto.ledger.chunk import Chunk
from tarry.proto.ledger.schema import Kind, Missing, delay_detail, gap_detail
from tarry.proto.tarry_operator_pb2 import LedgerStatus
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.queues import Queues

log = structlog.get_logger()

RETRY_S: Final = 1.0
CLOCK_JUMP_MS: Final = 50
"""A wall clock that moves by more against the monotonic one, from one heartbeat to the next, has jumped."""


class DeliveredBatch(Protocol):
    """Messages that one consumer was sent together; columns of shape (n,)."""

    @property
    def units(self) -> NDArray[np.void]:
        """Their units: due_ms, offset, maybe_duplicate."""

    @property
    def hour(self) -> NDArray[np.uint32]:
        """Hours of the first messages, also for retries."""

    @property
    def global_index(self) -> NDArray[np.uint32]:
        """Their indices in those hours."""

    @property
    def attempt(self) -> NDArray[np.uint32]:
        """Numbers of the deliveries, from 1."""

    @property
    def order_key(self) -> NDArray[np.uint32] | None:
        """Hashes of their ordering keys, 0 where a message has none; None for retries."""


class Ledger:
    """Takes rows in on the event loop; ``run`` writes them."""

    def __init__(
        self,
        config: NodeConfig,
        applied: int,
        now_ms: Callable[[], int],
        run_blocking: RunBlocking = in_thread,
        closer: Closer | None = None,
        alone: WentAlone | None = None,
    ) -> None:
        """Take ``applied``, the index from which this start goes on; without ``closer`` close here.

        ``alone``: how this node went on alone, of which no row tells so far.
        """
        self.enabled = config.ledger.enabled
        self.folder = config.ledger.folder or config.data / "ledger"
        self.settings = config.ledger
        self._shard = config.shard
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._first_index = applied
        self._term = 0
        self._buffer = Buffer(config.ledger.buffer_bytes_max, applied)
        self.disk = Disk(self.folder, config.node, f"{now_ms():x}", config.ledger, closer or Closer())
        self._something = asyncio.Event()
        self._writing = asyncio.Lock()
        self._closing: asyncio.Future[bool] | None = None
        self._failure = ""
        self._data = config.data
        self._alone, self._told_alone = alone, False
        self._ahead_ms: float | None = None

    # -- what happens --------------------------------------------------------------------

    def applied(self, index: int, term: int, events: Sequence[Event], queues: Queues) -> None:
        """Take in the events of an applied entry."""
        if not self.enabled:
            return
        buffer, before = self._buffer, self._buffer.applied
        self._term = term
        if index > before + 1:
            buffer.gap(before, index - 1, "SNAPSHOT", self._now_ms(), term)
        position = 0
        for event in events:
            buffer.add(self._chunk(event, index, term, position, queues))
            position += event.n
        buffer.applied = index
        if buffer:
            self._something.set()

    def delivered(
        self, batch: DeliveredBatch, topic: str, group: str, consumer: str, term: int, delay_ms: int = 0
    ) -> None:
        """Take in a delivered batch; ``delay_ms``: of the group, by which it was due later."""
        units = batch.units
        if not self.enabled or not len(units):
            return
        self._add(
            Chunk(
                len(units),
                Kind.DELIVERED,
                self._now_ms(),
                self._buffer.applied,
                term,
                self._buffer.number(len(units)),
                self._shard,
                topic,
                group,
                batch.hour,
                batch.global_index,
                units["due_ms"] + delay_ms,
                units["offset"],
                batch.attempt,
                units["maybe_duplicate"] != 0,
                consumer,
                batch.order_key,
                delay_detail(delay_ms),
            )
        )

    def nacked(self, event: Event, consumer: str, queues: Queues) -> None:
        """Take in messages that a consumer gave back."""
        if self.enabled and event.n:
            position = self._buffer.number(event.n)
            chunk = self._chunk(event, self._buffer.applied, self._term, position, queues)
            self._add(chunk._replace(consumer=consumer))

    def leadership(self, detail: str, term: int) -> None:
        """Note that this node leads, follows again, or transfers leadership."""
        if self.enabled:
            self._buffer.add_about_node(Kind.LEADERSHIP, self._now_ms(), term, detail)
            self._something.set()

    def watch_clock(self, wall_ms: float, monotonic_ms: float) -> None:
        """Look whether the node's own clock has jumped."""
        before, self._ahead_ms = self._ahead_ms, wall_ms - monotonic_ms
        if self.enabled and before is not None and abs(self._ahead_ms - before) > CLOCK_JUMP_MS:
            jump_ms = round(self._ahead_ms - before)
            log.warning("this node's clock has jumped", jump_ms=jump_ms)
            self._buffer.add_about_node(Kind.CLOCK_JUMP, self._now_ms(), self._term, str(jump_ms))
            self._something.set()

    def status(self) -> LedgerStatus:
        """Return how it stands."""
        disk = self.disk
        return LedgerStatus(
            enabled=self.enabled,
            segments=len(disk.segments),
            bytes=disk.bytes,
            dropped=self._buffer.dropped,
            covered_index=disk.open.covered if disk.open else 0,
            failure=self._failure,
            last_segment=disk.segments[-1][1]["segment"] if disk.segments else 0,
        )

    # -- writing -------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        if not self.enabled:
            await asyncio.Event().wait()
        while True:
            await self._wait()
            await asyncio.sleep(RETRY_S if self._failure else self.settings.flush_ms / 1000)
            await self.write()

    async def write(self, *, sync: bool = False) -> None:
        """Write what there is; ``sync``: and make it last, with all indices up to now told of."""
        if not self.enabled:
            return
        async with self._writing:
            self._something.clear()
            if self.disk.open is None and not await self._begin():
                self._buffer.put_back([])
                self._something.set()
                return
            if self._alone and not self._told_alone:
                self._tell_alone(self._alone)
            taken, tells = self._buffer.take(), self._alone is not None and self._told_alone
            write = partial(self.disk.write, taken, self._now_ms(), sync=sync or tells)
            try:
                written = await self._try(write)
            except asyncio.CancelledError:
                self._buffer.put_back(taken)  # but for what the thread has written
                raise
            if not written:
                self._buffer.put_back(taken)
                self._something.set()
                return
            if tells and await self._try(partial(went_alone.forget, self._data)):
                self._alone = None
            gap = self._buffer.written(self._now_ms(), self._term)
            if gap is not None:
                log.warning("rows are missing in the ledger", gap=gap, dropped=self._buffer.dropped)
                self._something.set()
            self.disk.rotate(self._now_ms())
            if self.disk.sealed and self._closing is None:
                work = partial(self.disk.close_sealed, self._now_ms())
                self._closing = asyncio.ensure_future(self._try(work))
                self._closing.add_done_callback(self._closed)

    async def close(self) -> None:
        """Write everything and close the segment."""
        if self.enabled:
            self.disk.closer.hurry()
            await self.write()
            await self.write(sync=True)  # a gap that the first has found
            await self.until_closed()
            if self.disk.open is not None:
                await self._try(partial(self.disk.end, self._now_ms()))

    async def until_closed(self) -> None:
        """Return when no full segment is being closed."""
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _begin(self) -> bool:
        found = []
        begin = partial(self.disk.begin, self._now_ms(), self._first_index)
        try:
            if not await self._try(lambda: found.append(begin())):
                return False
        finally:  # also where who waits is cancelled: nobody asks again what was left
            for left in found:
                self._note_left(left)
        return True

    def _note_left(self, left: Left) -> None:
        first = self._first_index
        for path in left.damaged:
            log.warning("a segment of the ledger has a damaged manifest", path=str(path.with_suffix(".json")))
        if left.covered is None and first:
            self._gap(Missing.ALL, 0, first, "BEGUN")
        elif left.covered is not None and left.covered < first:
            self._gap(Missing.ALL, left.covered, first, "UNWRITTEN")
        if left.killed:
            self._gap(Missing.NODE_MADE, left.covered or 0, left.covered or 0, "KILLED")

    def _tell_alone(self, alone: WentAlone) -> None:
        """Add the row of it; once more at the next write, where the buffer has no room for it."""
        dropped = self._buffer.dropped
        self._gap(Missing.ALL, alone.index, alone.index, "RECOVERED_ALONE", alone.at_ms)
        self._told_alone = self._buffer.dropped == dropped

    def _gap(self, missing: Missing, first: int, last: int, why: str, at_ms: int | None = None) -> None:
        detail = gap_detail(missing, first, last, why)
        log.warning("rows are missing in the ledger", gap=detail)
        at_ms = self._now_ms() if at_ms is None else at_ms
        self._buffer.add_about_node(Kind.GAP, at_ms, self._term, detail)

    def _closed(self, closing: asyncio.Future[bool]) -> None:
        self._closing = None
        if not closing.result():
            self._something.set()  # to be tried again

    async def _try(self, work: Callable[[], object]) -> bool:
        """Do disk work in a thread; False where the disk refused.

        Who cancels this waits for the thread: work on the same files that began beside it would spoil both.
        """
        working = asyncio.ensure_future(self._run_blocking(work))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise
        except OSError as error:
            if not self._failure:
                log.error("the ledger cannot be written; delivery goes on", error=str(error))
            self._failure = str(error)
            return False
        if self._failure:
            log.info("the ledger can be written again")
            self._failure = ""
        return True

    async def _wait(self) -> None:
        """Wait until there are rows to write, or the open segment is old enough to be closed."""
        full_at_ms = self.disk.full_at_ms()
        if full_at_ms is None and self.disk.open is not None:
            await self._something.wait()
            return
        wait_ms = max(0, full_at_ms - self._now_ms()) if full_at_ms is not None else 0
        try:
            async with asyncio.timeout(min(wait_ms, DAY_MS) / 1000):
                await self._something.wait()
        except TimeoutError:
            return

    # -- columns -------------------------------------------------------------------------

    def _add(self, chunk: Chunk) -> None:
        self._buffer.add(chunk)
        self._something.set()

    def _chunk(self, event: Event, index: int, term: int, position: int, queues: Queues) -> Chunk:
        queue, group = event.queue, event.group
        topic: str | tuple[np.ndarray[tuple[int], np.dtype[np.intp]], list[str]] | None = event.topic
        if not isinstance(queue, int):
            numbers, which = np.unique(queue, return_inverse=True)
            names = [queues[number].topic for number in numbers.tolist()]
            topic = names[0] if len(names) == 1 else (which, names)
        elif queue >= 0:
            topic, group = queues[queue].topic, group or queues[queue].group or None
        return Chunk(
            event.n,
            event.kind,
            event.at_ms,
            index,
            term,
            position,
            self._shard,
            topic,
            group,
            event.hour,
            event.global_index,
            event.due_ms,
            event.offset,
            event.attempt,
            detail=event.detail,
        )
