"""ConsumerService: one stream a consumer, or calls that receive and settle, at the leader."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final, TypeVar

import grpc
import numpy as np

from tarry.node.assembly import Core
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.in_flight import Batch
from tarry.node.delivery.offset_pieces import PIECE_OFFSETS, Pieces
from tarry.node.delivery.settlement import Offsets, Settlement, Stale
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.field_count import fields, more_fields
from tarry.node.edge.forwarded_caller import IsNode, caller_of, shown_address
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, ServiceHandler, parse
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.edge.request_bytes import OVERHEAD_BYTES
from tarry.node.services.subscriptions import Subscriptions
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal

R = TypeVar("R")

SERVICE: Final = "tarry.v1.ConsumerService"
SUBSCRIBE: Final = pb.ConsumeRequest.SUBSCRIBE_FIELD_NUMBER
FIELDS_MAX: Final = 1_024
"""Of a request, and of its subscribe: not of offsets, which are within those."""
STREAMS: Final = 50
"""Opened or closed in one turn of the event loop, at some 0.15 ms each: a leadership's end closes all."""
DISK_WAIT_MS: Final = 1_000
"""Time for which Receive waits, however short its own, while what is due is read from the disk."""
REQUESTS: Final = 250
"""Of consumers that are worked on in one turn of the event loop, at some 0.04 ms each."""
REQUESTS_OFFSETS: Final = 2 * PIECE_OFFSETS
"""That these name: some 10 ms to resume, 3 ms to extend, 1 ms to settle."""
BREAK_NOTICE_S: Final = 0.05
"""A broken stream looks like one that was ended in order, until gRPC cancels the call."""


@dataclass(slots=True)
class _Session:
    """One stream, subscribed."""

    group: GroupDelivery
    consumer: Consumer


_LEFT: Final = Refusal(Reason.SHUTTING_DOWN, "the consumer has left")
_BROKEN: Final = Refusal(Reason.SHUTTING_DOWN, "reading its requests failed")


