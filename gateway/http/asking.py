"""Operations that ask what waits, and change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from tarry.client.aio import ListedMessage
from tarry.gateway.http import fields
from tarry.gateway.http.bodies import BodyAs, fields_of, json_of, made
from tarry.gateway.http.call import Call

MESSAGE_BYTES: Final = 256
"""Of a body, that take as long to write as a message's other fields."""


class Contents(Protocol):
    """Content of a message, as several of the client's values have it."""

    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def ordering_key(self) -> str: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def properties(self) -> Any: ...
    @property
    def body(self) -> bytes | None: ...


def content(message: Contents, wanted: BodyAs) -> dict[str, Any]:
    """Return the fields of a message's content; without a body where it was not asked for."""
    return {
        "tags": list(message.tags),
        "keys": list(message.keys),
        "ordering_key": message.ordering_key,
        "idempotency_key": message.idempotency_key,
        "properties": dict(message.properties),
        **({} if message.body is None else fields_of(message.body, wanted)),
    }


def content_bytes(messages: Iterable[Contents]) -> int:
    """Return the bytes of all bodies, and MESSAGE_BYTES for the fields of each message."""
    return sum(MESSAGE_BYTES + len(message.body or b"") for message in messages)


async def get(call: Call) -> bytes:
    """Show a message as it is now."""
    message = await call.producer.get(call.path["id"])

    def told() -> bytes:
        stored = fields.Stored(
            id=message.id,
            topic=message.topic,
            due_ms=message.due_ms,
            state=message.state,
            born_ms=message.born_ms,
            stored_ms=message.stored_ms,
            **content(message, call.query.body_as),
        )
        return json_of(stored)

    return await made(told, content_bytes([message]))


async def list_messages(call: Call) -> bytes:
    """Show a page of what waits on a topic."""
    query: fields.ListQuery = call.query
    only: dict[str, Any] = {
        "tags": query.tags,
        "keys": None if query.key is None else [query.key],
        "key_prefix": query.key_prefix,
        "due_from_ms": query.due_from_ms,
        "due_to_ms": query.due_to_ms,
        "states": query.states,
        "group": query.group or None,
    }
    given = {name: value for name, value in only.items() if value is not None}
    page = await call.cluster_query().list_page(
        call.path["topic"], size=query.size, cursor=query.cursor, bodies=query.bodies, **given
    )

    def told() -> bytes:
        messages = [_listed(message, query.body_as) for message in page.messages]
        return json_of(fields.ListedMessages(messages=messages, cursor=page.cursor))

    return await made(told, content_bytes(page.messages))


def _listed(message: ListedMessage, wanted: BodyAs) -> fields.Listed:
    return fields.Listed(
        id=message.id,
        due_ms=message.due_ms,
        state=message.state,
        group=message.group,
        attempt=message.attempt,
        reason=message.reason,
        offset=message.offset,
        released_ms=message.released_ms,
        born_ms=message.born_ms,
        stored_ms=message.stored_ms,
        damaged=message.damaged,
        body_bytes=message.body_bytes,
        **content(message, wanted),
    )


async def find(call: Call) -> bytes:
    """Find the messages of a topic that have a key."""
    query: fields.FindQuery = call.query
    page = await call.cluster_query().find(
        call.path["topic"],
        query.key,
        idempotency_key=query.idempotency_key,
        due_from_ms=query.due_from_ms,
        due_to_ms=query.due_to_ms,
        stored_from_ms=query.stored_from_ms,
        stored_to_ms=query.stored_to_ms,
        born_from_ms=query.born_from_ms,
        born_to_ms=query.born_to_ms,
        states=query.states,
        limit=query.size,
        bodies=query.bodies,
        begin=query.begin,
    )

    def told() -> bytes:
        messages = [
            fields.Found(
                id=message.id,
                due_ms=message.due_ms,
                state=message.state,
                born_ms=message.born_ms,
                stored_ms=message.stored_ms,
                content=fields.StoredFields(**content(message, query.body_as)) if query.bodies else None,
            )
            for message in page.messages
        ]
        return json_of(fields.FoundMessages(messages=messages, next=page.next, unreadable=page.unreadable))

    return await made(told, content_bytes(page.messages) if query.bodies else 0)


async def forecast(call: Call) -> fields.ForecastTold:
    """Count the pending messages that are due in each second, minute or hour."""
    query: fields.ForecastQuery = call.query
    forecast = await call.cluster_query().forecast(
        topic=query.topic,
        tags=query.tags,
        by=query.by,
        from_ms=query.from_ms,
        buckets=query.buckets,
        linearizable=query.linearizable,
    )
    names = fields.ForecastTold.model_fields
    return fields.ForecastTold(**{name: getattr(forecast, name) for name in names})
