"""Search for the messages that have used idempotency keys, at the leader.

    keys ─► hashes ─► the key index: places ─► their records decide ─► those whose keys still count

A key counts while its message is pending, and until the window has passed behind its release.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import NodeConfig
from tarry.node.defaults import dispatch
from tarry.node.keys.keeper import KeyKeeper
from tarry.node.keys.search import PLACE_NS, TURN_BYTES, TURN_NS, incomplete, seen
from tarry.node.repair.records import Damage
from tarry.proto.idempotency import scheduled_digest
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.keys import IDEMPOTENCY_PREFIX, hashes, of_topic
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.cached_reads import Pread
from tarry.wheel.columns import portions
from tarry.wheel.keys.run import Words, hours_of, indices_of
from tarry.wheel.state import HOUR_MS, Flags, MessageState, Numbers, UnknownMessage

SINCE_KEPT_MS: Final = 1_000
"""For how long it is kept from which due time on keys of a queue count: they count so much longer."""
QUEUES_KEPT: Final = 4_096
"""Of which it is kept."""
TURN_QUEUES: Final = 16
"""Of which it is found in one turn of the event loop, at some 0.2 ms."""

DIGEST_NS: Final = 12_000
"""CPU time that a place costs beside that of a search: a record is parsed, and its digest worked out."""
ATTEMPTS_MAX: Final = 8
"""How often is looked again because messages with the keys are moved at the same time."""
_NEVER: Final = (1 << 63) - 1
_BUSY: Final = Refusal(
    Reason.OVERLOADED, "messages with these keys are moved all the time: try again later", retry_ms=100
)

Name = tuple[str, bytes]
"""Topic and idempotency key."""


class Used(NamedTuple):
    """A message that has an idempotency key, as it is now."""

    hour: int
    global_index: int
    due_ms: int
    digest: bytes
    """Of what was scheduled."""


class _Search:
    """Search for some keys, and what came of it."""

    def __init__(
        self, names: Collection[Name], topics: Mapping[int, str], since_ms: Mapping[int, int]
    ) -> None:
        """Take topics by their queues, and from which due time on the keys of a queue's messages count."""
        self._names, self._topics, self._since_ms = names, topics, since_ms
        self.used: dict[Name, Used] = {}
        self.displaced = False
        """A message has left the place that a row has; a row of its new place may have come since."""

    def counts(self, queue: Numbers, due_ms: NDArray[np.int64], pending: Flags) -> Flags:
        """Flag the messages, shape (n,), whose keys count."""
        since = np.array([self._since_ms.get(one, _NEVER) for one in queue.tolist()], np.int64)
        flags: Flags = (since != _NEVER) & (pending | (due_ms >= since))
        return flags

    def add(self, queue: int, hour: int, global_index: int, due_ms: int, record: Record) -> None:
        """Take a message in, if it has one of the keys: the last that was scheduled counts."""
        name = self._topics[queue], record.idempotency_key.encode()
        if name in self._names:
            self.used[name] = Used(hour, global_index, due_ms, scheduled_digest(record))