class ConsumerService:
    """Serves consumers."""

    def __init__(
        self, core: Core, authorizer: Authorizer, calls: LeaderCalls, is_node: IsNode = lambda _: False
    ) -> None:
        self._config, self._leadership, self._holds = core.config, core.leadership, core.holds
        self._is_node = is_node
        self._subscriptions = Subscriptions(core, authorizer)
        self._calls = calls
        self._pieces = Pieces()
        self._requests = IntakeTurns()
        self._streams = IntakeTurns()

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        unary = {
            "Ack": parsed(pb.AckRequest, self._settle),
            "Nack": parsed(pb.NackRequest, self._settle),
            "Extend": parsed(pb.ExtendRequest, self._extend),
        }
        methods = {name: self._calls.unary(f"/{SERVICE}/{name}", local) for name, local in unary.items()}
        receive, waits_s = parsed(pb.ReceiveRequest, self._receive), self._config.delivery.wait_ms_max / 1000
        methods["Receive"] = self._calls.unary(f"/{SERVICE}/Receive", receive, waits_s)
        methods["Consume"] = grpc.stream_stream_rpc_method_handler(self._consume)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # -- the stream ----------------------------------------------------------------------

    async def _consume(self, requests: AsyncIterator[bytes], context: CallContext) -> AsyncIterator[bytes]:
        try:
            session = await self._open(requests, context)
        except UnitsDamaged as damage:
            session = self._calls.damaged(damage)
        if isinstance(session, Refusal):
            await abort(context, session)
        reader = asyncio.ensure_future(self._read(requests, session))
        try:
            while (response := await session.consumer.next_response()) is not None:
                if session.consumer.caught_up():
                    session.group.pump_soon()  # while this one is written
                yield response
            await self._streams.enter(1 / STREAMS)
        finally:
            reader.cancel()
            ended = session.consumer.ended
            session.group.leave(session.consumer, clean=ended is _LEFT)
        if ended is _LEFT:
            await self._subscriptions.left(session.group)
        if ended is _BROKEN:
            try:
                await reader  # its error ends the call
            except UnitsDamaged as damage:
                ended = self._calls.damaged(damage)
        if ended is not None and ended is not _LEFT:
            await abort(context, ended)

    async def _open(self, requests: AsyncIterator[bytes], context: CallContext) -> _Session | Refusal:
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        if delivery.consumers >= self._config.limits.consumers_max:
            text = f"this node has {delivery.consumers} consumers, its maximum"
            return Refusal(Reason.TOO_MANY_STREAMS, text, retry_ms=5_000)
        raw = await anext(aiter(requests), None)
        await self._streams.enter(1 / STREAMS)
        request = _parsed(raw) if raw is not None else None
        if isinstance(request, Refusal):
            return request
        if request is None or request.WhichOneof("request") != "subscribe":
            return Refusal(Reason.SUBSCRIBE_FIRST, "the first request of a stream is its subscribe")
        subscribe = request.subscribe
        name = subscribe.consumer or f"c-{uuid.uuid4().hex[:12]}"
        if subscribe.broadcast:
            subscribe.group = f"{subscribe.group}~{name}"
            if subscribe.start.at == pb.START_AT_UNSPECIFIED:
                subscribe.start.at = pb.START_AT_LATEST
        refusal = self._subscriptions.check(context, subscribe, subscribe.broadcast)
        if refusal is not None:
            return refusal
        consumer = self._subscriptions.consumer(subscribe, name, subscribe.credit)
        consumer.streams, consumer.address = True, self._address(context)
        consumer.temporary = subscribe.temporary or (subscribe.broadcast and not subscribe.consumer)
        consumer.in_hand_bytes_max = subscribe.in_hand_bytes_max or consumer.in_hand_bytes_max
        group = await self._subscriptions.group(consumer, subscribe.start)
        if isinstance(group, Refusal):
            return group
        resumed: dict[int, list[Batch]] = {}
        for held in subscribe.holding:
            kept = await self._each(held.offset, partial(group.resume, consumer, held.queue))
            resumed.setdefault(held.queue, []).extend(batch for batch in kept if batch)
        if self._leadership.delivery is not delivery or group.settlement.ended:  # over meanwhile
            return self._leadership.not_leader()
        if subscribe.holding and (refusal := group.differs(consumer)):
            return refusal
        group.join(consumer, list(chain.from_iterable(resumed.values())))
        subscribed = log_pb.SubscribedColumns(
            consumer=consumer.name,
            lease_ms=consumer.lease_ms,
            node=self._config.node,
            term=delivery.term,
            resumed=[
                log_pb.HoldingColumns(queue=queue, offset=b"".join(map(_resumed, batches)))
                for queue, batches in resumed.items()
                if batches
            ],
        )
        consumer.send(log_pb.ConsumedColumns(subscribed=subscribed).SerializeToString())
        group.pump()
        return _Session(group, consumer)

    async def _read(self, requests: AsyncIterator[bytes], session: _Session) -> None:
        """Take the consumer's requests until it leaves; a bad one ends the stream."""
        try:
            async for raw in requests:
                refusal = await self._holds.steps("Consume", self._take(raw, session))
                if refusal is not None:
                    session.consumer.end(refusal)
                if session.consumer.ended is not None:
                    return
            await asyncio.sleep(BREAK_NOTICE_S)
            session.consumer.end(_LEFT)
        finally:
            session.consumer.end(_BROKEN)  # where nothing has ended it: an error has

    async def _take(self, raw: bytes, session: _Session) -> Refusal | None:
        request = _parsed(raw)
        if isinstance(request, Refusal):
            return request
        consumer = session.consumer
        match request.WhichOneof("request"):
            case "ack":
                settled: pb.Ack | pb.Nack = request.ack
            case "nack":
                settled = request.nack
            case "extend":
                extend = request.extend
                stale = await self._extend_now(extend, consumer.name, session.group)
                if isinstance(stale, Refusal):
                    return stale
                _answer(consumer, extend, stale)
                return None
            case "credit":
                return self._add_credit(request.credit.messages, session)
            case "subscribe":
                return Refusal(Reason.SUBSCRIBED_TWICE, "one stream subscribes once: open another stream")
            case _:
                return Refusal(Reason.REQUEST_EMPTY, "the request holds nothing that this version knows")
        pending = await self._settling(settled, consumer.name, session.group)
        if isinstance(pending, Refusal):
            return pending
        if settled.request:
            pending.add_done_callback(lambda done: _answer(consumer, settled, done.result()))
        return None

    def _add_credit(self, messages: int, session: _Session) -> Refusal | None:
        most = self._config.limits.credit_max
        if not messages:
            return Refusal(Reason.CREDIT_INVALID, "credit of 0 adds nothing: send none, or more")
        if session.consumer.credit + messages > most:
            return Refusal(Reason.CREDIT_INVALID, f"the credit would be more than {most}")
        session.consumer.credit += messages
        session.group.pump()
        return None

    async def _extend_now(
        self, extend: pb.Extend | pb.ExtendRequest, consumer: str, group: GroupDelivery
    ) -> Offsets | Refusal:
        refusal = self._subscriptions.check_lease(extend.lease_ms or 0) or self._subscriptions.check_offsets(
            len(extend.offset)
        )
        if refusal is not None:
            return refusal
        lease_ms = extend.lease_ms or group.lease_ms

        def extended(offsets: Offsets) -> Offsets | Refusal:
            return group.extend(consumer, extend.queue, offsets, lease_ms)

        return _joined(await self._each(extend.offset, extended))

    async def _settling(
        self, settled: pb.Ack | pb.AckRequest | pb.Nack | pb.NackRequest, consumer: str, group: GroupDelivery
    ) -> Stale | Refusal:
        refusal = self._subscriptions.check_offsets(len(settled.offset))
        if refusal is not None:
            return refusal
        settle = partial(_settling, settled, consumer, group.settlement)
        pending = await self._each(settled.offset, settle)
        if isinstance(pending[0], Refusal) or len(pending) == 1:
            return pending[0]
        whole: Stale = asyncio.get_running_loop().create_future()
        asyncio.gather(*(one for one in pending if not isinstance(one, Refusal))).add_done_callback(
            lambda done: whole.set_result(np.concatenate(done.result()))
        )
        return whole

    async def _each(self, offsets: Sequence[int], work: Callable[[Offsets], R]) -> list[R]:
        """Return what the work returns for each piece of the offsets, begun in a turn with room for one."""
        part = 1 / REQUESTS + min(len(offsets), PIECE_OFFSETS) / REQUESTS_OFFSETS
        await self._requests.enter(part)
        return await self._pieces.each(offsets, work)

    def _address(self, context: CallContext) -> str:
        return shown_address(caller_of(context, self._is_node).address)

    # -- calls ---------------------------------------------------------------------------

    async def _receive(self, request: pb.ReceiveRequest, context: CallContext) -> Answer:
        refusal = self._subscriptions.check(context, request)
        if refusal is not None:
            return refusal
        limits = self._config.delivery
        if request.wait_ms > limits.wait_ms_max or request.messages_max > limits.batch_messages_max:
            text = f"wait for at most {limits.wait_ms_max} ms and {limits.batch_messages_max} messages"
            return Refusal(Reason.RECEIVE_INVALID, text)
        if not request.consumer:
            return Refusal(Reason.CONSUMER_INVALID, "name the consumer: its acks must name it too")
        consumer = self._subscriptions.consumer(request, request.consumer, request.messages_max or 1)
        group = await self._subscriptions.group(consumer, request.start)
        if isinstance(group, Refusal):
            return group
        consumer.polls, consumer.address = True, self._address(context)
        group.attach(consumer)
        try:
            await group.pumped()
            async with asyncio.timeout(max(request.wait_ms, DISK_WAIT_MS * group.awaits_disk) / 1000):
                await consumer.readable()
        except TimeoutError:
            pass
        finally:
            group.leave(consumer, clean=False)
        if consumer.ended is not None:
            return consumer.ended
        deliveries = [log_pb.ConsumedColumns.FromString(r).deliveries for r in consumer.take_all()]
        return log_pb.ReceivedColumns(deliveries=deliveries).SerializeToString()

    async def _settle(self, request: pb.AckRequest | pb.NackRequest, context: CallContext) -> Answer:
        group = self._subscriptions.known(context, request)
        if isinstance(group, Refusal):
            return group
        pending = await self._settling(request, request.consumer, group)
        stale = pending if isinstance(pending, Refusal) else await group.settlement.until_end(pending)
        return stale if isinstance(stale, Refusal) else await _answered(stale)

    async def _extend(self, request: pb.ExtendRequest, context: CallContext) -> Answer:
        group = self._subscriptions.known(context, request)
        if isinstance(group, Refusal):
            return group
        stale = await self._extend_now(request, request.consumer, group)
        return stale if isinstance(stale, Refusal) else await _answered(stale)


