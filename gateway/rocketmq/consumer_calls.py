"""Operations of consumers: receive with a long poll, and what becomes of each message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tarry.client.aio import AckOutcome
from tarry.client.consumers.message import View
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import TarryError
from tarry.client.integers import UINT32_MAX
from tarry.gateway.handle import Holder, each_at_once
from tarry.gateway.poll import received
from tarry.gateway.rocketmq.call import ANSWER_MS, Call
from tarry.gateway.rocketmq.codes import Refusal, status, status_of_error
from tarry.gateway.rocketmq.handles import Receipt
from tarry.gateway.rocketmq.messages import delivered_message
from tarry.gateway.rocketmq.names import group_of
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, FilterType

Write: TypeAlias = Callable[[service.ReceiveMessageResponse], Awaitable[None]]
MARGIN_MS: Final = 1_500
"""Of a client's deadline, kept for an answer after the wait: half of the time that a request has."""
INLINE_BYTES_MAX: Final = 262_144
"""Bytes of bodies whose digests are made within a turn of the event loop."""
FILTER_CHARS_MAX: Final = 65_536
"""Checked within a turn of the event loop; nodes take 1,000 tags, and shorter conditions."""


async def receive(call: Call, request: service.ReceiveMessageRequest, write: Write) -> None:
    """Write a status, the messages that are due, and last the time. It needs no settings from before.

    What a client leaves before it has all of the answer is given back. Raises Unread where it takes none.
    """
    limits, renewals = call.gateway.config.limits, call.gateway.renewals
    topic, group = call.topic_of(request.message_queue.topic), group_of(request.group)
    tags, condition = _filter_of(request.filter_expression)
    if request.auto_renew:
        renewals.check_room()
        lease_ms = min(limits.renewed_lease_ms, limits.renewed_ms_max)
    else:
        lease_ms = _invisible_ms(request.invisible_duration, call)
    puller = call.access.client.puller(
        topic,
        group,
        name=call.consumer(request.filter_expression.expression),
        tags=tags,
        filter=condition,
        lease_ms=lease_ms,
        start=call.gateway.config.start,
    )
    await _give_back_the_same_attempt_s(call, request)
    wait_ms, count = _wait_ms(request, call), min(request.batch_size, limits.receive_messages_max)
    returns, ending = call.gateway.returns, call.gateway.ending.wait
    deadline_ms = _deadline_ms(call, wait_ms)
    messages = (
        await received(puller, count, wait_ms, returns, ending(), deadline_ms=deadline_ms)
        if count > 0
        else []
    )
    holders: dict[int, Holder] = {}  # one a queue, for renewals remember them
    for view in messages:
        holder = Holder(view.topic, puller.group, puller.name, view.queue, view.batch.incarnation)
        holders.setdefault(view.queue, holder)
    receipts = [Receipt(holders[view.queue], view.offset, push=request.auto_renew) for view in messages]
    if request.auto_renew:
        renewals.add(call.caller, request.attempt_id, receipts)
    try:
        first = status() if messages else status(Code.MESSAGE_NOT_FOUND, "no new message")
        await call.write(write, _parts(first, await _told(call, request, messages, receipts, lease_ms)))
    except BaseException:
        for receipt in receipts:
            renewals.drop(receipt)
        await returns.give_back(puller, messages)
        raise


async def _give_back_the_same_attempt_s(call: Call, request: service.ReceiveMessageRequest) -> None:
    """Give back what was answered to an earlier call of the same attempt: its client had no answer."""
    lost = call.gateway.renewals.taken_back(call.caller, request.attempt_id)
    offsets: dict[Holder, list[int]] = {}
    for receipt in lost:
        offsets.setdefault(receipt.holder, []).append(receipt.offset)
    for holder, listed in offsets.items():
        with contextlib.suppress(TarryError, TimeoutError):
            settlement = call.gateway.settlement
            verdict = Verdict.nacking(holder.queue, 0)
            await settlement.settle(call.access, holder, verdict, listed, call.budget_s)


async def _told(
    call: Call,
    request: service.ReceiveMessageRequest,
    messages: Sequence[View],
    receipts: Sequence[Receipt],
    lease_ms: int,
) -> list[definition.Message]:
    """Return the messages as the client gets them."""
    queue = request.message_queue

    def made() -> list[definition.Message]:
        return [
            delivered_message(
                view, queue.topic, call.gateway.handles.receipt(receipt), lease_ms, max(0, queue.id)
            )
            for view, receipt in zip(messages, receipts, strict=True)
        ]

    if sum(len(view.body) for view in messages) <= INLINE_BYTES_MAX:
        return made()
    return await asyncio.to_thread(made)


