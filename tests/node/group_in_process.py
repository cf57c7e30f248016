"""One topic and one group on a real machine, with the real delivery, in one process on virtual time.

schedule ─► wheel ─► ready queue ─► delivery ─► consumers
              ▲                        │ proposals: committed, or lost with their leader
              └────────────────────────┘ when a test says so
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from google.protobuf.message import Message

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Delivery as DeliverySettings
from tarry.node.config import LedgerSettings, NodeConfig
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.context import Context
from tarry.node.delivery.delivery import Delivery
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.inherited import Inherited
from tarry.node.delivery.retries import Delay
from tarry.node.filters.property_filter import PropertyFilter
from tarry.node.ledger.ledger import Ledger
from tarry.node.metrics.traffic import Traffic
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.records import Damage
from tarry.node.services.schedule_request import Intake
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.cached_reads import NotCached
from tarry.wheel.state import MessageState

TOPIC, GROUP = "t", "g"
START_MS = 500_000 * 3_600_000
OVER = Refusal(Reason.NO_LEADER, "the test has changed leaders")
SETTINGS = DeliverySettings(lease_ms=1_000, attempts_max=3, back_off_ms=(20, 200))


class _Clock:
    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return START_MS + int(self.monotonic_s() * 1_000)


@dataclass(slots=True)
class Given:
    """What a consumer was given."""

    label: str
    key: str
    queue: int
    offset: int
    attempt: int
    maybe_duplicate: bool


@dataclass(slots=True)
class Hand:
    """A consumer's side: what it holds, and whether its stream is open."""

    consumer: Consumer | None = None
    held: dict[tuple[int, int], Given] = field(default_factory=dict)


class Disk:
    """Whether records are in memory, and when those that are read ahead arrive."""

    def __init__(self) -> None:
        self.cold = False
        """Records are on the disk only, until they are read ahead."""
        self.evicts = False
        """What was read ahead is gone again at once."""
        self.delay_s = 0.0
        self.read_ahead: list[int] = []
        """How many records each time."""

    def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        if self.cold:
            raise NotCached
        return os.pread(fd, size_bytes, offset)

    async def run_blocking(self, work: partial[Any]) -> Any:
        await asyncio.sleep(self.delay_s)
        self.read_ahead.append(sum(len(places.offsets) for places in work.args[0]))
        assert len(self.read_ahead) < 10_000, "read ahead again and again"
        self.cold = self.cold and self.evicts
        return work()


