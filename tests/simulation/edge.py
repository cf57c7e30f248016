"""A node's services without gRPC: the same code from the request's bytes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.services.cancel_matching import CancelCalls
from tarry.node.services.consumer import ConsumerService
from tarry.node.services.listing import ListCalls
from tarry.node.services.producer import ProducerService
from tarry.node.services.recurring import RecurringService
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.tarry_producer_pb2 import CancelRequest, GetRequest, RescheduleRequest, UpdateRequest
from tarry.proto.tarry_query_pb2 import CancelMatchingRequest, ListMessagesRequest
from tarry.proto.tarry_transaction_pb2 import ChecksRequest, EndTransactionRequest, PrepareRequest
from tests.simulation.processor import BYTE_US, CALL_US, Processor

Handler = Callable[[bytes, Any], Awaitable[Answer]]


class StreamEnded(Exception):
    """The server ended the call; the text says why."""


class Context:
    """What handlers use of a gRPC call."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return None

    async def abort(self, code: grpc.StatusCode, text: str, metadata: Any = ()) -> NoReturn:
        raise StreamEnded(text)


class _NoForwarding:
    async def forward(self, address: str, *_: object) -> Answer:
        raise StreamEnded(f"ask {address}")


class Edge:
    """Of one start of a node."""

    def __init__(self, core: Core, processor: Processor) -> None:
        self._processor = processor
        leadership = core.leadership
        forwarder: Any = _NoForwarding()
        calls = LeaderCalls(
            leadership.serves,
            leadership.not_leader,
            leadership.wait.until_led,
            forwarder,
            leadership.stop_for,
            core.damage.indices.report_path,
            core.damage.queues.report,
        )
        self._calls = calls
        self._under_way: dict[asyncio.Task[Answer], None] = {}  # in their order: a set has none
        self._producer = ProducerService(core, Authorizer({}), calls)
        self._consumer = ConsumerService(core, Authorizer({}), calls)
        self._cancels = CancelCalls(core, Authorizer({}), calls)
        self._lists = ListCalls(core, Authorizer({}), calls)
        self._recurring = RecurringService(core, Authorizer({}), calls).locals()

    async def schedule(self, raw: bytes) -> Answer:
        """As ScheduleBatch. Raises StreamEnded where another node leads."""
        return await self._answer("ScheduleBatch", raw, self._producer._schedule_batch)

    async def cancel(self, raw: bytes) -> Answer:
        """As Cancel. Raises StreamEnded where another node leads."""
        return await self._answer("Cancel", raw, parsed(CancelRequest, self._producer._cancel))

    async def cancel_matching(self, raw: bytes) -> Answer:
        """As CancelMatching. Raises StreamEnded where another node leads."""
        return await self._answer("CancelMatching", raw, parsed(CancelMatchingRequest, self._cancels._cancel))

    async def list(self, raw: bytes) -> Answer:
        """As ListMessages. Raises StreamEnded where another node leads."""
        return await self._answer("ListMessages", raw, parsed(ListMessagesRequest, self._lists._list))

    async def reschedule(self, raw: bytes) -> Answer:
        """As Reschedule. Raises StreamEnded where another node leads."""
        handler = parsed(RescheduleRequest, self._producer._changes.reschedule)
        return await self._answer("Reschedule", raw, handler)

    async def update(self, raw: bytes) -> Answer:
        """As Update. Raises StreamEnded where another node leads."""
        return await self._answer("Update", raw, parsed(UpdateRequest, self._producer._changes.update))

    async def get(self, raw: bytes) -> Answer:
        """As Get. Raises StreamEnded where another node leads."""
        return await self._answer("Get", raw, parsed(GetRequest, self._producer._get))

    async def recurring(self, name: str, raw: bytes) -> Answer:
        """As a call of RecurringService. Raises StreamEnded where another node leads."""
        return await self._answer(name, raw, self._recurring[name])

    async def prepare(self, raw: bytes) -> Answer:
        """As Prepare. Raises StreamEnded where another node leads."""
        return await self._answer(
            "Prepare", raw, parsed(PrepareRequest, self._producer._transactions.prepare)
        )

    async def end_transaction(self, raw: bytes) -> Answer:
        """As EndTransaction. Raises StreamEnded where another node leads."""
        handler = parsed(EndTransactionRequest, self._producer._transactions.end)
        return await self._answer("EndTransaction", raw, handler)

    def checks(self, requests: asyncio.Queue[ChecksRequest | None]) -> AsyncIterator[bytes]:
        """As Checks; None ends the requests. Raises StreamEnded."""

        async def raw() -> AsyncIterator[bytes]:
            while (request := await requests.get()) is not None:
                yield request.SerializeToString()

        context: Any = Context()
        return self._producer._transactions.checks(raw(), context)

    async def receive(self, raw: bytes) -> Answer:
        """As Receive. Raises StreamEnded where another node leads."""
        return await self._answer(
            "Receive", raw, parsed(pb.ReceiveRequest, self._consumer._receive), delivers=True
        )

    async def ack(self, raw: bytes) -> Answer:
        """As Ack. Raises StreamEnded where another node leads."""
        return await self._answer("Ack", raw, parsed(pb.AckRequest, self._consumer._settle), delivers=True)

    async def nack(self, raw: bytes) -> Answer:
        """As Nack. Raises StreamEnded where another node leads."""
        return await self._answer("Nack", raw, parsed(pb.NackRequest, self._consumer._settle), delivers=True)

    async def extend(self, raw: bytes) -> Answer:
        """As Extend. Raises StreamEnded where another node leads."""
        return await self._answer(
            "Extend", raw, parsed(pb.ExtendRequest, self._consumer._extend), delivers=True
        )

    async def _answer(self, name: str, raw: bytes, handler: Handler, *, delivers: bool = False) -> Answer:
        """As a task of the node: it waits while the node is busy."""
        task = asyncio.get_running_loop().create_task(
            self._handled(name, raw, handler, delivers=delivers), context=self._processor.context
        )
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        try:
            await asyncio.wait((task,))
            if task.cancelled():
                raise StreamEnded("the node is gone")
            return task.result()
        finally:
            task.cancel()

    def end(self) -> list[asyncio.Task[Answer]]:
        """End all calls that are under way, and return them: the node is gone, and its files may be, too."""
        ended = list(self._under_way)
        for task in ended:
            task.cancel()
        return ended

    async def _handled(self, name: str, raw: bytes, handler: Handler, *, delivers: bool) -> Answer:
        context: Any = Context()
        self._processor.charge(CALL_US + BYTE_US * len(raw))
        answer = await self._calls.answer(name, raw, context, handler, delivers=delivers)
        await self._processor.idle()
        return answer

    def consume(self, requests: asyncio.Queue[pb.ConsumeRequest | None]) -> AsyncIterator[bytes]:
        """As Consume; None ends the requests. Raises StreamEnded."""

        async def raw() -> AsyncIterator[bytes]:
            while (request := await requests.get()) is not None:
                yield request.SerializeToString()

        context: Any = Context()
        return self._consumer._consume(raw(), context)