def _parts(
    first: definition.Status, told: Sequence[definition.Message]
) -> Iterator[service.ReceiveMessageResponse]:
    """Yield the parts of an answer: each is a copy, and made once the one before is written."""
    yield service.ReceiveMessageResponse(status=first)
    for message in told:
        yield service.ReceiveMessageResponse(message=message)
    yield service.ReceiveMessageResponse(delivery_timestamp=_now())


def _filter_of(expression: definition.FilterExpression) -> tuple[list[str], str]:
    """Return tags and condition of a filter. Raises Refusal."""
    text = expression.expression.strip()
    if len(text) > FILTER_CHARS_MAX:
        told = f"the filter has {len(text):,} characters, more than {FILTER_CHARS_MAX:,}"
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, told)
    if expression.type not in (FilterType.FILTER_TYPE_UNSPECIFIED, FilterType.TAG, FilterType.SQL):
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, f"filters of type {expression.type} are not known here")
    if expression.type == FilterType.SQL:
        if not text:
            raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
        return [], text
    if text in ("", "*"):
        return [], ""
    tags = [tag.strip() for tag in text.split("||")]
    if not all(tags) or any("|" in tag for tag in tags):
        told = f"the tags {text[:80]!r} are no 'a || b', nor '*'"
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, told)
    return list(dict.fromkeys(tags)), ""


