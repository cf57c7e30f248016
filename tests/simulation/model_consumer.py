"""A consumer: the client's own table of what is in hand, and one of several tempers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tarry.client.consumers.unsettled import AckOutcome, Unsettled, Verdict
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.proto.tarry_message_pb2 import Record
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import Given, selection

if TYPE_CHECKING:
    from tests.simulation.whole_node import WholeNode
    from tests.simulation.whole_world import WholeWorld

NACK_DELAYS_MS = (None, None, 0, 100, 1_500)
EXTENDED_MS = 4_000
"""Longer than it thinks."""

Requests = asyncio.Queue[pb.ConsumeRequest | None]


class ModelConsumer:
    """Comes back, with what it holds, whenever its stream ends."""

    def __init__(
        self,
        world: WholeWorld,
        name: str,
        topic: str,
        group: str,
        *,
        nacks: float = 0.0,
        forgets: float = 0.0,
        thinks_s: float = 0.05,
        extends: float = 0.0,
        credit: int = 50,
        topics: Sequence[str] = (),
    ) -> None:
        """`topics`: several, instead of one.

        `nacks`, `forgets`, `extends`: shares of the deliveries; a group `name~consumer` is broadcast.
        """
        self._world = world
        self._rng = random.Random(world.rng.random())
        self.name = name
        self.group = group
        self._topic = topic
        self._topics = topics
        self._nacks = nacks
        self._forgets = forgets
        self._extends = extends
        self.thinks_s = thinks_s
        self.unsettled = Unsettled(credit)
        self._labels: dict[tuple[int, int], tuple[str, bytes]] = {}
        """Topic and label of what it was given."""
        self._requests: Requests | None = None

    async def run(self) -> None:
        while True:
            node = self._world.likely_leader(self._rng, self.name)
            if node is not None:
                await self._until_broken(node)
            await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def _until_broken(self, node: WholeNode) -> None:
        context = node.processor.context
        session = asyncio.get_running_loop().create_task(self._session(node), context=context)
        node.streams[session] = None
        try:
            await asyncio.wait([session])
        finally:
            session.cancel()
            node.streams.pop(session, None)
        error = None if session.cancelled() else session.exception()
        if error is not None and not isinstance(error, StreamEnded):
            self._world.fail(error)

    async def _session(self, node: WholeNode) -> None:
        requests: Requests = asyncio.Queue()
        subscribe = pb.Subscribe(
            topic=self._topic,
            topics=self._topics,
            group=self.group.partition("~")[0],
            broadcast="~" in self.group,
            start=pb.GroupStart(at=pb.START_AT_EARLIEST),
            consumer=self.name,
            credit=self.unsettled.credit_to_start(),
            holding=self.unsettled.holding(),
            **selection(self.group, self._world.by_properties),
        )
        requests.put_nowait(pb.ConsumeRequest(subscribe=subscribe))
        stream = node.edge.consume(requests)
        try:
            async for raw in stream:
                await asyncio.sleep(self._rng.uniform(0.0002, 0.002))  # on its way
                if (self.name, node.name) in self._world.cuts:
                    return
                self._take(pb.ConsumeResponse.FromString(raw), requests)
        finally:
            self._requests = None
            await stream.aclose()  # type: ignore[attr-defined]

    def _take(self, response: pb.ConsumeResponse, requests: Requests) -> None:
        if response.HasField("subscribed"):
            self.unsettled.subscribed({h.queue: frozenset(h.offset) for h in response.subscribed.resumed})
            self._requests = requests
        elif response.HasField("acked"):
            self.unsettled.answered(response.acked)
        else:
            self._receive(response.deliveries)
        self._flush()

    def _receive(self, batch: pb.Deliveries) -> None:
        loop, rng, world = asyncio.get_running_loop(), self._rng, self._world
        marked = set(batch.maybe_duplicate)
        for n in range(len(batch.offset)):
            given = Given(
                loop.time(),
                batch.stamp.term,
                batch.attempt[n] if batch.attempt else 1,
                n in marked,
                self.name,
            )
            record = Record.FromString(batch.records[n])
            label = record.body
            if batch.topic.startswith(DEAD_LETTERS):  # a message of its own, perhaps one of several
                label = b"%s at %d" % (label, batch.offset[n])
            message = (batch.hour[n], batch.global_index[n])
            group = f"{batch.topic}/{self.group}"
            delay_ms = batch.delay_ms
            due_ms = batch.due_ms[n] - delay_ms
            label = world.ledger.delivered(group, label, message, due_ms, world.true_ms(), given, delay_ms)
            self._labels[batch.queue, batch.offset[n]] = batch.topic, label
            if given.attempt == 1:
                world.changes.delivered(group, record, due_ms, message)
        self.unsettled.received(batch.queue, batch.offset)
        for offset in batch.offset:
            if not world.calm and rng.random() < self._forgets:
                loop.call_later(2.0, self._forget, batch.queue, offset)
                continue
            if not world.calm and rng.random() < self._extends:
                self.unsettled.settle(Verdict(batch.queue, extend_ms=EXTENDED_MS), offset)
            thinks_s = rng.uniform(0, 0.05 if world.calm else self.thinks_s)
            loop.call_later(thinks_s, self._settle, self._verdict(batch.queue), offset)

    def _verdict(self, queue: int) -> Verdict:
        nack = not self._world.calm and self._rng.random() < self._nacks
        return Verdict(queue, nack=nack, delay_ms=self._rng.choice(NACK_DELAYS_MS) if nack else None)

    def _settle(self, verdict: Verdict, offset: int) -> None:
        if self.unsettled.holds(verdict.queue, offset):
            waiter: asyncio.Future[AckOutcome] = asyncio.get_running_loop().create_future()
            if not verdict.nack:
                topic, label = self._labels[verdict.queue, offset]
                place = (f"{topic}/{self.group}", label)
                waiter.add_done_callback(partial(self._answered, place))
            self.unsettled.settle(verdict, offset, waiter)
        self._flush()

    def _answered(self, place: tuple[str, bytes], waiter: asyncio.Future[AckOutcome]) -> None:
        if not waiter.cancelled() and waiter.result() is AckOutcome.OK:
            self._world.ledger.settled.add(place)

    def _forget(self, queue: int, offset: int) -> None:
        self.unsettled.forget(queue, [offset])
        self._flush()

    def _flush(self) -> None:
        if self._requests is not None:
            for request in self.unsettled.outgoing():
                self._requests.put_nowait(request)
