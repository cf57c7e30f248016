"""A consumer that asks for messages, and acknowledges them, by calls."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import Given, selection

if TYPE_CHECKING:
    from tests.simulation.whole_node import WholeNode
    from tests.simulation.whole_world import WholeWorld


class ModelPuller:
    """What it cannot acknowledge it lets go: it comes again once its lease is over."""

    def __init__(self, world: WholeWorld, name: str, topic: str, group: str) -> None:
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._topic = topic
        self._group = group
        self.name = name

    async def run(self) -> None:
        while True:
            node = self._world.likely_leader(self._rng, self.name)
            if node is not None:
                with contextlib.suppress(StreamEnded, TimeoutError):
                    await asyncio.wait_for(self._pull(node), 2.0)
            await asyncio.sleep(self._rng.uniform(0.005, 0.1))

    async def _pull(self, node: WholeNode) -> None:
        request = pb.ReceiveRequest(
            topic=self._topic,
            group=self._group,
            consumer=self.name,
            messages_max=self._rng.randrange(1, 20),
            wait_ms=200,
            **selection(self._group, self._world.by_properties),
        )
        raw = await node.edge.receive(request.SerializeToString())
        await asyncio.sleep(self._rng.uniform(0.0002, 0.002))  # on its way
        if not isinstance(raw, bytes) or (self.name, node.name) in self._world.cuts:
            return
        answer = pb.ReceiveResponse.FromString(raw)
        for batch in answer.deliveries:
            self._take(batch)
            await asyncio.sleep(self._rng.uniform(0, 0.05))
            await self._settle(node, batch, answer.incarnation)

    async def _settle(self, node: WholeNode, batch: pb.Deliveries, incarnation: int) -> None:
        """Acknowledge them, now and then after a while for which it asks, or give them back."""
        names = {"topic": self._topic, "group": self._group, "consumer": self.name}
        place = {"queue": batch.queue, "offset": list(batch.offset), "incarnation": incarnation}
        drawn = 1.0 if self._world.calm else self._rng.random()
        if drawn < 0.1:
            delay_ms = self._rng.choice((None, 0, 300))
            await node.edge.nack(pb.NackRequest(**names, **place, delay_ms=delay_ms).SerializeToString())
            return
        if drawn < 0.2:
            await node.edge.extend(pb.ExtendRequest(**names, **place, lease_ms=4_000).SerializeToString())
            await asyncio.sleep(self._rng.uniform(0.5, 1.5))
        await node.edge.ack(pb.AckRequest(**names, **place).SerializeToString())

    def _take(self, batch: pb.Deliveries) -> None:
        marked = set(batch.maybe_duplicate)
        for n in range(len(batch.offset)):
            given = Given(
                asyncio.get_running_loop().time(),
                batch.stamp.term,
                batch.attempt[n] if batch.attempt else 1,
                n in marked,
                self.name,
            )
            record = Record.FromString(batch.records[n])
            label, group = record.body, f"{self._topic}/{self._group}"
            message = (batch.hour[n], batch.global_index[n])
            delay_ms, true_ms = batch.delay_ms, self._world.true_ms()
            due_ms = batch.due_ms[n] - delay_ms
            self._world.ledger.delivered(group, label, message, due_ms, true_ms, given, delay_ms)
            if given.attempt == 1:
                self._world.changes.delivered(group, record, due_ms, message)
