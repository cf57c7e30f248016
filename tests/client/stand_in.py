"""Nodes that stand in for a cluster, in one process: to lose answers, lead wrongly, and refuse on demand.

They keep what a client can observe of the real ones: the answers of a
producer's requests, redirects, streams with credit and resume.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tarry.client.consumers.consumer import Consumer
from tarry.client.consumers.message import Message
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.tarry_consumer_pb2_grpc import ConsumerServiceServicer, add_ConsumerServiceServicer_to_server
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2_grpc import OperatorServiceServicer, add_OperatorServiceServicer_to_server
from tarry.proto.tarry_producer_pb2_grpc import ProducerServiceServicer, add_ProducerServiceServicer_to_server

Stream = AsyncIterator[consumer_pb.ConsumeRequest]


Hook = Callable[["NodeStandIn", producer_pb.ScheduleBatchRequest, Any], Awaitable[None]]


async def refuse(
    context: Any,
    code: grpc.StatusCode,
    reason: str,
    facts: Mapping[str, str] | None = None,
    retry_ms: int | None = None,
) -> None:
    """End the call as a node does."""
    status = status_pb2.Status(code=code.value[0], message=reason.lower())
    info, packed = (
        error_details_pb2.ErrorInfo(domain="tarry", reason=reason, metadata=facts or {}),
        AnyMessage(),
    )
    packed.Pack(info)
    status.details.append(packed)
    if retry_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        more = AnyMessage()
        more.Pack(retry)
        status.details.append(more)
    await context.abort(code, reason.lower(), (("grpc-status-details-bin", status.SerializeToString()),))


class RefusedOfStream(Exception):
    """One request of a schedule stream is refused."""

    def __init__(self, status: status_pb2.Status) -> None:
        self.status = status


class OfStream:
    """A stream's context as one of its requests has it: a refusal with details is of that request alone."""

    def __init__(self, context: Any) -> None:
        self.whole = context

    def invocation_metadata(self) -> Any:
        return self.whole.invocation_metadata()

    async def abort(self, code: grpc.StatusCode, text: str, details: Any = ()) -> None:
        for _, status in details:
            raise RefusedOfStream(status_pb2.Status.FromString(status))
        await self.whole.abort(code, text)


