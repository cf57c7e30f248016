"""Filters of messages, as calls of QueryService give them: first by index units, then by records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.config import Limits
from tarry.node.edge.names import check_topic, unknown_topic
from tarry.node.edge.request_bytes import FILTER_CHARS_MAX as CHARS_MAX
from tarry.node.edge.request_bytes import FILTER_NAMES_MAX as NAMES_MAX
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_filter
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS

DUE_MS_MAX: Final = (1 << 32) * HOUR_MS
"""End of the last hour that a message id can name."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that has been checked."""

    topic: str
    queue: int
    """Number of the topic's ready queue."""
    tags: frozenset[str]
    keys: frozenset[str]
    key_prefix: str
    due_from_ms: int
    due_to_ms: int
    """Due times in [from, to)."""

    @property
    def needs_records(self) -> bool:
        """True where index units alone do not tell whether a message matches."""
        return bool(self.tags or self.keys or self.key_prefix)

    def due(self, due_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Flag due times, shape (n,)."""
        return (due_ms >= self.due_from_ms) & (due_ms < self.due_to_ms)

    def tagged(self, masks: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Flag tag masks, u8[n], unpacked of lanes, of messages that may have one of the tags."""
        return tag_filter(self.tags).may_match(masks)

    def matching(self, records: Sequence[bytes | None]) -> NDArray[np.bool_]:
        """Flag records; one that is damaged (None) does not match."""
        return np.fromiter(map(self._matches, records), np.bool_, len(records))

    def _matches(self, serialized: bytes | None) -> bool:
        if serialized is None:
            return False
        record = Record.FromString(serialized)
        return (
            (not self.tags or not self.tags.isdisjoint(record.tags))
            and (not self.keys or not self.keys.isdisjoint(record.keys))
            and (not self.key_prefix or any(key.startswith(self.key_prefix) for key in record.keys))
        )


def checked(request: pb.MessageFilter, queues: Queues, limits: Limits) -> Filter | Refusal:
    """Return the filter, or why it will not do."""
    refusal = check_topic(request.topic, limits) or _fault(request)
    if refusal is not None:
        return refusal
    queue = queues.find(request.topic)
    if queue is None:
        return unknown_topic(request.topic)
    return Filter(
        topic=request.topic,
        queue=queue.queue,
        tags=frozenset(request.tags),
        keys=frozenset(request.keys),
        key_prefix=request.key_prefix,
        due_from_ms=request.due_from_ms,
        due_to_ms=request.due_to_ms or DUE_MS_MAX,
    )


def _fault(request: pb.MessageFilter) -> Refusal | None:
    for what, names in (("tags", request.tags), ("keys", request.keys)):
        if len(names) > NAMES_MAX:
            return invalid_query(f"{len(names)} {what}, more than {NAMES_MAX}: ask in parts")
    texts: list[Any] = [*request.tags, *request.keys]
    if not all(texts):
        return invalid_query("a tag or key is empty: leave it out")
    if max(map(len, (*texts, request.key_prefix))) > CHARS_MAX:
        return invalid_query(f"a tag, key or prefix has more than {CHARS_MAX} characters")
    begins_ms, ends_ms = request.due_from_ms, request.due_to_ms
    if begins_ms < 0 or ends_ms < 0 or (ends_ms and ends_ms <= begins_ms):
        return invalid_query(
            f"due from {begins_ms} to {ends_ms}: give ms since the epoch, the end after the start"
        )
    return None


def invalid_query(text: str) -> Refusal:
    """Return the refusal of a query that cannot be answered as it is asked; the text says what to give."""
    return Refusal(Reason.QUERY_INVALID, text)
