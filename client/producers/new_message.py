"""Messages to schedule together, each with a topic of its own, and the columns that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarry.client.errors import InvalidBatch, InvalidTime
from tarry.client.producers.batch import time_of
from tarry.proto.reasons import Reason


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to schedule. Of ``due_ms``, ``delay_ms`` and ``delay_level`` exactly one is given."""

    topic: str
    body: bytes = b""
    due_ms: int | None = None
    """In milliseconds since the epoch, UTC."""
    delay_ms: int | None = None
    """From the cluster's current time."""
    delay_level: int | None = None
    """Entry of the cluster's table of delays; 1 is the first."""
    jitter_ms: int = 0
    """Delay the message further by a random time of at most this."""
    tags: Sequence[str] = ()
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    ordering_key: str = ""
    idempotency_key: str = ""


def columns_of(messages: Sequence[NewMessage]) -> dict[str, Any]:
    """Return the arguments of ``Producer.schedule_batch``, columns that no message has left out.

    Raises InvalidTime where messages name their times in several ways, or one in none; InvalidBatch for none.
    """
    if not messages:
        raise InvalidBatch(Reason.BATCH_EMPTY, "the batch holds no message")
    kinds: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        time, value = time_of(message.due_ms, message.delay_ms, message.delay_level)
        kinds.setdefault(time.name.lower(), []).append(value)  # type: ignore[arg-type]
        if len(kinds) > 1:
            text = f"message {position} gives {time.name.lower()}, and others {next(iter(kinds))}"
            raise InvalidTime(
                Reason.DUE_AMBIGUOUS,
                f"{text}: messages of one batch name their times in one way",
                {"position": str(position)},
            )
    columns: dict[str, Any] = {
        "topic": [message.topic for message in messages],
        "bodies": [message.body for message in messages],
        "jitter_ms": [message.jitter_ms for message in messages],
        "tags": [message.tags for message in messages],
        "keys": [message.keys for message in messages],
        "properties": [message.properties for message in messages],
        "ordering_keys": [message.ordering_key for message in messages],
        "idempotency_keys": [message.idempotency_key for message in messages],
    }
    needed = {"topic", "bodies"}
    return {name: column for name, column in columns.items() if name in needed or any(column)} | kinds