def _parsed(raw: bytes) -> pb.ConsumeRequest | Refusal:
    """Return the request, unless it has so many fields that parsing it would take long."""
    if len(raw) > OVERHEAD_BYTES:
        parts = [raw, *(part for number, part in islice(fields(raw), FIELDS_MAX) if number == SUBSCRIBE)]
        if any(more_fields(part, FIELDS_MAX) for part in parts):
            text = f"a part of the request has more than {FIELDS_MAX} fields: pack its offsets, name fewer"
            return Refusal(Reason.TOO_MANY_OFFSETS, text)
    return parse(pb.ConsumeRequest, raw)


def _settling(
    settled: pb.Ack | pb.AckRequest | pb.Nack | pb.NackRequest,
    consumer: str,
    settlement: Settlement,
    offsets: Offsets,
) -> Stale | Refusal:
    if isinstance(settled, pb.Ack | pb.AckRequest):
        return settlement.ack(consumer, settled.queue, offsets)
    delay_ms = settled.delay_ms if settled.HasField("delay_ms") else None
    return settlement.nack(consumer, settled.queue, offsets, delay_ms)


def _joined(stale: Iterable[Offsets | Refusal]) -> Offsets | Refusal:
    parts = []
    for part in stale:
        if isinstance(part, Refusal):
            return part
        parts.append(part)
    return np.concatenate(parts)


def _answer(consumer: Consumer, settled: pb.Ack | pb.Nack | pb.Extend, stale: Offsets) -> None:
    if settled.request:
        acked = log_pb.AckedColumns(request=settled.request, queue=settled.queue, stale=_column(stale))
        consumer.send(log_pb.ConsumedColumns(acked=acked).SerializeToString())


async def _answered(stale: Offsets) -> bytes:
    await asyncio.sleep(0)  # half a million have just been joined
    return log_pb.AckResponseColumns(stale=_column(stale)).SerializeToString()


def _resumed(batch: Batch) -> bytes:
    return _column(batch.offsets)


def _column(offsets: Offsets) -> bytes:
    return offsets.astype("<u8", copy=False).tobytes()
