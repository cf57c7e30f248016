"""Operations that schedule, change and cancel messages."""

from __future__ import annotations

from typing import Any

from tarry.client.aio import Change, Scheduled
from tarry.gateway.http import fields
from tarry.gateway.http.bodies import bytes_of
from tarry.gateway.http.call import Call
from tarry.gateway.http.errors import GatewayReason, RequestRefused


async def schedule(call: Call) -> fields.ScheduledMessage:
    """Schedule one message."""
    message: fields.NewMessage = call.body
    name, value = message.time
    time: dict[str, Any] = {name: value}
    scheduled = await call.producer.schedule(
        call.path["topic"],
        _body(message, ""),
        jitter_ms=message.jitter_ms,
        tags=message.tags or (),
        keys=message.keys or (),
        properties=message.properties,
        ordering_key=message.ordering_key,
        idempotency_key=message.idempotency_key,
        **time,
    )
    return _told(scheduled)


async def schedule_batch(call: Call) -> fields.ScheduledMessages:
    """Schedule messages, all of them or none."""
    messages: list[fields.BatchMessage] = call.body.messages
    check_count("messages", len(messages), call)
    names = {message.time[0] for message in messages}
    if len(names) != 1:
        text = f"messages: all have the same kind of time, not {' and '.join(sorted(names))}"
        raise RequestRefused(GatewayReason.REQUEST_INVALID, text)
    with_key = sum(bool(message.idempotency_key) for message in messages)
    if with_key not in {0, len(messages)}:
        text = "messages: either all of them have an idempotency_key, or none"
        raise RequestRefused(GatewayReason.REQUEST_INVALID, text)
    (name,) = names
    times: dict[str, Any] = {name: [message.time[1] for message in messages]}
    jitter_ms = [message.jitter_ms for message in messages]
    batch = await call.producer.schedule_batch(
        [message.topic or call.path["topic"] for message in messages],
        [_body(message, f"messages.{at}.") for at, message in enumerate(messages)],
        jitter_ms=jitter_ms if any(jitter_ms) else None,
        tags=[message.tags or () for message in messages],
        keys=[message.keys or () for message in messages],
        properties=[message.properties or {} for message in messages],
        ordering_keys=[message.ordering_key for message in messages],
        idempotency_keys=[message.idempotency_key for message in messages] if with_key else None,
        **times,
    )
    overdue, repeats = set(batch.overdue.tolist()), set(batch.repeats.tolist())
    rows = zip(batch.ids, batch.due_ms.tolist(), strict=True)
    return fields.ScheduledMessages(
        messages=[
            fields.ScheduledMessage(
                id=message_id,
                due_ms=due_ms,
                overdue=at in overdue,
                repeated=batch.repeated or at in repeats,
            )
            for at, (message_id, due_ms) in enumerate(rows)
        ]
    )


async def cancel(call: Call) -> fields.Cancelled:
    """Cancel one message."""
    message_id = call.path["id"]
    outcome = await call.producer.cancel(message_id, remaining_groups=call.query.remaining_groups)
    return fields.Cancelled(id=message_id, outcome=outcome)


async def cancel_many(call: Call) -> fields.CancelledMessages:
    """Cancel messages by their ids."""
    body: fields.Cancels = call.body
    check_count("ids", len(body.ids), call)
    outcomes = await call.producer.cancel_many(body.ids, remaining_groups=body.remaining_groups)
    return fields.CancelledMessages(
        messages=[
            fields.Cancelled(id=message_id, outcome=outcome)
            for message_id, outcome in zip(body.ids, outcomes, strict=True)
        ]
    )


async def reschedule(call: Call) -> fields.Changed:
    """Have a pending message due at another time."""
    body: fields.NewTime = call.body
    change = await call.producer.reschedule(
        call.path["id"],
        due_ms=body.new_due_ms,
        delay_ms=body.delay_ms,
        if_due_ms=body.if_due_ms,
        group=body.group,
        topic=body.topic,
    )
    return _changed(change)


async def update(call: Call) -> fields.Changed:
    """Replace parts of a pending message."""
    body: fields.NewContent = call.body
    change = await call.producer.update(
        call.path["id"],
        body=_body(body, "") if body.body_given else None,
        tags=body.tags,
        keys=body.keys,
        properties=body.properties,
        if_due_ms=body.if_due_ms,
        group=body.group,
        topic=body.topic,
    )
    return _changed(change)


def check_count(what: str, count: int, call: Call) -> None:
    """Refuse a request with too many of something."""
    most = call.gateway.limits.batch_messages_max
    if count > most:
        text = f"{what}: {count:,} are too many, a request has {most:,} at most"
        raise RequestRefused(GatewayReason.REQUEST_INVALID, text)


def _body(content: fields.Content, where: str) -> bytes:
    try:
        return bytes_of(content.body_given)
    except ValueError as error:
        raise RequestRefused(GatewayReason.REQUEST_INVALID, f"{where}body: {error}") from None


def _told(scheduled: Scheduled) -> fields.ScheduledMessage:
    return fields.ScheduledMessage(**scheduled._asdict())


def _changed(change: Change) -> fields.Changed:
    return fields.Changed(id=change.id, outcome=change.outcome, due_ms=change.due_ms)
