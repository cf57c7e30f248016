"""Cancels of many messages: call by call, each with the cursor of the answer before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from tarry.client.cluster.calls import Calls, Method
from tarry.client.cluster.nodes import Node
from tarry.proto import tarry_query_pb2 as pb


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
