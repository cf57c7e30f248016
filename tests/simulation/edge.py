"""A node's services without gRPC: the same code from the request's bytes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NoReturn

import grpc

from tarry.node.auth import Authorizer
from tarry.node.config import NodeConfig
from tarry.node.core import Core
from tarry.node.intake import Intake
from tarry.node.joining import Joining
from tarry.node.services.consumer import ConsumerService
from tarry.node.services.handlers import Answer, LeaderCalls
from tarry.node.services.producer import ProducerService
from tarry.proto import tarry_consumer_pb2 as pb


class StreamEnded(Exception):
    """The server ended the call; the text says why."""


class Context:
    """What handlers use of a gRPC call."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> float | None:
        return None

    async def abort(self, code: grpc.StatusCode, text: str, metadata: Any = ()) -> NoReturn:
        raise StreamEnded(text)


class _NoForwarding:
    async def forward(self, address: str, *_: object) -> Answer:
        raise StreamEnded(f"ask {address}")


class Edge:
    """Of one start of a node."""

    def __init__(self, config: NodeConfig, core: Core) -> None:
        leadership, authorizer = core.leadership, Authorizer({})
        forwarding: Any = _NoForwarding()
        calls = LeaderCalls(leadership.serves, leadership.not_leader, leadership.wait.until_led, forwarding)
        self._calls = calls
        self._producer = ProducerService(
            shard=config.shard,
            intake=Intake(config.limits, config.delay_levels_ms),
            machine=core.machine,
            driver=core.driver,
            time=core.time,
            authorizer=authorizer,
            calls=calls,
            auto_create=True,
            damage=core.damage,
            holds=core.holds,
        )
        joining = Joining(
            config,
            core.driver,
            authorizer,
            lambda: leadership.delivery,
            leadership.not_leader,
            lambda: core.machine.queues,
        )
        self._consumer = ConsumerService(
            config, joining, lambda: leadership.delivery, leadership.not_leader, calls, core.holds
        )

    async def schedule(self, raw: bytes) -> Answer:
        """As ScheduleBatch. Raises StreamEnded where another node leads."""
        context: Any = Context()
        return await self._calls.answer("ScheduleBatch", raw, context, self._producer._schedule_batch)

    async def cancel(self, raw: bytes) -> Answer:
        """As Cancel. Raises StreamEnded where another node leads."""
        context: Any = Context()
        return await self._calls.answer("Cancel", raw, context, self._producer._cancel)

    async def receive(self, raw: bytes) -> Answer:
        """As Receive. Raises StreamEnded where another node leads."""
        context: Any = Context()
        return await self._calls.answer("Receive", raw, context, self._consumer._receive)

    async def ack(self, raw: bytes) -> Answer:
        """As Ack. Raises StreamEnded where another node leads."""
        context: Any = Context()
        return await self._calls.answer("Ack", raw, context, partial(self._consumer._settle, pb.AckRequest))

    def consume(self, requests: asyncio.Queue[pb.ConsumeRequest | None]) -> AsyncIterator[bytes]:
        """As Consume; None ends the requests. Raises StreamEnded."""

        async def raw() -> AsyncIterator[bytes]:
            while (request := await requests.get()) is not None:
                yield request.SerializeToString()

        context: Any = Context()
        return self._consumer._consume(raw(), context)