class UsedKeys:
    """Finds which messages have idempotency keys, a bounded piece in each turn of the event loop."""

    def __init__(
        self,
        keeper: KeyKeeper,
        machine: Machine,
        damage: Damage,
        config: NodeConfig,
        time: ClusterTime,
    ) -> None:
        self._keeper, self._machine, self._damage = keeper, machine, damage
        self._config, self._time = config, time
        self._since: dict[int, tuple[int, int]] = {}  # by queue, with when it was found

    async def find(self, names: Collection[Name]) -> Mapping[Name, Used] | Refusal:
        """Return the messages that have some of the keys, each with the last that was scheduled."""
        found = {topic: self._machine.queues.find(topic) for topic in {topic for topic, _ in names}}
        queues = {topic: queue for topic, queue in found.items() if queue is not None}
        known = [name for name in names if name[0] in queues]
        if not known:
            return {}
        since_ms = dict[int, int]()
        for queue in queues.values():
            if len(since_ms) % TURN_QUEUES == TURN_QUEUES - 1:
                await asyncio.sleep(0)
            since_ms[queue.queue] = await self._since_ms(queue)
        topics = {queue.queue: topic for topic, queue in queues.items()}
        numbers = np.array([queues[topic].queue for topic, _ in known], np.uint32)
        wanted = of_topic(hashes([IDEMPOTENCY_PREFIX + key for _, key in known]), numbers)
        first = max(0, min(since_ms.values()) // HOUR_MS) << 32
        before: Words | None = None
        search = _Search(names, topics, since_ms)
        for _ in range(ATTEMPTS_MAX):
            places = await self._keeper.find_any(wanted, first)
            if places is None:
                return incomplete(self._keeper)
            if before is not None and np.array_equal(places, before):
                return search.used
            before, search = places, _Search(names, topics, since_ms)
            refusal = await self._look_at(places, search)
            if refusal is not None or not search.displaced:
                return refusal or search.used
        return _BUSY

    async def _look_at(self, places: Words, search: _Search) -> Refusal | None:
        costs_ns = PLACE_NS + DIGEST_NS + self._machine.wheel.costs_ns(hours_of(places), indices_of(places))
        for rows in portions(costs_ns, TURN_NS):
            looked = False
            while not looked:
                with suppress(UnknownMessage):  # an hour was dropped meanwhile: look at the others again
                    refusal, looked = await self._look(places[rows], search), True
                    if refusal is not None:
                        return refusal
        return None

    async def _since_ms(self, queue: ReadyQueue) -> int:
        """Return the due time from which on messages of a queue have been released within the window.

        What was released late is due earlier than its release, and so is what will be; messages are released
        in the order in which they are due. Raises UnitsDamaged.
        """
        now_ms = self._time.now_ms()
        found_ms, since_ms = self._since.get(queue.queue, (-SINCE_KEPT_MS, 0))
        if not found_ms <= now_ms < found_ms + SINCE_KEPT_MS:
            begin_ms = (
                now_ms - dispatch(self._machine.queues.defaults, self._config.dispatch).idempotency_window_ms
            )
            next_due_ms = self._machine.wheel.next_due_ms()  # now: it may be released while this looks

            def look(pread: Pread | None) -> int:
                offset = queue.find_released(begin_ms, pread)
                if offset == queue.units:
                    return begin_ms
                return min(begin_ms, int(queue.read(offset, 1, pread)["due_ms"][0]))

            since_ms = await self._damage.reads.read_ahead_for(look)
            since_ms = since_ms if next_due_ms is None else min(since_ms, next_due_ms)
            if len(self._since) >= QUEUES_KEPT:
                self._since.clear()
            self._since[queue.queue] = now_ms, since_ms
        return since_ms

    async def _look(self, places: Words, search: _Search) -> Refusal | None:
        """Look at some messages, ascending. Raises UnknownMessage where one was deleted meanwhile."""
        some = seen(self._machine.wheel, hours_of(places), indices_of(places))
        search.displaced |= not bool(some.rests.all())
        pending = some.states == MessageState.PENDING
        rows = np.flatnonzero(some.rests & search.counts(some.queue, some.due_ms, pending))
        for part in portions(some.units["size"][rows], TURN_BYTES):
            chosen = rows[part]
            records = await self._damage.reads.read(some.hour[chosen], some.global_index[chosen])
            for row, record in zip(chosen.tolist(), records, strict=True):
                named = int(some.named[0][row]), int(some.named[1][row])
                if record is not None:
                    search.add(int(some.queue[row]), *named, int(some.due_ms[row]), Record.FromString(record))
                    continue
                self._damage.report(some.hour[row : row + 1], some.global_index[row : row + 1])
                if some.states[row] != MessageState.CANCELLED:
                    return self._damaged(*named)
            await asyncio.sleep(0)
        return None

    def _damaged(self, hour: int, global_index: int) -> Refusal:
        message = MessageId(self._config.shard, hour, global_index)
        text = (
            f"the record of {message}, which may have this idempotency key, is damaged here, and being "
            "mended: try again; if no node has it whole, cancel that message"
        )
        return Refusal(Reason.KEYS_INCOMPLETE, text, {"id": str(message)}, retry_ms=1_000)
