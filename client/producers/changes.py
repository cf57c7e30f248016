"""Requests that change pending messages, checked before they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tarry.client.errors import InvalidTime
from tarry.client.integers import INT64_MAX, whole
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.reasons import Reason

REQUEST_IDS: Final = 1_024
"""Ids of one request: a node's limits.reschedule_ids_max unless it is set otherwise."""

Column: TypeAlias = int | Sequence[int]
"""One number for all messages, or one for each."""


def reschedules(
    ids: Sequence[str],
    due_ms: Column | None,
    delay_ms: Column | None,
    if_due_ms: Column | None,
    group: str,
    topic: str,
) -> Iterator[producer_pb.RescheduleRequest]:
    """Yield the requests for any number of messages. Raises InvalidTime, ValueError."""
    if (due_ms is None) == (delay_ms is None):
        reason = Reason.DUE_MISSING if due_ms is None else Reason.DUE_AMBIGUOUS
        raise InvalidTime(reason, "give exactly one of due_ms and delay_ms")
    columns = {
        name: _column(name, given, len(ids))
        for name, given in (("due_ms", due_ms), ("delay_ms", delay_ms), ("if_due_ms", if_due_ms))
    }
    for start in range(0, len(ids), REQUEST_IDS):
        part = slice(start, start + REQUEST_IDS)
        parts = {name: values if len(values) < 2 else values[part] for name, values in columns.items()}
        yield producer_pb.RescheduleRequest(ids=ids[part], group=group, topic=topic, **parts)


def update_request(
    message_id: str,
    *,
    body: bytes | None,
    tags: Sequence[str] | None,
    keys: Sequence[str] | None,
    properties: Mapping[str, str] | None,
    if_due_ms: int | None,
    group: str,
    topic: str,
) -> producer_pb.UpdateRequest:
    """Return the request; None: that part stays as it is. Raises InvalidTime, TypeError, ValueError."""
    if body is None and tags is None and keys is None and properties is None:
        raise ValueError("give a body, tags, keys or properties")
    if isinstance(tags, str) or isinstance(keys, str):
        raise TypeError("tags and keys are sequences of str")
    request = producer_pb.UpdateRequest(id=message_id, body=body, group=group, topic=topic)
    if tags is not None:
        request.tags.texts.extend(tags)
        request.tags.SetInParent()
    if keys is not None:
        request.keys.texts.extend(keys)
        request.keys.SetInParent()
    if properties is not None:
        request.properties.properties.update(properties)
        request.properties.SetInParent()
    if if_due_ms is not None:
        (request.if_due_ms,) = _column("if_due_ms", if_due_ms, 1)
    return request


def _column(name: str, given: Column | None, n: int) -> list[int]:
    """Return the values of a column, one for all messages or one for each; none where it is not given."""
    values = [] if given is None else [given] if isinstance(given, int) else list(given)
    if given is not None and not isinstance(given, int) and len(values) != n:
        text = f"{len(values)} values of {name} for {n} messages: give one for each, or one number for all"
        raise ValueError(text)
    return [whole(name, value, InvalidTime, Reason.DUE_INVALID, INT64_MAX) for value in values]
