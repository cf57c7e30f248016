"""Options of a consumer and of a puller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypedDict

from tarry.client.consumers.unsettled import FailedAcks
from tarry.client.start_position import Start


class PullerOptions(TypedDict, total=False):
    """Topics, name, filter, lease and beginning of a consumer that takes messages call by call."""

    topics: Iterable[str]
    """Instead of a topic: names, and patterns as ``orders.*``, which have what comes later as well."""
    name: str
    """Stable over reconnects, unique in the group; whoever settles must have the name of who received."""
    tags: Iterable[str]
    """Only messages with any of these; none: all."""
    filter: str
    """Only messages of whose properties this SQL92 condition is true, as ``amount > 100 AND region = 'eu'``;
    empty: all. With tags both count. All of a group's consumers have the same text."""
    lease_ms: int
    """How long a message may stay in hand before it is delivered again; 0: the cluster's default."""
    start: Start | None
    """Where a new group begins."""


class ConsumerOptions(PullerOptions, total=False):
    """Options of a consumer with a stream."""

    credit: int
    """Messages in hand at once; 1,000 is the default."""
    dedupe: bool
    """Keep back what was handed out before."""
    broadcast: bool
    """Every consumer of the group sees every message, each (by its name) from a position of its own."""
    temporary: bool | None
    """A group that is new is deleted as its last consumer is closed, or minutes after that one has died.
    None: so is what a broadcast consumer without a name has made."""
    in_hand_bytes_max: int
    """No more is sent while records of so many bytes are in hand; 0: the cluster's default."""
    on_ack_failed: Callable[[FailedAcks], None]
    """Called on the client's event loop with each `ack_soon` that did not count; else they are logged."""
