"""The consumers of a group, as operators see them: with a stream or a call, or with messages in hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from tarry.node.delivery.consumer import Consumer, shown_filter, shown_tags
from tarry.node.delivery.in_flight import InFlight
from tarry.proto import tarry_operator_pb2 as pb

CONSUMERS_MAX: Final = 1_000
"""Shown of one group."""
PIECE_NAMES: Final = 32_768
"""That one turn of the event loop looks at for those that are shown."""
PIECE_CONSUMERS: Final = 500
"""Shown by one turn, at some 0.01 ms each and for each 4 tags, with the next: some 5 ms."""
PIECE_BATCHES: Final = 65_536
"""Of theirs, whose leases are looked at."""
TOPICS_SHOWN: Final = 16
"""Names and patterns of a consumer's stream."""
KEPT_MIN: Final = 64
"""Of those that have gone, before it is looked who still has something in hand."""

Shown: TypeAlias = tuple[list[pb.Consumer], int]
"""The first by name, and how many more there are."""


class _Gone(NamedTuple):
    """A consumer as far as it is known once its stream or call is over."""

    address: str = ""
    since_ms: int = 0
    polls: bool = False
    tags: tuple[str, ...] = ()
    """As they are shown: as they came they may be long."""
    tags_left_out: int = 0
    topics: tuple[str, ...] = ()
    """The first names and patterns that its stream has asked for, where it has several topics."""
    topics_left_out: int = 0
    filter: str = ""
    """By properties, as it is shown."""


class ConsumerTable:
    """Knows consumers that have gone for as long as they have messages in hand."""

    def __init__(self) -> None:
        self._gone: dict[str, _Gone] = {}

    def came(self, consumer: Consumer) -> None:
        """Note that a consumer has opened its stream, or calls."""
        self._gone.pop(consumer.name, None)

    def left(self, consumer: Consumer, in_flight: Sequence[InFlight]) -> None:
        """Note that its stream or call is over."""
        if any(consumer.name in some for some in in_flight):
            self._gone[consumer.name] = _shown(consumer)
        if len(self._gone) > KEPT_MIN + 2 * sum(map(len, in_flight)):
            self._gone = {
                name: known for name, known in self._gone.items() if any(name in some for some in in_flight)
            }

    def shown(self, consumers: Iterable[Consumer], in_flight: Sequence[InFlight]) -> Iterator[Shown | None]:
        """Yield None after each piece of the work, and what is to be shown at last."""
        connected = defaultdict[str, list[Consumer]](list)
        for consumer in consumers:
            connected[consumer.name].append(consumer)
        known = set(connected)
        for some in map(list, in_flight):
            for start in range(0, len(some), PIECE_NAMES):
                known.update(some[start : start + PIECE_NAMES])
                yield None
        names, chosen = list(known), list[str]()
        for start in range(0, len(names), PIECE_NAMES):
            chosen = nsmallest(CONSUMERS_MAX, (*chosen, *names[start : start + PIECE_NAMES]))
            yield None
        rows, spent = list[pb.Consumer](), 0.0
        for name in chosen:
            row, batches = self._row(name, connected.get(name, ()), in_flight)
            rows += [row] if row.connected or row.in_hand else []  # else it has settled all meanwhile
            spent += (1 + len(row.tags) / 4) / PIECE_CONSUMERS + batches / PIECE_BATCHES
            if spent >= 1:
                yield None
                spent = 0.0
        yield rows, len(names) - len(chosen)

    def _row(
        self, name: str, connected: Sequence[Consumer], in_flight: Sequence[InFlight]
    ) -> tuple[pb.Consumer, int]:
        """Return what is shown of a consumer, of its calls together, and how many leases it has."""
        held = [one for some in in_flight if (one := some.get(name)) is not None]
        ends_ms = [batch.until_ms for one in held for batch in one.batches]
        # of whom only the leader before has delivered to nothing else is known
        known = _shown(connected[-1]) if connected else self._gone.get(name, _Gone())
        row = pb.Consumer(
            consumer=name,
            address=known.address,
            since_ms=known.since_ms,
            polls=known.polls,
            connected=bool(connected),
            credit=sum(consumer.free_credit for consumer in connected),
            in_hand=sum(one.messages for one in held),
            lease_end_ms=min(ends_ms, default=0),
            tags=known.tags,
            tags_left_out=known.tags_left_out,
            topics=known.topics,
            topics_left_out=known.topics_left_out,
            filter=known.filter,
        )
        return row, len(ends_ms)


def _shown(consumer: Consumer) -> _Gone:
    tags = shown_tags(consumer.tags)
    more = len(consumer.tags) - len(tags)
    topics = consumer.topics[:TOPICS_SHOWN]
    return _Gone(
        consumer.address,
        consumer.since_ms,
        consumer.polls,
        tags,
        more,
        topics,
        len(consumer.topics) - len(topics),
        shown_filter(consumer.selects[1]),
    )
