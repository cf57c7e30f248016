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
from tarry.node.delivery.delivery import Delivery
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.in_flight import Batch
from tarry.node.delivery.offset_pieces import PIECE_OFFSETS, Pieces, column
from tarry.node.delivery.retries import Delay
from tarry.node.delivery.settlement import Offsets, Settlement, Stale
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.field_count import fields, more_fields
from tarry.node.edge.forwarded_caller import IsNode, caller_of, shown_address
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, ServiceHandler, parse
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.edge.request_bytes import OVERHEAD_BYTES
from tarry.node.services.many_topics import TopicsFollowed
from tarry.node.services.subscriptions import Subscriptions, subscribed
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
class _OneTopic:
    """Side of a stream towards its one topic; ``TopicsFollowed`` is that of several."""

    group: GroupDelivery
    consumer: Consumer
    subscriptions: Subscriptions

    def group_of(self, queue: int) -> GroupDelivery | Refusal | None:
        return self.group

    def give(self) -> None:
        self.group.pump()

    def caught_up(self) -> None:
        self.group.pump_soon()

    async def leave(self, *, clean: bool) -> None:
        self.group.leave(self.consumer, clean=clean)
        if clean:
            await self.subscriptions.left(self.group)


@dataclass(slots=True)
class _Session:
    """One stream, subscribed."""

    consumer: Consumer
    topics: _OneTopic | TopicsFollowed


_LEFT: Final = Refusal(Reason.SHUTTING_DOWN, "the consumer has left")
_BROKEN: Final = Refusal(Reason.SHUTTING_DOWN, "reading its requests failed")


