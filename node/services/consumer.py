"""ConsumerService: one stream a consumer, at the leader."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tarry.node.auth import Authorizer, Right
from tarry.node.calls import CallContext, ServiceHandler
from tarry.node.config import NodeConfig
from tarry.node.consumers import Consumer
from tarry.node.delivery import Delivery
from tarry.node.group_delivery import GroupDelivery
from tarry.node.intake import check_name
from tarry.node.services.handlers import refusal_of
from tarry.node.status import abort
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication import command as command_codec
from tarry.replication.driver import Driver
from tarry.replication.machine import Subscribed
from tarry.replication.refusal import Reason, Refusal
from tarry.replication.status import NotLeader, Overloaded, Unknown

SERVICE: Final = "tarry.v1.ConsumerService"
NAME_CHARS_MAX: Final = 100


@dataclass(slots=True)
class _Session:
    """One stream, subscribed."""

    delivery: Delivery
    group: GroupDelivery
    consumer: Consumer


class ConsumerService:
    """Serves Consume."""

    def __init__(
        self,
        config: NodeConfig,
        driver: Driver,
        authorizer: Authorizer,
        delivery: Callable[[], Delivery | None],
        not_leader: Callable[[], Refusal],
    ) -> None:
        self._config = config
        self._driver = driver
        self._authorizer = authorizer
        self._delivery = delivery
        self._not_leader = not_leader

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        methods = {"Consume": grpc.stream_stream_rpc_method_handler(self._consume)}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _consume(self, requests: AsyncIterator[bytes], context: CallContext) -> AsyncIterator[bytes]:
        session = await self._open(requests, context)
        if isinstance(session, Refusal):
            await abort(context, session)
        reader = asyncio.ensure_future(self._read(requests, session))
        try:
            while (response := await session.consumer.next_response()) is not None:
                yield response
                if session.consumer.caught_up():
                    session.group.pump()
        finally:
            reader.cancel()
            ended = session.consumer.ended
            session.group.leave(session.consumer, clean=ended is _LEFT)
        if ended is not None and ended is not _LEFT:
            await abort(context, ended)

    async def _open(self, requests: AsyncIterator[bytes], context: CallContext) -> _Session | Refusal:
        delivery = self._delivery()
        if delivery is None:
            return self._not_leader()
        if delivery.consumers >= self._config.limits.consumers_max:
            text = f"this node has {delivery.consumers} consumers, its maximum"
            return Refusal(Reason.TOO_MANY_STREAMS, text, retry_ms=5_000)
        raw = await anext(aiter(requests), None)
        if raw is None:
            return Refusal(Reason.SUBSCRIBE_FIRST, "the stream ended before its subscribe")
        request = _parse(raw)
        if isinstance(request, Refusal):
            return request
        if request.WhichOneof("request") != "subscribe":
            return Refusal(Reason.SUBSCRIBE_FIRST, "the first request of a stream is its subscribe")
        subscribe = request.subscribe
        refusal = self._check(subscribe) or self._authorizer.refusal(
            context, Right.CONSUME, [subscribe.topic]
        )
        if refusal is not None:
            return refusal
        command = log_pb.SubscribeCommand(topic=subscribe.topic, group=subscribe.group)
        try:
            queues: Subscribed | Refusal = await self._driver.propose(command_codec.encode(command))
        except NotLeader:
            return self._not_leader()
        except (Overloaded, Unknown) as error:
            return refusal_of(error)
        if isinstance(queues, Refusal):
            return queues
        if self._delivery() is not delivery:
            return self._not_leader()
        return self._join(delivery, subscribe, queues)

    def _join(self, delivery: Delivery, subscribe: pb.Subscribe, queues: Subscribed) -> _Session:
        consumer = Consumer(
            name=subscribe.consumer or f"c-{uuid.uuid4().hex[:12]}",
            topic=subscribe.topic,
            group=subscribe.group,
            lease_ms=subscribe.lease_ms or self._config.delivery.lease_ms,
            credit=subscribe.credit,
            tags=frozenset(subscribe.tags),
        )
        group = delivery.group(subscribe.topic, subscribe.group, queues.queue, queues.retry_queue)
        holding = {h.queue: _offsets(h.offset) for h in subscribe.holding}
        resumed = group.join(consumer, holding)
        subscribed = pb.Subscribed(
            consumer=consumer.name,
            lease_ms=consumer.lease_ms,
            node=self._config.node,
            term=delivery.term,
            resumed=[pb.Holding(queue=queue, offset=offsets) for queue, offsets in resumed.items()],
        )
        consumer.send(pb.ConsumeResponse(subscribed=subscribed).SerializeToString())
        group.pump()
        return _Session(delivery, group, consumer)

    def _check(self, subscribe: pb.Subscribe) -> Refusal | None:
        limits, delivery = self._config.limits, self._config.delivery
        refusal = check_name(
            subscribe.topic, limits.topic_chars_max, Reason.TOPIC_INVALID, "topic"
        ) or check_name(subscribe.group, limits.group_chars_max, Reason.GROUP_INVALID, "group")
        if refusal is not None:
            return refusal
        if subscribe.consumer:
            refusal = check_name(subscribe.consumer, NAME_CHARS_MAX, Reason.CONSUMER_INVALID, "consumer")
        if subscribe.credit > limits.credit_max:
            text = f"credit {subscribe.credit} is more than {limits.credit_max}"
            refusal = refusal or Refusal(Reason.CREDIT_INVALID, text)
        low, high = delivery.lease_ms_min, delivery.lease_ms_max
        if subscribe.lease_ms and not low <= subscribe.lease_ms <= high:
            text = f"lease_ms {subscribe.lease_ms} is not within {low} to {high}"
            refusal = refusal or Refusal(Reason.LEASE_INVALID, text)
        if len(subscribe.tags) > limits.tags_max:
            text = f"{len(subscribe.tags)} tags, more than {limits.tags_max}"
            refusal = refusal or Refusal(Reason.TOO_MANY_TAGS, text)
        return refusal

    async def _read(self, requests: AsyncIterator[bytes], session: _Session) -> None:
        """Take the consumer's requests until it leaves; a bad one ends the stream."""
        consumer, group = session.consumer, session.group
        async for raw in requests:
            request = _parse(raw)
            refusal = request if isinstance(request, Refusal) else self._take(request, consumer, group)
            if refusal is not None:
                consumer.end(refusal)
                return
        consumer.end(_LEFT)

    def _take(self, request: pb.ConsumeRequest, consumer: Consumer, group: GroupDelivery) -> Refusal | None:
        match request.WhichOneof("request"):
            case "ack":
                ack = request.ack
                return group.ack(consumer, ack.request, ack.queue, _offsets(ack.offset))
            case "credit":
                most = self._config.limits.credit_max
                if consumer.credit + request.credit.messages > most:
                    return Refusal(Reason.CREDIT_INVALID, f"the credit would be more than {most}")
                consumer.credit += request.credit.messages
                group.pump()
                return None
            case "nack":
                nack = request.nack
                delay_ms = nack.delay_ms if nack.HasField("delay_ms") else None
                return group.nack(consumer, nack.request, nack.queue, _offsets(nack.offset), delay_ms)
            case "subscribe":
                return Refusal(Reason.SUBSCRIBED_TWICE, "one stream subscribes once: open another stream")
            case _:
                return Refusal(Reason.REQUEST_EMPTY, "the request holds nothing that this version knows")


_LEFT: Final = Refusal(Reason.SHUTTING_DOWN, "the consumer has left")


def _offsets(offsets: object) -> NDArray[np.uint64]:
    return np.unique(np.array(offsets, dtype=np.uint64))


def _parse(raw: bytes) -> pb.ConsumeRequest | Refusal:
    try:
        return pb.ConsumeRequest.FromString(raw)
    except DecodeError:
        return Refusal(Reason.RECORD_INVALID, "the request is not a tarry.v1.ConsumeRequest")
