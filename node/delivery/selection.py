"""A group's selection of messages: exact tags and the filter by properties, asked once for each offset.

What a group is not to have is acknowledged for it, so it does not come again. What it is to have may: given
back, or taken back by the feed. It is kept as a bitmap for each queue, above the group's floor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.node.config import Delivery
from tarry.node.delivery.batch import Select
from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.wheel.bitmaps import contains

# Of what all groups ask in one turn of the event loop, each by itself some 10 ms.
TURN_TESTS_MAX: Final = 10_000
"""Comparisons: up to 2 us each, where long decimals are read."""
TURN_TESTED_BYTES_MAX: Final = 4 << 20
"""Of records, for each comparison: a property may be most of its record."""


class Selection:
    """Decides which messages a group is to have."""

    def __init__(
        self, limits: Delivery, group: str, acknowledged: Mapping[tuple[str, int], Acknowledgements]
    ) -> None:
        """Take what is acknowledged by group and queue, whose floors are looked up as they are then."""
        self._limits, self._group, self._acknowledged = limits, group, acknowledged
        self._tags: frozenset[str] = frozenset()
        self._filter: PropertyFilter | None = None
        self._matched = defaultdict[int, BitMap64](BitMap64)
        self._ahead = 1

    def use(self, tags: frozenset[str], by_properties: PropertyFilter | None) -> None:
        """Select by these from now on: of any of the tags, if there are some, and matching the filter."""
        before = "" if self._filter is None else self._filter.text
        if tags != self._tags or before != ("" if by_properties is None else by_properties.text):
            self._matched.clear()
            self._ahead = 1
        self._tags, self._filter = tags, by_properties

    @property
    def messages_max(self) -> int:
        """Messages that one batch may ask about."""
        return min(self._limits.batch_messages_max, TURN_TESTS_MAX // self._tests)

    def ahead(self, wanted: int) -> int:
        """Return how many messages to ask about for so many: more for each batch of which none matched."""
        return min(self.messages_max, wanted * self._ahead)

    @property
    def bytes_max(self) -> int:
        """Bytes of records that one batch may ask about."""
        return min(self._limits.batch_bytes_max, TURN_TESTED_BYTES_MAX // self._tests)

    @property
    def _tests(self) -> int:
        return 1 if self._filter is None else max(1, self._filter.tests)

    def share(self, messages: int, size_bytes: int) -> float:
        """Return the share of a turn that it takes to ask about messages, by their number and records."""
        if self._filter is None:
            return 0.0
        return self._tests * max(messages / TURN_TESTS_MAX, size_bytes / TURN_TESTED_BYTES_MAX)

    def of(self, queue: int) -> Select | None:
        """Return the selection from a queue; None: all of it."""
        if self._filter is not None:
            return partial(self._decided, self._filter, queue)
        return self._by_tags if self._tags else None

    def _by_tags(self, _: NDArray[np.uint64], records: Sequence[bytes]) -> NDArray[np.bool_]:
        tags = self._tags
        return np.array([not tags.isdisjoint(_parsed(record).tags) for record in records], dtype=np.bool_)

    def _decided(
        self,
        by_properties: PropertyFilter,
        queue: int,
        offsets: NDArray[np.uint64],
        records: Sequence[bytes],
    ) -> NDArray[np.bool_]:
        """Flag the records that match, and keep which do; those that are known to are not asked again."""
        matched = self._matched[queue]
        if (acknowledged := self._acknowledged.get((self._group, queue))) is not None:
            matched.remove_range(0, acknowledged.floor)
        matches = contains(matched, offsets)
        asked = np.flatnonzero(~matches)
        if len(asked) < len(records):
            records = [records[place] for place in asked.tolist()]
        try:
            matches[asked] = self._answers(by_properties, map(Record.FromString, records))
        except DecodeError:
            matches[asked] = self._answers(by_properties, map(_parsed, records))
        matched.update(offsets[matches].tolist())
        self._ahead = 1 if matches.any() else min(2 * self._ahead, self._limits.batch_messages_max)
        return matches

    def _answers(self, by_properties: PropertyFilter, messages: Iterable[Record]) -> list[bool]:
        test, tags = by_properties.test, self._tags
        if tags:
            return [
                not tags.isdisjoint(message.tags) and test(message.properties) is True for message in messages
            ]
        return [test(message.properties) is True for message in messages]


def _parsed(record: bytes) -> Record:
    """Return the record; one that does not parse has nothing in it."""
    try:
        return Record.FromString(record)
    except DecodeError:
        return Record()
