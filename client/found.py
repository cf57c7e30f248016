"""Messages found by a key, as values, and how they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tarry.client.errors import InvalidQuery
from tarry.client.integers import INT64_MAX, whole
from tarry.client.results import CancelOutcome, MessageState
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto.reasons import Reason


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that has the key or idempotency key, as it was when it was looked up."""

    id: str
    due_ms: int
    state: MessageState
    born_ms: int | None = None
    """When its producer sent it first, by the producer's clock; None: not known."""
    stored_ms: int | None = None
    """When the cluster took it, by the cluster's clock; None: not known."""
    body: bytes | None = None
    """None, as of what follows: it was not asked for."""
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    ordering_key: str = ""
    idempotency_key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: query_pb.FoundMessage) -> FoundMessage:
        """Return one of an answer."""
        state = MessageState.of(found.state)
        told = found.id, found.due_ms, state, found.born_ms or None, found.stored_ms or None
        if not found.HasField("record"):
            return cls(*told)
        record = found.record
        return cls(
            *told,
            record.body,
            tuple(record.tags),
            tuple(record.keys),
            record.ordering_key,
            record.idempotency_key,
            dict(record.properties),
        )


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page of what was found, by the hour in which it is due, an hour's messages as they were scheduled."""

    messages: tuple[FoundMessage, ...]
    """May be fewer than were asked for, or none, where more follow."""
    next: str
    """The ``begin`` of the next page; empty: this is the last."""
    unreadable: int
    """Messages that may have the key, whose records are damaged on the leader and not mended yet."""

    @classmethod
    def of(cls, response: query_pb.FindByKeyResponse) -> FoundPage:
        """Return the answer to one request."""
        return cls(tuple(map(FoundMessage.of, response.messages)), response.next, response.unreadable)


@dataclass(frozen=True, slots=True)
class CancelledByKey:
    """Result of a cancel by key: how many messages had which outcome."""

    outcomes: Mapping[CancelOutcome, int]
    unreadable: int
    """Messages that may have the key and were left alone: their records are damaged, and not mended yet."""

    @property
    def cancelled(self) -> int:
        """The number of messages that this cancelled."""
        return self.outcomes.get(CancelOutcome.CANCELLED, 0)


def find_request(
    topic: str,
    key: str = "",
    *,
    idempotency_key: str = "",
    due_from_ms: int = 0,
    due_to_ms: int = 0,
    stored_from_ms: int = 0,
    stored_to_ms: int = 0,
    born_from_ms: int = 0,
    born_to_ms: int = 0,
    states: Collection[MessageState] = (),
    limit: int = 0,
    bodies: bool = False,
    begin: str = "",
) -> query_pb.FindByKeyRequest:
    """Return the request for a page. Raises InvalidQuery for what no request can hold."""
    if bool(key) == bool(idempotency_key):
        raise InvalidQuery(Reason.QUERY_INVALID, "give either a key or an idempotency key")
    whole("limit", limit, InvalidQuery, Reason.QUERY_INVALID)
    spans = {
        "due_from_ms": due_from_ms,
        "due_to_ms": due_to_ms,
        "stored_from_ms": stored_from_ms,
        "stored_to_ms": stored_to_ms,
        "born_from_ms": born_from_ms,
        "born_to_ms": born_to_ms,
    }
    for name, value in spans.items():
        whole(name, value, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX)
    return query_pb.FindByKeyRequest(
        topic=topic,
        key=key,
        idempotency_key=idempotency_key,
        **spans,
        states=[f"MESSAGE_STATE_{state.name}" for state in states],
        limit=limit,
        records=bodies,
        begin=begin,
    )