def milliseconds_of(duration: Duration) -> int:
    """Return a duration in milliseconds, rounded up. Raises Refusal."""
    if not 0 <= duration.seconds < 1 << 32 or not 0 <= duration.nanos < 1_000_000_000:
        raise Refusal(Code.ILLEGAL_INVISIBLE_TIME, "the duration is negative, or none")
    return duration.seconds * 1_000 - (-duration.nanos // 1_000_000)


def _invisible_ms(duration: Duration, call: Call) -> int:
    limits = call.gateway.config.limits
    milliseconds = milliseconds_of(duration)
    if milliseconds < limits.invisible_ms_min:
        text = f"the invisibleTime is too small. min is {limits.invisible_ms_min}"
        raise Refusal(Code.ILLEGAL_INVISIBLE_TIME, text)
    if milliseconds > limits.invisible_ms_max:
        text = f"the invisibleTime is too large. max is {limits.invisible_ms_max}"
        raise Refusal(Code.ILLEGAL_INVISIBLE_TIME, text)
    return milliseconds


def _wait_ms(request: service.ReceiveMessageRequest, call: Call) -> int:
    """Return for how long to wait: as asked; without that, as the deadline allows."""
    most_ms = call.gateway.config.limits.wait_ms_max
    if call.remaining_ms is not None:
        most_ms = min(most_ms, max(0, call.remaining_ms - MARGIN_MS))
    if not request.HasField("long_polling_timeout"):
        return most_ms
    try:
        return min(most_ms, milliseconds_of(request.long_polling_timeout))
    except Refusal:
        raise Refusal(Code.ILLEGAL_POLLING_TIME, "the long polling timeout is negative, or none") from None


def _deadline_ms(call: Call, wait_ms: int) -> int:
    """Return until when the cluster has to answer: before the client's deadline, whatever happens there."""
    if call.remaining_ms is None:
        return wait_ms + call.gateway.config.limits.call_ms
    return max(call.remaining_ms - ANSWER_MS, call.remaining_ms // 2, 1)


def _now() -> Timestamp:
    now = Timestamp()
    now.GetCurrentTime()
    return now


async def acknowledge(call: Call, request: service.AckMessageRequest) -> service.AckMessageResponse:
    """Acknowledge messages: they are done. Each has a status of its own."""
    topic, group = call.topic_of(request.topic), group_of(request.group)
    entries, limits = request.entries, call.gateway.config.limits
    if not entries:
        raise Refusal(Code.BAD_REQUEST, "ack message result is empty")
    if len(entries) > limits.batch_messages_max:
        text = f"{len(entries)} handles are too many, a request has {limits.batch_messages_max}"
        raise Refusal(Code.PAYLOAD_TOO_LARGE, text)
    places: dict[Holder, dict[int, list[int]]] = {}
    answers = [status() for _ in entries]
    for at, entry in enumerate(entries):
        try:
            receipt = _receipt(call, entry.receipt_handle, topic, group)
        except Refusal as refusal:
            answers[at] = status_of_error(refusal)
        else:
            places.setdefault(receipt.holder, {}).setdefault(receipt.offset, []).append(at)

    async def acknowledged(holder: Holder) -> list[tuple[int, definition.Status]]:
        return await _acknowledged(call, holder, places[holder])

    for told in await each_at_once(places, acknowledged):
        for at, answer in told:
            answers[at] = answer
    codes = {answer.code for answer in answers}
    top = answers[0] if len(codes) == 1 else status(Code.MULTIPLE_RESULTS, "entries differ")
    return service.AckMessageResponse(
        status=top,
        entries=[
            service.AckMessageResultEntry(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=answer
            )
            for entry, answer in zip(entries, answers, strict=True)
        ],
    )


async def _acknowledged(
    call: Call, holder: Holder, places: dict[int, list[int]]
) -> list[tuple[int, definition.Status]]:
    """Acknowledge offsets of one consumer; return the status for each place in the request."""
    try:
        settlement = call.gateway.settlement
        outcomes = await settlement.acknowledge(call.access, holder, list(places), call.budget_s)
        for offset in places:
            call.gateway.renewals.drop(Receipt(holder, offset, push=True))
        answers = [status() if outcome is AckOutcome.OK else status_of_error(Stale()) for outcome in outcomes]
    except (TarryError, TimeoutError) as error:
        answers = [status_of_error(error)] * len(places)
    return [(at, answer) for listed, answer in zip(places.values(), answers, strict=True) for at in listed]


async def change_invisible_duration(
    call: Call, request: service.ChangeInvisibleDurationRequest
) -> service.ChangeInvisibleDurationResponse:
    """Have what a push consumer has failed at delivered later; keep what a simple one has for longer.

    No duration, as Node sends it, is the group's back-off for a push consumer, and at once for a simple one.
    """
    receipt = _receipt(call, request.receipt_handle, call.topic_of(request.topic), group_of(request.group))
    milliseconds = milliseconds_of(request.invisible_duration)
    # A failure's wait is the group's, as its policy has told it; nodes bound leases, and policies with them.
    most = UINT32_MAX if receipt.push else call.gateway.config.limits.invisible_ms_max
    if milliseconds > most:
        raise Refusal(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {most}")
    queue = receipt.holder.queue
    if receipt.push:
        verdict = Verdict.nacking(queue, milliseconds or None)
    elif milliseconds == 0:
        verdict = Verdict.nacking(queue, 0)
    else:
        verdict = Verdict.extending(queue, max(milliseconds, call.gateway.config.limits.invisible_ms_min))
    await _settle_one(call, receipt, verdict)
    return service.ChangeInvisibleDurationResponse(status=status(), receipt_handle=request.receipt_handle)


async def forward_to_dead_letters(
    call: Call, request: service.ForwardMessageToDeadLetterQueueRequest
) -> service.ForwardMessageToDeadLetterQueueResponse:
    """Have a message delivered no more: it is a dead letter, where its group's policy has such a topic.

    One that is in hand no more is answered with OK: it was forwarded by a call whose answer was lost, or it
    is delivered again. Java's client would repeat the call for ever, and deliver nothing behind it.
    """
    receipt = _receipt(call, request.receipt_handle, call.topic_of(request.topic), group_of(request.group))
    with contextlib.suppress(Stale):
        await _settle_one(call, receipt, Verdict.nacking(receipt.holder.queue, None, dead_letter=True))
    return service.ForwardMessageToDeadLetterQueueResponse(status=status())


async def _settle_one(call: Call, receipt: Receipt, verdict: Verdict) -> None:
    """Give a verdict on a delivery. Raises Stale where it is in hand no more."""
    settlement, offsets = call.gateway.settlement, [receipt.offset]
    (outcome,) = await settlement.settle(call.access, receipt.holder, verdict, offsets, call.budget_s)
    call.gateway.renewals.drop(receipt)
    if outcome is not AckOutcome.OK:
        raise Stale


def _receipt(call: Call, handle: str, topic: str, group: str) -> Receipt:
    """Return the delivery of a handle, which has to be of the request's topic and group. Raises Refusal."""
    try:
        receipt = call.gateway.handles.parse_receipt(handle)
    except ValueError as error:
        raise Refusal(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
    if (receipt.holder.topic, receipt.holder.group) != (topic, group):
        raise Refusal(Code.INVALID_RECEIPT_HANDLE, "receipt handle is of another topic or group")
    return receipt


class Stale(Refusal):
    """The delivery of a receipt is in hand no more."""

    def __init__(self) -> None:
        text = "receipt handle is expired: its time is over, or the message was settled before"
        super().__init__(Code.INVALID_RECEIPT_HANDLE, text)
