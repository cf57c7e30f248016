"""Operations that consume: receive by calls, an event stream, and the verdicts on what was received."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.responses import StreamingResponse

from tarry.client.aio import AckOutcome
from tarry.client.consumers.message import View
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import TarryError
from tarry.gateway.handle import Holder, each_at_once
from tarry.gateway.http import fields
from tarry.gateway.http.asking import content, content_bytes
from tarry.gateway.http.bodies import BodyAs, json_of, made
from tarry.gateway.http.call import Call
from tarry.gateway.http.errors import GatewayReason, RequestRefused, fields_of_error
from tarry.gateway.http.event_stream import EventStream
from tarry.gateway.http.handles import Handle, parse
from tarry.gateway.http.scheduling import check_count
from tarry.gateway.poll import received

QUEUES_MAX: Final = 200
"""Queues whose messages one request settles, unless one answer to receive may have more: each is a call to
the cluster."""


async def receive(call: Call) -> bytes:
    """Receive due messages, and wait for the first of them."""
    body: fields.ReceiveBody = call.body
    limits = call.gateway.limits
    for name, most in (("messages_max", limits.receive_messages_max), ("wait_ms", limits.wait_ms_max)):
        if getattr(body, name) > most:
            raise RequestRefused(GatewayReason.REQUEST_INVALID, f"{name}: {most:,} at most")
    name = body.consumer or _new_name()
    puller = call.access.client.puller(
        call.path["topic"],
        call.path["group"],
        name=name,
        tags=body.tags,
        filter=body.filter,
        lease_ms=body.lease_ms,
        start=body.begin,
    )
    returns, messages = call.gateway.returns, list[View]()
    if not call.access.known:  # a token that no node knows yet must not count as tried for the whole wait
        messages = await received(puller, body.messages_max, 0, returns)
        call.access.known = True
    if not messages:
        ends = call.disconnected(), call.gateway.ending.wait()
        messages = await received(puller, body.messages_max, body.wait_ms, returns, *ends)

    def told() -> bytes:
        answered = [_told(message, puller.group, name, body.body_as) for message in messages]
        return json_of(fields.ReceivedMessages(messages=answered))

    try:
        answer = await made(told, content_bytes(messages))
        reaches_nobody = await call.request.is_disconnected()
    except BaseException:
        await returns.give_back(puller, messages)
        raise
    if reaches_nobody:
        await returns.give_back(puller, messages)
    return answer


def _told(message: View, group: str, consumer: str, wanted: BodyAs) -> fields.Received:
    holder = Holder(message.topic, group, consumer, message.queue, message.batch.incarnation)
    return fields.Received(
        handle=str(Handle(holder, message.offset)),
        id=message.id,
        topic=message.topic,
        due_ms=message.due_ms,
        released_ms=message.released_ms,
        born_ms=message.born_ms,
        stored_ms=message.stored_ms,
        delivered_ms=message.delivered_ms,
        attempt=message.attempt,
        maybe_duplicate=message.maybe_duplicate,
        **content(message, wanted),
    )


async def events(call: Call) -> StreamingResponse:
    """Open an event stream. What its caller has in hand at its end is given to others at once."""
    query: fields.EventsQuery = call.query
    gateway, limits = call.gateway, call.gateway.limits
    last_ms = limits.stream_ms_max if query.last_ms is None else query.last_ms
    bounds = ("credit", query.credit, limits.credit_max), ("last_ms", last_ms, limits.stream_ms_max)
    for name, value, most in bounds:
        if value > most:
            raise RequestRefused(GatewayReason.REQUEST_INVALID, f"{name}: {most:,} at most")
    topic, group, name = call.path["topic"], call.path["group"], _new_name()
    stack = contextlib.AsyncExitStack()
    async with stack:
        stack.enter_context(gateway.admission.streams.taken())
        access = await stack.enter_async_context(gateway.accesses.of(_token(call)))
        consumer = access.client.consumer(
            topic,
            group,
            name=name,
            tags=query.tags,
            filter=query.filter,
            lease_ms=query.lease_ms,
            start=query.begin,
            credit=query.credit,
            in_hand_bytes_max=limits.stream_bytes_max,
        )
        await stack.enter_async_context(consumer)
        stream = gateway.streams[name] = EventStream(consumer, access)
        stack.callback(gateway.streams.pop, name)
        held = stack.pop_all()

    async def told(message: View) -> bytes:
        def write() -> bytes:
            return json_of(_told(message, group, name, query.body_as))

        return await made(write, content_bytes([message]))

    text = stream.events(told, gateway.ending, last_ms, limits.keep_alive_ms)
    return _Events(text, held)


class _Events(StreamingResponse):
    """An event stream whose consumer is closed however it ends, also before its first event.

    Not by the generator: Starlette ends that in a cancelled scope, where nothing can be awaited.
    """

    def __init__(self, text: AsyncGenerator[bytes], held: contextlib.AsyncExitStack) -> None:
        super().__init__(text, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._text, self._held = text, held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._text.aclose()
            await self._held.aclose()


async def ack(call: Call) -> fields.SettledMessages:
    """Acknowledge messages: they are done."""
    return await _settled(call, Verdict(0))


async def nack(call: Call) -> fields.SettledMessages:
    """Have messages delivered again, or no more."""
    body: fields.NackBody = call.body
    verdict = Verdict.nacking(0, body.delay_ms, at_least=body.at_least, dead_letter=body.dead_letter)
    return await _settled(call, verdict)


async def extend(call: Call) -> fields.SettledMessages:
    """Keep messages in hand."""
    return await _settled(call, Verdict.extending(0, call.body.lease_ms))


async def _settled(call: Call, verdict: Verdict) -> fields.SettledMessages:
    texts: list[str] = call.body.handles
    check_count("handles", len(texts), call)
    offsets: dict[Holder, list[int]] = {}
    places: dict[tuple[Holder, int], list[int]] = {}
    for at, text in enumerate(texts):
        try:
            handle = parse(text)
        except ValueError as error:
            raise RequestRefused(GatewayReason.HANDLE_INVALID, f"handles.{at}: {error}") from None
        if (handle.holder, handle.offset) not in places:
            offsets.setdefault(handle.holder, []).append(handle.offset)
        places.setdefault((handle.holder, handle.offset), []).append(at)
    most = max(QUEUES_MAX, call.gateway.limits.receive_messages_max)
    if len(offsets) > most:
        text = f"handles: they are of {len(offsets):,} consumers and queues, and a request settles {most:,}"
        raise RequestRefused(GatewayReason.REQUEST_INVALID, f"{text}: settle the others with another one")

    async def of_one(holder: Holder) -> list[AckOutcome] | TarryError:
        try:
            return await _settle(call, holder, verdict, offsets[holder])
        except TarryError as error:
            return error

    answers = await each_at_once(offsets, of_one)
    errors = [answer for answer in answers if isinstance(answer, TarryError)]
    if len(errors) == len(answers):
        raise errors[0]
    told: list[fields.Settled | None] = [None] * len(texts)
    for holder, answer in zip(offsets, answers, strict=True):
        for position, offset in enumerate(offsets[holder]):
            for at in places[holder, offset]:
                told[at] = _outcome(texts[at], answer, position)
    return fields.SettledMessages(messages=[each for each in told if each is not None])


async def _settle(call: Call, holder: Holder, verdict: Verdict, offsets: list[int]) -> list[AckOutcome]:
    verdict = verdict._replace(queue=holder.queue, incarnation=holder.incarnation)
    stream = call.gateway.streams.get(holder.consumer)
    if stream is not None and stream.access is call.access and _is_of(stream, holder):
        return await stream.settle(verdict, offsets)
    puller = call.access.client.puller(holder.topic, holder.group, name=holder.consumer)
    return await puller.settle(verdict, offsets)


def _is_of(stream: EventStream, holder: Holder) -> bool:
    """Return whether a stream has what a consumer holds; one of several topics names none of its own."""
    return stream.consumer.group == holder.group and stream.consumer.topic in ("", holder.topic)


def _outcome(handle: str, answer: list[AckOutcome] | TarryError, position: int) -> fields.Settled:
    if isinstance(answer, TarryError):
        return fields.Settled(handle=handle, outcome="failed", error=fields_of_error(answer)[1])
    return fields.Settled(handle=handle, outcome=answer[position].value)


def _token(call: Call) -> str | None:
    return call.access.client.settings.token


def _new_name() -> str:
    return f"http-{secrets.token_hex(8)}"