class Group:
    """To be made on a running (virtual) event loop."""

    def __init__(self, folder: Path) -> None:
        self.config = NodeConfig(
            node="n1",
            data=folder,
            listen="127.0.0.1:1",
            members={"n1": "127.0.0.1:1"},
            delivery=SETTINGS,
            ledger=LedgerSettings(enabled=False),
        )
        self.machine = Machine(folder, MachineSettings())
        self._ledger = Ledger(self.config, 0, lambda: START_MS)
        self.time = ClusterTime(_Clock())
        self.log: list[tuple[Message, asyncio.Future[Any]]] = []  # proposed, not committed
        self.hands: defaultdict[str, Hand] = defaultdict(Hand)
        self.given: list[Given] = []
        self.scheduled: list[tuple[int, int, str, str]] = []  # due_ms, number, key, label
        self.has_lease = True
        self.disk = Disk()
        self.ahead_ms = 50  # how much earlier than they are due messages are released
        self.failed: list[BaseException] = []
        self._index = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._intake = Intake(self.config.limits, ())
        subscribed = self.apply(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        self.queue, self.retry_queue = subscribed.queue, subscribed.retry_queue
        self._lead([])

    # -- the log -------------------------------------------------------------------------

    def apply(self, payload: Message) -> Any:
        """Commit a command; its outcome."""
        self._index += 1
        (outcome,) = self.machine.apply(self._index, 1, [command_codec.encode(payload)])
        return outcome

    async def commit(self, count: int = 10_000) -> None:
        """Apply the first ``count`` of what is proposed; let the delivery go on."""
        for payload, answer in self.log[:count]:
            outcome = self.apply(payload)
            if not answer.done():
                answer.set_result(outcome)
            self.show_applied()
        del self.log[:count]
        await self.settle()

    def show_applied(self) -> None:
        """Tell the delivery what has changed, as the driver does after it has applied."""
        for topic, group in self.machine.queues.take_trimmed():
            self.delivery.trimmed(topic, group)
        for topic, group in self.machine.queues.take_moved():
            self.delivery.moved(topic, group)
        self.delivery.released(self.machine.queues.take_changed())
        self.delivery.note_queues()

    async def settle(self) -> None:
        """Let everything run that is ready; take in what consumers were sent."""
        for _ in range(6):
            await asyncio.sleep(0)
        for hand in self.hands.values():
            if hand.consumer is not None:
                self.receive(hand, hand.consumer.take_all())

    # -- leaders -------------------------------------------------------------------------

    def _lead(self, inherited: Iterable[log_pb.Cursor]) -> None:
        reads = RecordReads(self.machine, self.disk.pread, self.disk.run_blocking)  # type: ignore[arg-type]
        context = Context(
            config=self.config,
            machine=self.machine,
            time=self.time,
            propose=self._propose,
            may_serve=lambda: self.has_lease,
            confirmed_s=lambda: math.inf,
            beat=lambda: None,
            stir=lambda: None,
            spawn=self._spawn,
            fail=self.failed.append,
            damage=Damage(self.machine, 0, reads=reads),
            ledger=self._ledger,
            traffic=Traffic(self.config.metrics, 100, lambda: True),
        )
        self.damage = context.damage
        self.delivery = Delivery(context, 1, Inherited(inherited))
        assert self.group

    @property
    def group(self) -> GroupDelivery:
        """The group at the leader, opened again if it was closed."""
        return self.delivery.group(TOPIC, GROUP, self.queue, self.retry_queue)

    def _propose(self, payload: Message) -> Awaitable[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.log.append((payload, answer))
        return answer

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cursors(self) -> list[log_pb.Cursor]:
        """The cursors that the leader tells when it delivers no more."""
        return list(log_pb.DispatchState.FromString(self.delivery.cursors(None)).cursors)

    async def fail_over(self, committed: int, cursors: Iterable[log_pb.Cursor]) -> None:
        """The leader dies; the next has ``committed`` of what was proposed, and the cursors it heard of."""
        await self.end()
        for payload, _ in self.log[:committed]:
            self.apply(payload)
        self.log.clear()
        queues = self.machine.queues
        queues.take_trimmed(), queues.take_moved(), queues.take_changed()
        self._lead(cursors)

    async def end(self) -> None:
        """The leadership is over."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.delivery.end(OVER)
        for hand in self.hands.values():
            hand.consumer = None

    # -- producer and clock --------------------------------------------------------------

    def schedule(
        self,
        key: str,
        delay_ms: int,
        tags: Iterable[str] = (),
        extra_bytes: int = 0,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Schedule a message under a label of its own; committed at once."""
        label = f"m{len(self.scheduled)}"
        properties = {**properties, **({"extra": "x" * extra_bytes} if extra_bytes else {})}
        record = Record(body=label.encode(), ordering_key=key, tags=tags, properties=properties)
        request = producer_pb.ScheduleRequest(topic=TOPIC, record=record, delay_ms=delay_ms)
        command = self._intake.one(request, self.time.now_ms())
        assert isinstance(command, log_pb.ScheduleCommand), command
        self.scheduled.append((self.time.now_ms() + delay_ms, len(self.scheduled), key, label))
        self.apply(command)
        self.show_applied()
        return label

    def take_in(self, raw: bytes) -> log_pb.ScheduleCommand:
        """The command for a serialized ScheduleBatchRequest; nothing is scheduled yet."""
        command = self._intake.batch(raw, self.time.now_ms())
        assert isinstance(command, log_pb.ScheduleCommand), command
        return command

    def release(self) -> None:
        """Release what is due in the next ``ahead_ms``."""
        now_ms = self.time.now_ms()
        self.apply(log_pb.ReleaseCommand(until_ms=now_ms + self.ahead_ms, count=1_000, now_ms=now_ms))
        self.show_applied()

    # -- consumers -----------------------------------------------------------------------

    def join(self, name: str, credit: int = 5, tags: Iterable[str] = (), by_properties: str = "") -> None:
        """Open the consumer's stream, with what it holds."""
        hand = self.hands[name]
        holding: defaultdict[int, list[int]] = defaultdict(list)
        for queue, offset in hand.held:
            holding[queue].append(offset)
        hand.consumer = Consumer(
            name=name,
            topic=TOPIC,
            group=GROUP,
            lease_ms=1_000,
            credit=credit,
            tags=frozenset(tags),
            filter=PropertyFilter(by_properties) if by_properties else None,
        )
        columns = {queue: np.array(offsets, dtype=np.uint64) for queue, offsets in holding.items()}
        group, kept = self.group, set()
        batches = [group.resume(hand.consumer, queue, offsets) for queue, offsets in columns.items()]
        for queue, batch in zip(columns, batches, strict=True):
            kept.update((queue, offset) for offset in (batch.offsets.tolist() if batch else ()))
        group.join(hand.consumer, [batch for batch in batches if batch])
        hand.held = {place: given for place, given in hand.held.items() if place in kept}
        self.group.pump()

    def leave(self, name: str, *, clean: bool) -> None:
        """End the consumer's stream; where it ends in order, nothing is held any more."""
        hand = self.hands[name]
        if hand.consumer is not None:
            self.group.leave(hand.consumer, clean=clean)
            hand.consumer = None
            if clean:
                hand.held.clear()

    def add_credit(self, name: str, messages: int) -> None:
        consumer = self.hands[name].consumer
        if consumer is not None:
            consumer.credit += messages
            self.group.pump()

    def settle_first(self, name: str, count: int, *, nack: bool, delay_ms: int | None = None) -> list[str]:
        """Ack or nack the first ``count`` that the consumer holds; return their labels."""
        hand = self.hands[name]
        chosen = list(hand.held.values())[:count]
        for given in chosen:
            offsets = np.array([given.offset], dtype=np.uint64)
            settling = self.group.settlement
            if nack:
                settling.nack(name, given.queue, offsets, Delay(delay_ms))
            else:
                settling.ack(name, given.queue, offsets)
            del hand.held[given.queue, given.offset]
        return [given.label for given in chosen]

    def receive(self, hand: Hand, responses: list[bytes]) -> None:
        for response in responses:
            batch = pb.ConsumeResponse.FromString(response).deliveries
            for n, offset in enumerate(batch.offset):
                record = Record.FromString(batch.records[n])
                attempt = batch.attempt[n] if batch.attempt else 1
                label = record.body.decode()
                given = Given(
                    label, record.ordering_key, batch.queue, offset, attempt, n in batch.maybe_duplicate
                )
                hand.held[batch.queue, offset] = given
                self.given.append(given)
                self.check_order(given)

    # -- what must hold ------------------------------------------------------------------

    def places(self) -> dict[str, list[str]]:
        """Return where each message is: pending, ready, retry, dead or done."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        wheel, queues = self.machine.wheel, self.machine.queues
        for hour in wheel.hours():
            state = wheel.upkeep.hour_state(hour)
            index = np.arange(state.units if state else 0, dtype=np.uint32)
            hours = np.full(len(index), hour, dtype=np.uint32)
            records = wheel.read(hours, index)
            for number, topic in enumerate(queue_of(wheel.units(hours, index)["topic"]).tolist()):
                queue, record = queues[topic], records[number]
                assert record is not None
                stored = Retried.FromString(record).record if queue.group else record
                label = Record.FromString(stored).body.decode()
                state_now = wheel.state(hour, number)
                pending = state_now is MessageState.PENDING
                if queue.topic != TOPIC:
                    found[label].append("dead")
                elif pending:
                    found[label].append("retry" if queue.group else "pending")
                elif state_now is MessageState.RELEASED and not self._acknowledged(topic, hour, number):
                    found[label].append("retry" if queue.group else "ready")
        return {label: found.get(label, ["done"]) for *_, label in self.scheduled}

    def _acknowledged(self, queue: int, hour: int, number: int) -> bool:
        units = self.machine.queues[queue].read(0, self.machine.queues[queue].units)
        (offsets,) = np.nonzero((units["hour"] == hour) & (units["global_index"] == number))
        assert len(offsets) == 1
        return bool(self.machine.queues.acknowledged[GROUP, queue].contains(offsets.astype(np.uint64))[0])

    def check_order(self, given: Given) -> None:
        """Whatever comes before it under its key is settled for good."""
        if not given.key:
            return
        places = self.places()
        for _, _, key, label in sorted(self.scheduled):
            if label == given.label:
                return
            assert key != given.key or places[label][0] in ("done", "dead"), (
                f"{given} is delivered while {label} is in {places[label]}"
            )
