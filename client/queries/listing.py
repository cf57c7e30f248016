"""Messages as a listing has them, and what it may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tarry.client.errors import InvalidQuery
from tarry.client.integers import whole
from tarry.client.queries.matching import Matching, filter_of
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import RetryReason

PAGE_MAX: Final = 1_000
"""Messages that a node puts in a page at most."""


class ListedState(StrEnum):
    """State of a listed message, by what it waits for; the last three are told of a group."""

    PENDING = "pending"
    """Its due time."""
    RETRYING = "retrying"
    """Its next delivery to a group that gave it back, or let its lease end."""
    RELEASED = "released"
    """Was due. Asked for with a group, it stands for all of the following."""
    WAITING = "waiting"
    """A consumer of the group: none has it."""
    IN_HAND = "in_hand"
    """A consumer of the group has it."""
    SETTLED = "settled"
    """Nothing: the group is done with it, or has it again as a retry, which is listed itself."""

    @classmethod
    def of(cls, number: pb.ListedState) -> ListedState:
        """Return the state of a number in the protocol."""
        return cls[pb.ListedState.Name(number).removeprefix("LISTED_STATE_")]


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message of a topic, as it was when its page was made."""

    id: str
    """Of a retry: of its message."""
    due_ms: int
    """Of a retry: of its next delivery."""
    state: ListedState
    group: str
    """Whose retry it is; empty: it is none."""
    attempt: int
    """Of a retry: the number of the delivery that it is for; else 0."""
    reason: str
    """Of a retry: ``nacked`` or ``lease_expired``; else empty."""
    offset: int | None
    """In its queue; None where it is not released."""
    released_ms: int | None
    damaged: bool
    """Its record cannot be read whole now: nothing that follows is told."""
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    ordering_key: str
    idempotency_key: str
    properties: Mapping[str, str]
    """Of a dead letter also where it came from."""
    body_bytes: int
    body: bytes | None
    """None where it was not asked for."""
    born_ms: int | None = None
    """When its producer sent it first, by the producer's clock; None: not known."""
    stored_ms: int | None = None
    """When the cluster took it, by the cluster's clock; None: not known."""

    @classmethod
    def of(cls, listed: pb.ListedMessage, *, bodies: bool) -> ListedMessage:
        """Return a message of an answer."""
        reason = (
            RetryReason.Name(listed.reason).removeprefix("RETRY_REASON_").lower() if listed.reason else ""
        )
        released = listed.released_ms != 0
        return cls(
            listed.id,
            listed.due_ms,
            ListedState.of(listed.state),
            listed.group,
            listed.attempt,
            reason,
            listed.offset if released else None,
            listed.released_ms if released else None,
            listed.damaged,
            tuple(listed.tags),
            tuple(listed.keys),
            listed.ordering_key,
            listed.idempotency_key,
            dict(listed.properties),
            listed.body_bytes,
            listed.body if bodies and not listed.damaged else None,
            listed.born_ms or None,
            listed.stored_ms or None,
        )


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page of a listing; short or empty where much had to be looked at for it."""

    messages: tuple[ListedMessage, ...]
    cursor: str
    """For the next page; empty: there is none."""
    looked_to_ms: int
    """Pending messages due before have been looked at; 0: all have."""


class ListOptions(Matching, total=False):
    """Bounds of a listing of a topic: messages that have all that is given."""

    states: Iterable[ListedState | str]  # any of these; without, all but settled
    group: str  # tell what released messages are to it, and of retries only its own
    bodies: bool  # with the bodies


def request_of(topic: str, size: int, cursor: str, options: ListOptions) -> pb.ListMessagesRequest:
    """Return the request for a page. Raises InvalidQuery."""
    own = ListOptions.__annotations__.keys() - Matching.__annotations__.keys()
    return pb.ListMessagesRequest(
        filter=filter_of(topic, {name: value for name, value in options.items() if name not in own}),
        states=sorted(map(_name, options.get("states", ()))),
        group=options.get("group", ""),
        page_size=whole("size", size, InvalidQuery, Reason.QUERY_INVALID, PAGE_MAX, 1),
        cursor=cursor,
        bodies=options.get("bodies", False),
    )


def _name(state: ListedState | str) -> str:
    try:
        return f"LISTED_STATE_{ListedState(state).name}"
    except ValueError:
        text = f"{state!r} is no state: give some of {', '.join(ListedState)}"
        raise InvalidQuery(Reason.QUERY_INVALID, text) from None


def page_of(answer: pb.ListMessagesResponse, options: ListOptions) -> ListedPage:
    """Return an answer as a page."""
    bodies = options.get("bodies", False)
    messages = tuple(ListedMessage.of(listed, bodies=bodies) for listed in answer.messages)
    return ListedPage(messages, answer.cursor, answer.looked_to_ms)