class ClusterStandIn:
    """What the nodes share."""

    def __init__(self) -> None:
        self.nodes: list[NodeStandIn] = []
        self.leader: NodeStandIn | None = None
        self.term = 1
        self.streams = 0
        """Schedule streams that are open."""
        self.calls: Counter[str] = Counter()
        self.requests: list[producer_pb.ScheduleBatchRequest] = []
        """Every ScheduleBatch that reached a leader, repeated ones too."""
        self.scheduled: list[bytes] = []
        self.answers: dict[tuple[str, int], producer_pb.ScheduleBatchResponse] = {}
        self.by_idempotency_key: dict[tuple[str, str], tuple[int, int]] = {}
        """Topic and key -> position in ``scheduled``, due time."""
        self.on_schedule: (
            Callable[[NodeStandIn, producer_pb.ScheduleBatchRequest, Any], Awaitable[None]] | None
        )
        self.on_schedule = None
        """Called before an answer leaves; may end the call."""
        self.before_schedule = self.on_schedule
        self.on_consume: Callable[[NodeStandIn, Stream, Any], AsyncIterator[consumer_pb.ConsumeResponse]]
        self.transfers_may_end = True
        self.metadata: list[dict[str, str]] = []
        self.waits_ms: list[int] = []
        """Of every Receive."""
        self.changed = asyncio.Condition()
        self.more_services: list[Callable[[NodeStandIn, Any], None]] = []
        """Each adds a service to a node's server before that starts."""

    async def until(self, done: Callable[[], bool]) -> None:
        """Return as soon as the condition holds after a call has arrived; fails after 10 s."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(done)

    @property
    def addresses(self) -> str:
        return ",".join(node.address for node in self.nodes)

    async def start(self, size: int) -> None:
        for number in range(size):
            node = NodeStandIn(self, f"n{number + 1}")
            await node.start()
            self.nodes.append(node)
        self.lead(self.nodes[0])

    def lead(self, node: NodeStandIn | None) -> None:
        self.leader = node
        self.term += 1

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))

    def answer(self, request: producer_pb.ScheduleBatchRequest) -> producer_pb.ScheduleBatchResponse:
        """Apply a request as the state machine does: once."""
        if Record.FromString(request.records[0]).idempotency_key:
            return self._answer_by_keys(request)
        key = (request.producer, request.sequence)
        if key in self.answers:
            repeated = producer_pb.ScheduleBatchResponse()
            repeated.CopyFrom(self.answers[key])
            repeated.repeated = True
            return repeated
        first = len(self.scheduled)
        self.scheduled += request.records
        count = len(request.records)
        due_ms = _due_ms(request)
        self.answers[key] = producer_pb.ScheduleBatchResponse(
            hour=[1] * count, global_index=range(first, first + count), due_ms=due_ms
        )
        return self.answers[key]

    def _answer_by_keys(self, request: producer_pb.ScheduleBatchRequest) -> producer_pb.ScheduleBatchResponse:
        """Schedule of each idempotency key the first message only."""
        answer = producer_pb.ScheduleBatchResponse(hour=[1] * len(request.records))
        topic = list(request.topic) or [0] * len(request.records)
        for position, (record, due_ms) in enumerate(zip(request.records, _due_ms(request), strict=True)):
            key = request.topics[topic[position]], Record.FromString(record).idempotency_key
            assert key[1]
            if key in self.by_idempotency_key:
                answer.repeats.append(position)
            else:
                self.by_idempotency_key[key] = len(self.scheduled), due_ms
                self.scheduled.append(record)
            place, first_due_ms = self.by_idempotency_key[key]
            answer.global_index.append(place)
            answer.due_ms.append(first_due_ms)
        return answer


def _due_ms(request: producer_pb.ScheduleBatchRequest) -> list[int]:
    now_ms = int(time.time() * 1_000)
    given = list(request.due_ms) or [now_ms + delay for delay in request.delay_ms]
    return given or [now_ms] * len(request.records)


class NodeStandIn(ProducerServiceServicer, ConsumerServiceServicer, OperatorServiceServicer):
    """One node on a port of its own."""

    def __init__(self, cluster: ClusterStandIn, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address = ""
        self.silent = False
        """Takes calls and never answers, as a node that is stopped does."""
        self.streams_end: Callable[[Any], Awaitable[None]] | None = None
        """Ends each schedule stream when it is opened."""
        self.streams_say: Callable[[Any], Any] = lambda answer: answer
        """Alters each answer on a schedule stream."""
        self._server: Any = None

    async def start(self) -> None:
        self._server = aio.server()
        add_ProducerServiceServicer_to_server(self, self._server)
        add_ConsumerServiceServicer_to_server(self, self._server)
        add_OperatorServiceServicer_to_server(self, self._server)
        for add in self.cluster.more_services:
            add(self, self._server)
        port = self._server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    @property
    def leads(self) -> bool:
        return self.cluster.leader is self

    async def ClusterStatus(self, request: Any, context: Any) -> operator_pb.ClusterStatusResponse:  # noqa: N802
        await self._arrived("ClusterStatus", context)
        leader = self.cluster.leader
        return operator_pb.ClusterStatusResponse(
            node=self.name,
            leader=leader.name if leader else "",
            term=self.cluster.term,
            lease=self.leads,
            members=[operator_pb.Member(node=n.name, address=n.address) for n in self.cluster.nodes],
        )

    async def ScheduleBatch(  # noqa: N802
        self, request: producer_pb.ScheduleBatchRequest, context: Any
    ) -> producer_pb.ScheduleBatchResponse:
        return await self._schedule(request, context)

    async def ScheduleStream(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterator[producer_pb.ScheduleStreamRequest], context: Any
    ) -> AsyncIterator[producer_pb.ScheduleStreamResponse]:
        """Answer in order, as a node does; a refusal is of one request, any other end of a call of all."""
        self.cluster.calls[f"{self.name}.ScheduleStream"] += 1
        if self.streams_end is not None:
            await self.streams_end(context)
        answers: asyncio.Queue[Any] = asyncio.Queue()
        self.cluster.streams += 1

        async def one(number: int, batch: producer_pb.ScheduleBatchRequest) -> Any:
            try:
                accepted = await self._schedule(batch, OfStream(context))
            except RefusedOfStream as refusal:
                return producer_pb.ScheduleStreamResponse(request=number, refused=refusal.status)
            return producer_pb.ScheduleStreamResponse(request=number, accepted=accepted)

        async def read() -> None:
            async for request in requests:
                answers.put_nowait(asyncio.ensure_future(one(request.request, request.batch)))
            answers.put_nowait(None)

        reader = asyncio.ensure_future(read())
        try:
            while (answer := await answers.get()) is not None:
                yield self.streams_say(await answer)
        finally:
            reader.cancel()
            self.cluster.streams -= 1
            async with self.cluster.changed:
                self.cluster.changed.notify_all()

    async def _schedule(
        self, request: producer_pb.ScheduleBatchRequest, context: Any
    ) -> producer_pb.ScheduleBatchResponse:
        await self._arrived("ScheduleBatch", context)
        await self._only_leader(context)
        self.cluster.requests.append(request)
        async with self.cluster.changed:
            self.cluster.changed.notify_all()
        if self.cluster.before_schedule is not None:
            await self.cluster.before_schedule(self, request, context)
        answer = self.cluster.answer(request)
        if self.cluster.on_schedule is not None:
            await self.cluster.on_schedule(self, request, context)
        return answer

    async def TransferLeadership(self, request: Any, context: Any) -> operator_pb.TransferLeadershipResponse:  # noqa: N802
        await self._arrived("TransferLeadership", context)
        await self._only_leader(context)
        self.cluster.lead(self.cluster.nodes[-1])
        await self.cluster.until(lambda: self.cluster.transfers_may_end)
        return operator_pb.TransferLeadershipResponse(
            leader=self.cluster.nodes[-1].name, term=self.cluster.term
        )

    async def Cancel(self, request: producer_pb.CancelRequest, context: Any) -> producer_pb.CancelResponse:  # noqa: N802
        await self._arrived("Cancel", context)
        await self._only_leader(context)
        return producer_pb.CancelResponse(outcomes=[producer_pb.CANCEL_OUTCOME_CANCELLED] * len(request.ids))

    async def Get(self, request: producer_pb.GetRequest, context: Any) -> producer_pb.GetResponse:  # noqa: N802
        await self._arrived("Get", context)
        await refuse(context, grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")
        raise AssertionError

    async def Receive(self, request: consumer_pb.ReceiveRequest, context: Any) -> consumer_pb.ReceiveResponse:  # noqa: N802
        self.cluster.waits_ms.append(request.wait_ms)
        await self._arrived("Receive", context)
        await self._only_leader(context)
        return consumer_pb.ReceiveResponse()

    async def Consume(self, requests: Stream, context: Any) -> AsyncIterator[consumer_pb.ConsumeResponse]:  # type: ignore[override]  # noqa: N802
        await self._arrived("Consume", context)
        await self._only_leader(context)
        async for response in self.cluster.on_consume(self, requests, context):
            yield response

    async def _arrived(self, call: str, context: Any) -> None:
        self.cluster.calls[f"{self.name}.{call}"] += 1
        self.cluster.metadata.append({str(k): str(v) for k, v in context.invocation_metadata()})
        async with self.cluster.changed:
            self.cluster.changed.notify_all()
        if self.silent:
            await asyncio.Event().wait()

    async def _only_leader(self, context: Any) -> None:
        if self.leads:
            return
        leader = self.cluster.leader
        if leader is None:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "NO_LEADER", retry_ms=20)
        else:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "NOT_LEADER", {"leader": leader.address})


class GroupStandIn:
    """Streams of one group, as a script: deliveries are put in, what consumers send is kept."""

    def __init__(self, cluster: ClusterStandIn) -> None:
        self.cluster = cluster
        self.subscribed: list[consumer_pb.Subscribe] = []
        self.received: list[consumer_pb.ConsumeRequest] = []
        self.changed = asyncio.Condition()
        self.answer_acks = True
        self.stale: set[int] = set()
        self.resume: Callable[[consumer_pb.Holding], list[int]] = lambda holding: list(holding.offset)
        self.incarnation = 0
        self._streams: list[asyncio.Queue[Any]] = []
        cluster.on_consume = self._consume

    async def _consume(
        self, node: NodeStandIn, requests: Stream, context: Any
    ) -> AsyncIterator[consumer_pb.ConsumeResponse]:
        subscribe = (await anext(aiter(requests))).subscribe
        out: asyncio.Queue[Any] = asyncio.Queue()
        resumed = [consumer_pb.Holding(queue=h.queue, offset=self.resume(h)) for h in subscribe.holding]
        yield consumer_pb.ConsumeResponse(
            subscribed=consumer_pb.Subscribed(
                consumer=subscribe.consumer,
                lease_ms=subscribe.lease_ms or 30_000,
                node=node.name,
                term=self.cluster.term,
                resumed=resumed,
                incarnation=self.incarnation,
            )
        )
        await self._note(lambda: (self.subscribed.append(subscribe), self._streams.append(out)))
        reader = asyncio.ensure_future(self._read(requests, out))
        try:
            while (item := await out.get()) is not None:
                if callable(item):
                    await item(context)
                yield item
        finally:
            reader.cancel()

    async def _read(self, requests: Stream, out: asyncio.Queue[Any]) -> None:
        async for request in requests:
            await self._note(lambda request=request: self.received.append(request))
            settled = getattr(request, request.WhichOneof("request"))
            if self.answer_acks and getattr(settled, "request", 0):
                stale = [offset for offset in settled.offset if offset in self.stale]
                acked = consumer_pb.Acked(request=settled.request, queue=settled.queue, stale=stale)
                await out.put(consumer_pb.ConsumeResponse(acked=acked))
        await out.put(None)

    async def _note(self, change: Callable[[], Any]) -> None:
        async with self.changed:
            change()
            self.changed.notify_all()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; fails after 10 s."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(done)

    async def deliver(self, offsets: range, queue: int = 3, **columns: Any) -> None:
        """Send deliveries on the newest stream; the body is the offset as text."""
        await self.until(lambda: bool(self._streams))
        records = columns.pop("records", [b"\x22" + bytes([len(str(o))]) + str(o).encode() for o in offsets])
        deliveries = consumer_pb.Deliveries(
            queue=queue,
            topic=columns.pop("topic", "orders"),
            offset=offsets,
            hour=[1] * len(offsets),
            global_index=offsets,
            due_ms=[1_000 + offset for offset in offsets],
            released_ms=[990 + offset for offset in offsets],
            records=records,
            stamp=consumer_pb.DispatchStamp(node="n1", term=2, tick=1, local_index=len(offsets)),
            **columns,
        )
        await self._streams[-1].put(consumer_pb.ConsumeResponse(deliveries=deliveries))

    async def end(self, ending: Callable[[Any], Awaitable[None]]) -> None:
        """End the newest stream in a way of the test's choice."""
        await self._streams[-1].put(ending)

    def acked(self) -> list[int]:
        """Return every offset acked so far, in order of arrival."""
        return [offset for request in self.received for offset in request.ack.offset]

    def credit(self) -> int:
        """Return the credit given after the last subscribe."""
        return sum(request.credit.messages for request in self.received)


async def take(consumer: Consumer, count: int) -> list[Message]:
    """Return the next messages; fails after 10 s."""
    async with asyncio.timeout(10):
        return [await anext(consumer) for _ in range(count)]


async def break_off(context: Any) -> None:
    """End a stream as a connection that breaks does."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
