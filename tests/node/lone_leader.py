"""A node that leads alone, in this process, and its services without a network: for what calls cost it."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tarry.node.app import Node
from tarry.node.config import Consensus, MetricsSettings, NodeConfig
from tarry.node.delivery.group import GroupDelivery
from tarry.node.edge.auth import Authorizer
from tarry.node.leader import upgrade
from tarry.node.loop_watchdog import Collections
from tarry.node.services.operator import OperatorService
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine import commands as command_codec
from tests import turns as cost
from tests.simulation.edge import Context, Edge
from tests.simulation.processor import Processor

RECORD = Record(body=b"x" * 100).SerializeToString()
TOPIC, GROUP = "t", "g"
REMOVALS = ThreadPoolExecutor(1)
"""Of folders with the files of thousands of hours, which wait for the disk: no test has to wait for them."""
SOON = Consensus(
    heartbeat_ms=20, quiet_heartbeat_ms=20, fallback_ms=30, election_min_ms=61, election_max_ms=70
)
"""Times of an election that nobody else takes part in, and of a promise that nobody else has."""
LEVEL_LOOK_S = 0.02


class Leader:
    """The node and its edge."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.edge = Edge(node._core, Processor())
        self.machine = node.machine
        self._operator = OperatorService(node._core, Authorizer({}), self.edge._calls)
        self.topics = self._operator._topics

    async def propose(self, payload: Any) -> Any:
        """Commit a command; its outcome."""
        return await self.node.driver.propose(command_codec.encode(payload))

    async def schedule(
        self, count: int, due_ms: np.ndarray[Any, Any], topics: list[str] | None = None
    ) -> Any:
        """Schedule a batch; the answer."""
        raw = ScheduleBatchRequest(
            topics=topics or [TOPIC],
            topic=np.arange(count) % len(topics) if topics else None,
            due_ms=due_ms,
            records=[RECORD] * count,
        ).SerializeToString()
        answer = await self.edge.schedule(raw)
        assert isinstance(answer, bytes), answer
        return log_pb.ScheduledColumns.FromString(answer)

    async def ready(self, count: int) -> None:
        """Put messages into the topic's ready queue, as fast as they come."""
        now_ms = self.node.time.now_ms()
        for start in range(0, count, 4_096):
            part = min(4_096, count - start)
            await self.schedule(part, np.full(part, now_ms - 1))
        queue = self.machine.queues.of(TOPIC)
        await until(lambda: queue.units >= count)

    async def status(self, **request: bool) -> bytes:
        """As ClusterStatus."""
        context: Any = Context()
        raw = operator_pb.ClusterStatusRequest(**request).SerializeToString()
        return await self._operator._cluster_status(raw, context)

    async def delete_topic(self, topic: str) -> operator_pb.DeleteTopicResponse:
        """As DeleteTopic."""
        deleted = await self._operator._topic_calls._delete_topic(operator_pb.DeleteTopicRequest(topic=topic))
        assert isinstance(deleted, operator_pb.DeleteTopicResponse)
        return deleted

    def group(self) -> GroupDelivery:
        """Return the group at the leader; it must be open."""
        delivery = self.node.leadership.delivery
        group = delivery.find(TOPIC, GROUP) if delivery else None
        assert group is not None
        return group


def subscription(name: str, credit: int, **more: Any) -> consumer_pb.ConsumeRequest:
    """Return the first request of a consumer's stream."""
    subscribe = consumer_pb.Subscribe(topic=TOPIC, group=GROUP, consumer=name, credit=credit, **more)
    return consumer_pb.ConsumeRequest(subscribe=subscribe)


class Stream:
    """A consumer's stream; deliveries are thrown away."""

    def __init__(self, edge: Edge, subscribe: consumer_pb.ConsumeRequest) -> None:
        self._requests: asyncio.Queue[consumer_pb.ConsumeRequest | None] = asyncio.Queue()
        self.send(subscribe)
        self._answers: asyncio.Queue[consumer_pb.ConsumeResponse] = asyncio.Queue()
        self.received = 0
        self.ended = asyncio.ensure_future(self._read(edge.consume(self._requests)))
        self.ended.add_done_callback(_note_error)

    def send(self, request: consumer_pb.ConsumeRequest) -> None:
        """Send one request."""
        self._requests.put_nowait(request)

    async def asked(self, request: consumer_pb.ConsumeRequest) -> consumer_pb.ConsumeResponse:
        """Send one request; return its answer."""
        self.send(request)
        return await self.answer()

    async def answer(self) -> consumer_pb.ConsumeResponse:
        """Return the next answer that is no delivery."""
        return await self._answers.get()

    async def leave(self) -> None:
        """End it in order."""
        self._requests.put_nowait(None)
        await self.ended

    async def _read(self, responses: AsyncIterator[bytes]) -> None:
        async for raw in responses:
            columns = log_pb.ConsumedColumns.FromString(raw)
            if columns.HasField("deliveries"):
                self.received += len(columns.deliveries.records)
            else:
                self._answers.put_nowait(consumer_pb.ConsumeResponse.FromString(raw))


def _note_error(ended: asyncio.Future[None]) -> None:
    """Take the error of a stream for known: one that nobody awaits is not logged with all that it holds."""
    if not ended.cancelled():
        ended.exception()


@asynccontextmanager
async def leader(folder: Path, holds: Holds, **settings: Any) -> AsyncIterator[Leader]:
    """Run a node until it serves and has its settings, and end it afterwards."""
    listen = settings.pop("listen", "127.0.0.1:0")
    config = NodeConfig(
        node="n1",
        data=folder,
        listen=listen,
        members={"n1": listen},
        log_level="error",
        consensus=SOON,
        metrics=MetricsSettings(listen="127.0.0.1:0"),
        **settings,
    )
    node = Node(config, holds=holds)
    look_s, upgrade.LOOK_S = upgrade.LOOK_S, LEVEL_LOOK_S  # type: ignore[misc]
    running = asyncio.create_task(node.run())
    collections = Collections(holds)
    gc.collect()
    gc.freeze()
    gc.callbacks.append(collections)
    try:
        await until(lambda: node.leadership.serves() or running.done())
        if config.upgrade.finish == "auto":  # so that no entry of its own comes into what a test does
            await until(lambda: node.machine.queues.defaults.seeded or running.done())
        yield Leader(node)
    finally:
        gc.callbacks.remove(collections)
        gc.unfreeze()
        node.stop()
        await running
        upgrade.LOOK_S = look_s  # type: ignore[misc]
        gc.collect()
        gc.freeze()  # as the next test expects it


def play(act: Callable[[Leader, cost.Steps], Awaitable[None]], **settings: Any) -> cost.Play:
    """Return a play for ``tests.turns``: a leader acts."""

    async def played(steps: cost.Steps, holds: Holds) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            async with leader(folder, holds, **settings) as lead:
                await act(lead, steps)
        finally:
            REMOVALS.submit(shutil.rmtree, folder)

    return played


async def until(condition: Callable[[], object]) -> None:
    """Return once it holds."""
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to it")
