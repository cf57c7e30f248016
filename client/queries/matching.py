"""Filters of messages, by properties that they have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict

from tarry.client.errors import InvalidQuery
from tarry.client.integers import INT64_MAX, whole
from tarry.client.queries.names import named
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason


class Matching(TypedDict, total=False):
    """Properties that messages have in common; all that are given have to fit, and none may be empty."""

    tags: Collection[str]
    """Any of these."""
    keys: Collection[str]
    """Any of these."""
    key_prefix: str
    """Some key begins with it."""
    due_from_ms: int
    """Due then or later; of a retry, its next delivery is."""
    due_to_ms: int
    """Due before; without: whenever."""


def filter_of(topic: str, only: Mapping[str, Any]) -> pb.MessageFilter:
    """Return the filter. Raises InvalidQuery, also for what is empty or not in Matching."""
    given = dict(only)
    if unknown := given.keys() - Matching.__annotations__.keys():  # left out, more would match
        text = f"there is no property {min(unknown)!r}: give some of {', '.join(Matching.__annotations__)}"
        raise InvalidQuery(Reason.QUERY_INVALID, text)
    for what in given.keys() & {"tags", "keys"}:
        given[what] = sorted(named(what, given[what], InvalidQuery))
    for what in given.keys() & {"due_from_ms", "due_to_ms"}:
        whole(what, given[what], InvalidQuery, Reason.QUERY_INVALID, INT64_MAX)
    for what, value in given.items():
        if not value and what != "due_from_ms":  # the protocol takes it for one that is not given: all match
            text = f"{what} is {value!r}, which would match every message: give some, or leave it out"
            raise InvalidQuery(Reason.QUERY_INVALID, text)
    try:
        return pb.MessageFilter(topic=topic, **given)
    except (TypeError, ValueError) as error:
        raise InvalidQuery(Reason.QUERY_INVALID, f"this is no filter of messages: {error}") from None
