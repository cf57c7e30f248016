"""Operations of producers: send, now or later, or as a part of a transaction, and recall."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from tarry.client.aio import CancelOutcome, NewMessage, Scheduled
from tarry.gateway.rocketmq.call import Call
from tarry.gateway.rocketmq.codes import Refusal, status
from tarry.gateway.rocketmq.handles import Recall
from tarry.gateway.rocketmq.messages import new_message, topic_of_all
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, MessageType
from tarry.gateway.rocketmq.transactions import prepare

LONG_PAST_MS = 1
"""A due time that is past for certain: at once, in a batch with others that name their times."""


async def send(call: Call, request: service.SendMessageRequest) -> service.SendMessageResponse:
    """Store messages, all of them or none; those with a delivery timestamp can be recalled."""
    limits = call.gateway.config.limits
    if len(request.messages) > limits.batch_messages_max:
        text = f"{len(request.messages)} messages are too many, a request has {limits.batch_messages_max}"
        raise Refusal(Code.PAYLOAD_TOO_LARGE, text)
    topic = topic_of_all(list(request.messages), call.namespace)
    messages = [new_message(message, topic, call.gateway.config) for message in request.messages]
    if any(each.system_properties.message_type == MessageType.TRANSACTION for each in request.messages):
        return await prepare(call, request, messages)
    ids = [message.idempotency_key for message in messages]
    if len(set(ids)) != len(ids):
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, "two messages of one request have the same message id")
    size_bytes, most = request.ByteSize(), call.gateway.admission.sent.most
    if size_bytes > most:
        raise Refusal(Code.PAYLOAD_TOO_LARGE, f"the request has {size_bytes:,} bytes, more than {most:,}")
    stored = await _stored(call, messages, size_bytes)
    entries = [
        service.SendResultEntry(
            status=status(),
            message_id=message.idempotency_key,
            transaction_id=message.idempotency_key,
            recall_handle=_recall_handle(call, message, scheduled),
        )
        for message, scheduled in zip(messages, stored, strict=True)
    ]
    return service.SendMessageResponse(status=status(), entries=entries)


async def _stored(call: Call, messages: Sequence[NewMessage], request_bytes: int) -> list[Scheduled]:
    if len(messages) == 1:
        return [await _stored_with_others(call, messages[0], request_bytes)]
    if any(message.due_ms is not None for message in messages):
        messages = [
            replace(message, due_ms=LONG_PAST_MS, delay_ms=None) if message.due_ms is None else message
            for message in messages
        ]
    with call.gateway.admission.sent.taken(request_bytes):
        async with asyncio.timeout(call.budget_s):
            batch = await call.access.producer.schedule_many(messages)
    overdue, repeats = set(batch.overdue.tolist()), set(batch.repeats.tolist())
    return [
        Scheduled(message_id, due_ms, at in overdue, batch.repeated or at in repeats)
        for at, (message_id, due_ms) in enumerate(zip(batch.ids, batch.due_ms.tolist(), strict=True))
    ]


async def _stored_with_others(call: Call, message: NewMessage, request_bytes: int) -> Scheduled:
    """Store a message in a request that it shares with what others send at the same time.

    The producer has it until its outcome, also where nobody waits for that any more, and so its bytes count.
    """
    with ExitStack() as held:
        held.enter_context(call.gateway.admission.sent.taken(request_bytes))
        answer = call.access.producer.schedule(
            message.topic,
            message.body,
            due_ms=message.due_ms,
            delay_ms=message.delay_ms,
            tags=message.tags,
            keys=message.keys,
            properties=message.properties,
            ordering_key=message.ordering_key,
            idempotency_key=message.idempotency_key,
        )
        answer.add_done_callback(partial(_let_go, held.pop_all()))
    done, _ = await asyncio.wait({answer}, timeout=call.budget_s)
    if not done:
        raise TimeoutError
    return answer.result()


def _let_go(held: ExitStack, answer: asyncio.Future[Scheduled]) -> None:
    held.close()
    if not answer.cancelled():
        answer.exception()  # it may be that nobody waits for it: it is no news


def _recall_handle(call: Call, message: NewMessage, scheduled: Scheduled) -> str:
    if message.due_ms in (None, LONG_PAST_MS) or scheduled.overdue:
        return ""
    recall = Recall(message.topic, scheduled.id, message.idempotency_key)
    return call.gateway.handles.recall(recall)


async def recall(call: Call, request: service.RecallMessageRequest) -> service.RecallMessageResponse:
    """Cancel a scheduled message. The answer is definite: OK, and nobody gets it, or MESSAGE_NOT_FOUND."""
    topic = call.topic_of(request.topic)
    try:
        named = call.gateway.handles.parse_recall(request.recall_handle)
    except ValueError as error:
        raise Refusal(Code.BAD_REQUEST, str(error)) from None
    if named.topic != topic:
        raise Refusal(Code.BAD_REQUEST, "recall handle is of another topic")
    async with asyncio.timeout(call.budget_s):
        outcome = await call.access.producer.cancel(named.id)
    if outcome not in (CancelOutcome.CANCELLED, CancelOutcome.ALREADY_CANCELLED):
        # Python's client takes MESSAGE_NOT_FOUND for a success, whatever it has asked for.
        code = Code.NOT_FOUND if call.language == "PYTHON" else Code.MESSAGE_NOT_FOUND
        raise Refusal(code, f"MESSAGE_NOT_FOUND: the message cannot be recalled any more, it is {outcome}")
    return service.RecallMessageResponse(status=status(), message_id=named.message_id)