def _error_of(task: asyncio.Future[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


class ConsumerService:
    """Serves consumers."""

    def __init__(
        self, core: Core, authorizer: Authorizer, calls: LeaderCalls, is_node: IsNode = lambda _: False
    ) -> None:
        self._core, self._config = core, core.config
        self._leadership, self._holds = core.leadership, core.holds
        self._is_node = is_node
        self._subscriptions = Subscriptions(core, authorizer)
        self._calls = calls
        self._pieces = Pieces()
        self._requests = IntakeTurns()
        self._streams = IntakeTurns()
        self._received = 0  # calls with several topics: each begins with another one

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        unary = {
            "Ack": parsed(pb.AckRequest, self._settle),
            "Nack": parsed(pb.NackRequest, self._settle),
            "Extend": parsed(pb.ExtendRequest, self._extend),
        }
        delivers = partial(self._calls.unary, delivers=True)
        methods = {name: delivers(f"/{SERVICE}/{name}", local) for name, local in unary.items()}
        receive, waits_s = parsed(pb.ReceiveRequest, self._receive), self._config.delivery.wait_ms_max / 1000
        methods["Receive"] = delivers(f"/{SERVICE}/Receive", receive, waits_s)
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
        follower = asyncio.ensure_future(self._follow(session))
        try:
            while (response := await session.consumer.next_response()) is not None:
                if session.consumer.caught_up():
                    session.topics.caught_up()  # while this one is written
                yield response
            await self._streams.enter(1 / STREAMS)
        finally:
            reader.cancel()
            follower.cancel()
            ended = session.consumer.ended
            await session.topics.leave(clean=ended is _LEFT)
        for task in (reader, follower):
            if isinstance(error := _error_of(task), UnitsDamaged):  # also where the stream had ended before
                ended = self._calls.damaged(error)
            elif error is not None and ended is _BROKEN:
                raise error
        if ended is not None and ended is not _LEFT:
            await abort(context, ended)

    async def _open(self, requests: AsyncIterator[bytes], context: CallContext) -> _Session | Refusal:
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        if (refusal := self._consumers_full(delivery)) is not None:
            return refusal
        raw = await anext(aiter(requests), None)
        await self._streams.enter(1 / STREAMS)
        topics_max = self._config.limits.subscribed_topics_max
        request = _parsed(raw, topics_max) if raw is not None else None
        if isinstance(request, Refusal):
            return request
        if request is None or request.WhichOneof("request") != "subscribe":
            return Refusal(Reason.SUBSCRIBE_FIRST, "the first request of a stream is its subscribe")
        subscribe = request.subscribe
        consumer = self._consumer(subscribe, context)
        if isinstance(consumer, Refusal):
            return consumer
        if subscribe.incarnation != self._core.journal.cluster_incarnation:  # it has other messages there
            del subscribe.holding[:]
        if subscribe.topics:
            return await self._open_several(subscribe, consumer, delivery, context)
        return await self._open_one(subscribe, consumer, delivery)

    def _consumer(self, subscribe: pb.Subscribe, context: CallContext) -> Consumer | Refusal:
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
        return consumer

    async def _open_one(
        self, subscribe: pb.Subscribe, consumer: Consumer, delivery: Delivery
    ) -> _Session | Refusal:
        group = await self._subscriptions.group(consumer, subscribe.start)
        if isinstance(group, Refusal):
            return group
        resumed: dict[int, list[Batch]] = {}
        for held in subscribe.holding:
            resumed.setdefault(held.queue, []).extend(await self._resume(consumer, group, held))
        if self._leadership.delivery is not delivery or group.settlement.ended:  # over meanwhile
            return self._leadership.not_leader()
        if subscribe.holding and (refusal := group.differs(consumer)):
            return refusal
        group.join(consumer, list(chain.from_iterable(resumed.values())))
        incarnation = self._core.journal.cluster_incarnation
        node, lease_ms = self._config.node, consumer.lease_ms
        consumer.send(subscribed(consumer.name, lease_ms, node, delivery.term, incarnation, resumed))
        group.pump()
        return _Session(consumer, _OneTopic(group, consumer, self._subscriptions))

    async def _resume(self, consumer: Consumer, group: GroupDelivery, held: pb.Holding) -> list[Batch]:
        kept = await self._each(held.offset, partial(group.resume, consumer, held.queue))
        return [batch for batch in kept if batch]

    async def _open_several(
        self, subscribe: pb.Subscribe, consumer: Consumer, delivery: Delivery, context: CallContext
    ) -> _Session | Refusal:
        topics = self._topics(subscribe, consumer, delivery, context)
        delivery.several[topics.many] = None
        refused: Refusal | None = _BROKEN  # where an error ends this
        try:
            resumed = await topics.open(subscribe.holding, self._resume)
            if isinstance(resumed, Refusal):
                refused = resumed
                return resumed
            consumer.send(topics.subscribed(resumed))
            refused = await topics.join(resumed)
        finally:
            if refused is not None:
                await topics.leave(clean=False)
        return refused or _Session(consumer, topics)

    def _consumers_full(self, delivery: Delivery) -> Refusal | None:
        if delivery.consumers < self._config.limits.consumers_max:
            return None
        text = f"this node has {delivery.consumers} consumers, its maximum"
        return Refusal(Reason.TOO_MANY_STREAMS, text, retry_ms=5_000)

    def _topics(
        self,
        request: pb.Subscribe | pb.ReceiveRequest,
        consumer: Consumer,
        delivery: Delivery,
        context: CallContext,
    ) -> TopicsFollowed:
        choice = self._subscriptions.choice(context, request.topics)
        turns = self._streams
        return TopicsFollowed(
            self._core, self._subscriptions, turns, delivery, consumer, choice, request.start
        )

    async def _follow(self, session: _Session) -> None:
        """Join topics as they come, where the stream has several."""
        if isinstance(session.topics, _OneTopic):
            return
        try:
            session.consumer.end(await self._holds.steps("Consume", session.topics.follow()))
        finally:
            session.consumer.end(_BROKEN)  # where nothing has ended it: an error has

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
                stale = await self._extend_now(extend, consumer.name, session.topics.group_of(extend.queue))
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
        pending = await self._settling(settled, consumer.name, session.topics.group_of(settled.queue))
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
        session.topics.give()
        return None

    async def _extend_now(
        self, extend: pb.Extend | pb.ExtendRequest, consumer: str, group: GroupDelivery | Refusal | None
    ) -> Offsets | Refusal:
        """Return the offsets that are not the consumer's; all where the group is gone."""
        refusal = self._subscriptions.check_lease(extend.lease_ms or 0) or self._subscriptions.check_offsets(
            len(extend.offset)
        )
        if refusal is not None:
            return refusal
        if group is None or isinstance(group, Refusal):
            return column(extend.offset) if group is None else group
        lease_ms = extend.lease_ms or group.lease_ms

        def extended(offsets: Offsets) -> Offsets | Refusal:
            return group.extend(consumer, extend.queue, offsets, lease_ms)

        return _joined(await self._each(extend.offset, extended))

    async def _settling(
        self,
        settled: pb.Ack | pb.AckRequest | pb.Nack | pb.NackRequest,
        consumer: str,
        group: GroupDelivery | Refusal | None,
    ) -> Stale | Refusal:
        """Return what was not the consumer's, once that is known; all where the group is gone."""
        refusal = self._subscriptions.check_offsets(len(settled.offset))
        if refusal is not None:
            return refusal
        if group is None:
            stale: Stale = asyncio.get_running_loop().create_future()
            stale.set_result(column(settled.offset))
            return stale
        if isinstance(group, Refusal):
            return group
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
        if request.topics:
            return await self._receive_several(request, consumer, context)
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
        return consumer.ended or self._answer_of(consumer)

    async def _receive_several(
        self, request: pb.ReceiveRequest, consumer: Consumer, context: CallContext
    ) -> Answer:
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        consumer.polls, consumer.address = True, self._address(context)
        topics = self._topics(request, consumer, delivery, context)
        delivery.several[topics.many] = None
        try:
            resumed = await topics.open((), self._resume)
            self._received += 1
            refusal = resumed if isinstance(resumed, Refusal) else await topics.attach(self._received)
            if refusal is not None:
                return refusal
            async with asyncio.timeout(max(request.wait_ms, DISK_WAIT_MS * topics.awaits_disk) / 1000):
                await consumer.readable()
        except TimeoutError:
            pass
        finally:
            await topics.leave(clean=False)
        return consumer.ended or self._answer_of(consumer)

    async def _settle(self, request: pb.AckRequest | pb.NackRequest, context: CallContext) -> Answer:
        group = self._group(request, context)
        if isinstance(group, Refusal):
            return group
        pending = await self._settling(request, request.consumer, group)
        if isinstance(pending, Refusal):
            return pending
        stale = await (pending if group is None else group.settlement.until_end(pending))
        return stale if isinstance(stale, Refusal) else await _answered(stale)

    async def _extend(self, request: pb.ExtendRequest, context: CallContext) -> Answer:
        group = self._group(request, context)
        if isinstance(group, Refusal):
            return group
        stale = await self._extend_now(request, request.consumer, group)
        return stale if isinstance(stale, Refusal) else await _answered(stale)

    def _group(
        self, request: pb.AckRequest | pb.NackRequest | pb.ExtendRequest, context: CallContext
    ) -> GroupDelivery | Refusal | None:
        """Return the request's group; None: another incarnation of the cluster delivered what it names."""
        group = self._subscriptions.known(context, request)
        if not request.HasField("incarnation"):
            return group
        if request.incarnation == self._core.journal.cluster_incarnation:
            return group
        refused = isinstance(group, Refusal) and group.reason != Reason.GROUP_UNKNOWN
        return group if refused else None

    def _answer_of(self, consumer: Consumer) -> bytes:
        deliveries = [log_pb.ConsumedColumns.FromString(r).deliveries for r in consumer.take_all()]
        incarnation = self._core.journal.cluster_incarnation
        return log_pb.ReceivedColumns(deliveries=deliveries, incarnation=incarnation).SerializeToString()


def _parsed(raw: bytes, topics_max: int = 0) -> pb.ConsumeRequest | Refusal:
    """Return the request, unless it has so many fields that parsing it would take long.

    One that subscribes may have more: each of so many topics, and what is resumed of its two queues.
    """
    if len(raw) > OVERHEAD_BYTES:
        most = FIELDS_MAX + 3 * topics_max
        parts = [part for number, part in islice(fields(raw), FIELDS_MAX) if number == SUBSCRIBE]
        if more_fields(raw, FIELDS_MAX) or any(more_fields(part, most) for part in parts):
            text = f"a part of the request has more than {most} fields: pack its offsets, name fewer"
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
    delay = Delay(settled.delay_ms if settled.HasField("delay_ms") else None, at_least=settled.at_least)
    return settlement.nack(consumer, settled.queue, offsets, delay, settled.dead_letter)


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


def _column(offsets: Offsets) -> bytes:
    return offsets.astype("<u8", copy=False).tobytes()
