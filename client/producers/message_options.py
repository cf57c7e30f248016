"""Options of a single message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from tarry.client.durability import Durability
from tarry.client.producers.selectors import Selector


class MessageOptions(TypedDict, total=False):
    """Due time, tags, keys, properties and order of a message. Exactly one time is given."""

    due_ms: int | None
    """In milliseconds since the epoch, UTC."""
    delay_ms: int | None
    """From the cluster's current time."""
    delay_level: int | None
    """Entry of the cluster's table of delays; 1 is the first."""
    jitter_ms: int
    """Delay the message further by a random time of at most this; 0 is the default."""
    tags: Sequence[str]
    keys: Sequence[str]
    properties: Mapping[str, str] | None
    ordering_key: str
    """Messages of a topic with the same key are delivered one after another, once the last is settled."""
    selector: Selector | None
    """Chooses the ordering key by the message; instead of ``ordering_key``."""
    idempotency_key: str
    """Of messages scheduled to a topic with one key only the first is taken; others answer with its id.
    Empty: each is taken."""
    durability: Durability | str
    """``sync``: answered once a majority has flushed it, also where the cluster's durability is async.
    Else the cluster's durability counts, which is the default."""


def check_options(options: MessageOptions) -> None:
    """Raise TypeError for an option that no message has."""
    for name in options.keys() - MessageOptions.__optional_keys__:
        raise TypeError(f"schedule got an unexpected keyword argument {name!r}")
