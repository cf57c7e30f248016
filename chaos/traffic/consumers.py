"""Consumers of a run, from one seed: brisk, nacking, slow, pulling, coming and going, crashing.

Two groups receive everything. BRISK has consumers that acknowledge at once and stay: on them lateness and
duplicates are judged. ROUGH has all others, which cause many messages to be delivered again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grpc import aio

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Delivered, History
from tarry.chaos.traffic.load import MASS
from tarry.chaos.traffic.rate import QUICK, stubs_of
from tarry.chaos.traffic.traffic import TOKEN, received
from tarry.client.aio import AckOutcome, Client, Message
from tarry.client.errors import OutcomeUnknown, Overloaded, TarryError, Unavailable
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_consumer_pb2_grpc import ConsumerServiceStub
from tarry.proto.tarry_message_pb2 import Record

BRISK, ROUGH = "brisk", "rough"
PULLING = "pulling"
LEASE_MS = 1_500  # of the rough group: what is dropped comes again soon
AGAIN_S = 0.2


@dataclass(slots=True)
class Consumers:
    """Consumers of both groups on every topic, which record each delivery in the history until stopped.

    `addresses`, `ahead_ms`: as producers have them.
    """

    client: Client
    addresses: Sequence[str]
    history: History
    topics: Sequence[str]
    seed: int
    ahead_ms: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, *, rough: bool = True) -> None:
        for topic in (*self.topics, MASS):
            work = [partial(self._brisk, topic, f"brisk-{number}") for number in range(2)]
            if rough and topic != MASS:
                chance = random.Random(f"{self.seed} {topic}")
                kinds = (self._nacking, self._slow, self._pulling, self._coming_and_going, self._crashing)
                work += [partial(kind, topic, chance) for kind in kinds]
            self._tasks += [asyncio.create_task(self._lasting(one)) for one in work]

    async def stop(self) -> None:
        """End the consumers; raises the error that ended one of them before."""
        left = set(self._tasks)
        while left:  # gRPC may answer a cancellation with an error of its own, which is taken for a node's
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)
        self.check()

    def check(self) -> None:
        """Raise the error that has ended a consumer."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _record(self, message: Message, group: str, consumer: str) -> None:
        self.history.delivered.append(received(message, group, consumer, self.ahead_ms))

    async def _lasting(self, consume: Callable[[], Awaitable[None]]) -> None:
        """Consume, and subscribe again after an error that a fault explains; a refusal is raised."""
        while True:
            try:
                await consume()
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)

    async def _brisk(self, topic: str, name: str) -> None:
        async with self.client.consumer(topic, BRISK, name=name) as consumer:
            async for message in consumer:
                self._record(message, BRISK, name)
                message.ack_soon()

    async def _nacking(self, topic: str, chance: random.Random) -> None:
        async with self.client.consumer(
            topic, ROUGH, name="nacking", credit=50, lease_ms=LEASE_MS
        ) as consumer:
            async for message in consumer:
                self._record(message, ROUGH, "nacking")
                if message.attempt == 1 and chance.random() < 0.3:
                    message.nack(delay_ms=chance.randint(0, 1_000)).add_done_callback(_forget)
                else:
                    message.ack_soon()

    async def _slow(self, topic: str, chance: random.Random) -> None:
        """Take one message at a time, some of them for longer than their lease."""
        async with self.client.consumer(topic, ROUGH, name="slow", credit=1, lease_ms=500) as consumer:
            async for message in consumer:
                self._record(message, ROUGH, "slow")
                await asyncio.sleep(0.02 if message.attempt > 1 else chance.choice((0, 0.6)))
                message.ack_soon()

    async def _coming_and_going(self, topic: str, chance: random.Random) -> None:
        while True:
            async with self.client.consumer(
                topic, ROUGH, name="guest", credit=20, lease_ms=LEASE_MS
            ) as consumer:
                try:
                    async with asyncio.timeout(0.5 + chance.random()):
                        async for message in consumer:
                            self._record(message, ROUGH, "guest")
                            message.ack_soon()
                except TimeoutError:
                    pass
            await asyncio.sleep(chance.random())

    async def _pulling(self, topic: str, chance: random.Random) -> None:
        """Ask any node for what is due; have it longer, give it back or acknowledge it at any other."""
        request = pb.ReceiveRequest(
            topic=topic, group=ROUGH, consumer=PULLING, messages_max=10, wait_ms=500, lease_ms=LEASE_MS
        )
        async with stubs_of(self.addresses, ConsumerServiceStub) as stubs:
            while True:
                try:
                    response = await chance.choice(stubs).Receive(request, timeout=3)
                    for batch in response.deliveries:
                        self._taken(batch, PULLING)
                        named: dict[str, Any] = {"topic": topic, "group": ROUGH, "consumer": PULLING}
                        named |= {"queue": batch.queue, "offset": batch.offset}
                        named["incarnation"] = response.incarnation
                        if chance.random() < 0.2:
                            extend = pb.ExtendRequest(**named, lease_ms=LEASE_MS)
                            await chance.choice(stubs).Extend(extend, timeout=3)
                        if chance.random() < 0.1:
                            nack = pb.NackRequest(**named, delay_ms=chance.randint(0, 1_000))
                            await chance.choice(stubs).Nack(nack, timeout=3)
                        else:
                            await chance.choice(stubs).Ack(pb.AckRequest(**named), timeout=3)
                except aio.AioRpcError:
                    await asyncio.sleep(AGAIN_S)

    async def _crashing(self, topic: str, chance: random.Random) -> None:
        """Acknowledge some, drop the connection with the rest in flight, come back under the same name."""
        while True:
            address, left = chance.choice(self.addresses), chance.randint(5, 40)
            async with aio.insecure_channel(address, QUICK) as channel:
                stream = ConsumerServiceStub(channel).Consume(timeout=5)
                subscribe = pb.Subscribe(
                    topic=topic, group=ROUGH, consumer="crashing", credit=10, lease_ms=LEASE_MS
                )
                try:
                    await stream.write(pb.ConsumeRequest(subscribe=subscribe))
                    async for response in stream:
                        batch = response.deliveries
                        self._taken(batch, "crashing")
                        left -= len(batch.offset)
                        if left < 0:
                            break
                        if batch.offset:
                            ack = pb.Ack(queue=batch.queue, offset=batch.offset)
                            await stream.write(pb.ConsumeRequest(ack=ack))
                            credit = pb.Credit(messages=len(batch.offset))
                            await stream.write(pb.ConsumeRequest(credit=credit))
                except (aio.AioRpcError, asyncio.InvalidStateError):
                    pass  # it does not lead, or is away
                stream.cancel()
            await asyncio.sleep(AGAIN_S + chance.random() / 2)

    def _taken(self, batch: pb.Deliveries, consumer: str) -> None:
        at_ms, at_mono_ms = now_ms() + self.ahead_ms, mono_ms()
        self.history.delivered += [
            Delivered(
                token=TOKEN.unpack_from(Record.FromString(record).body)[0],
                topic=batch.topic,
                group=ROUGH,
                id=str(MessageId(batch.shard, batch.hour[place], batch.global_index[place])),
                due_ms=batch.due_ms[place],
                attempt=batch.attempt[place] if batch.attempt else 1,
                maybe_duplicate=place in batch.maybe_duplicate,
                received_ms=at_ms,
                received_mono_ms=at_mono_ms,
                consumer=consumer,
                queue=batch.queue,
                offset=batch.offset[place],
                node=batch.stamp.node,
                term=batch.stamp.term,
            )
            for place, record in enumerate(batch.records)
        ]


def _forget(outcome: asyncio.Future[AckOutcome]) -> None:
    """Ignore a nack without an outcome, whose stream broke: the message is delivered again all the same."""
    if not outcome.cancelled() and not isinstance(error := outcome.exception(), TarryError | None):
        raise error
