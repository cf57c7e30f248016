"""Cancels of many messages: call by call, each with the cursor of the answer before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from tarry.client.cluster.calls import Calls, Method
from tarry.client.cluster.nodes import Node
from tarry.client.errors import InvalidSetting
from tarry.client.queries.names import named
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason


class Matching(TypedDict, total=False):
    """Properties that messages have in common; all that are given have to fit, and none may be empty."""

    tags: Iterable[str]
    """Any of these."""
    keys: Iterable[str]
    """Any of these."""
    key_prefix: str
    """Some key begins with it."""
    due_from_ms: int
    due_to_ms: int
    """Due before; without: whenever."""


@dataclass(frozen=True, slots=True)
class BulkCancel:
    """Progress of a cancel of many messages, from its beginning on."""

    done: bool
    cursor: str
    """Goes on where this is, also after a failure, and counts nothing twice."""
    looked_at: int
    """Of ``total``: how far it is."""
    total: int
    """Places of messages of all topics that it comes by; 1,000 for who may not operate."""
    matched: int
    cancelled: int
    """Pending messages that are cancelled."""
    released: int
    """Messages that matched, and came due before they were cancelled."""
    unreadable: int
    """Messages whose record no node in reach has whole: they may match, and stay."""
    ready: int
    """Of a purge: released messages, cancelled for every group that had not had them."""
    retries: int
    """Of a purge: retries that are cancelled."""
    in_hand: int
    """Of a purge: released messages that consumers have, or have had, and that stay."""
    not_found: int
    """Messages that the cluster had deleted before their call came: they were released, or cancelled by a
    call whose answer was lost."""


def filter_of(topic: str, only: Matching) -> pb.MessageFilter:
    """Return the filter. Raises InvalidSetting, also where a property is given and empty."""
    given: dict[str, Any] = dict(only)
    for what in ("tags", "keys"):
        if what in given:
            given[what] = named(what, given[what], InvalidSetting)
    for what, value in given.items():
        if not value and what != "due_from_ms":  # the protocol takes it for one that is not given: all match
            text = f"{what} is {value!r}, which would match every message: give some, or leave it out"
            raise InvalidSetting(Reason.QUERY_INVALID, text)
    try:
        return pb.MessageFilter(topic=topic, **given)
    except (TypeError, ValueError) as error:
        raise InvalidSetting(Reason.QUERY_INVALID, f"this is no filter of messages: {error}") from None


async def steps(
    calls: Calls, method: Callable[[Node], Method[Any]], request: Any
) -> AsyncGenerator[BulkCancel]:
    """Make calls until all is done; yield what each tells. A call that may have been done is repeated."""
    while True:
        response = await calls.call(method, request, changes=not request.dry_run)
        told = _of(response.progress)
        yield told
        if told.done:
            return
        request.cursor = told.cursor


def _of(progress: pb.BulkCancel) -> BulkCancel:
    return BulkCancel(**{field.name: getattr(progress, field.name) for field in progress.DESCRIPTOR.fields})
