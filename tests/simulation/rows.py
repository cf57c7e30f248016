"""What the nodes' ledgers are told, held against one another and against what clients know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.batch import DeliveryBatch
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.ledger.fires import FireDetail, fire_in
from tarry.proto.ledger.schema import Kind
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.queues import Queues
from tests.simulation.checker import Violation
from tests.simulation.ledger import UNKNOWN, Id, Ledger, Told, demand
from tests.simulation.order import Order

OF_QUEUE = ("due_ms", "attempt")
"""What an event lacks where the ready queue could not be read."""

UNTOLD = "by_id"
"""The field of an event that no row of a ledger has: each replica tells ids, however it came to them."""


@dataclass(frozen=True, slots=True)
class Misfires:
    """Of a topic whose settings leave out what comes due too late, from an entry on."""

    topic: str
    after_ms: int
    since_index: int

    def check(self, index: int, event: Event) -> None:
        """What is released is in time, what is not has expired."""
        if event.due_ms is None or event.kind not in (Kind.RELEASED, Kind.EXPIRED):
            return
        late = event.at_ms - event.due_ms > self.after_ms
        if (event.kind is Kind.EXPIRED and not late.all()) or (
            index > self.since_index and (event.kind is Kind.RELEASED and late.any())
        ):
            raise Violation(f"L10: {event.kind} of {self.topic} at {index}: late are {late.tolist()}")


class Rows:
    """Of all nodes of one run. Each entry is told of by every replica, again after a restart."""

    def __init__(self, ledger: Ledger) -> None:
        self.misfires: Misfires | None = None
        self._ledger = ledger
        self.messages: defaultdict[tuple[str, Kind], set[Id]] = defaultdict(set)
        """By topic, or `topic/group`, and kind."""
        self.released: defaultdict[str, dict[Id, tuple[int, int]]] = defaultdict(dict)
        """By topic: the offset of each message, and when it was released."""
        self.order = Order(self.messages)
        self.fires: list[tuple[FireDetail, Id]] = []
        """Of schedules that recur, in the order of their entries."""
        self._of_entries: dict[int, list[Event]] = {}

    def applied(self, node: str, index: int, events: Sequence[Event], queues: Queues) -> None:
        """One replica tells what an entry did."""
        first = self._of_entries.get(index)
        if first is None:
            self._of_entries[index] = list(events)
            for event in events:
                self._learn(index, event, queues)
            return
        if len(first) != len(events) or not all(map(_equal, first, events)):
            raise Violation(f"L7: {node} tells of entry {index} {list(events)}, another {first}")
        for n, event in enumerate(events):
            if _is_unknown(first[n]) and not _is_unknown(event):  # that replica could not read it
                first[n] = event
                self._learn(index, event, queues)

    def forget(self, last: int) -> set[Id]:
        """What comes behind that entry is lost for good; return the messages that it scheduled."""
        gone = [self._of_entries.pop(index) for index in sorted(self._of_entries) if index > last]
        return set[Id]().union(
            *(
                _ids(event.hour, event.global_index)
                for events in gone
                for event in events
                if event.kind is Kind.SCHEDULED and event.hour is not None and event.global_index is not None
            )
        )

    def delivered(self, machine: Machine, batch: DeliveryBatch, topic: str, group: str) -> None:
        """A leader tells of a delivery."""
        self.order.delivered_by(machine, batch, topic, group)
        given = _ids(batch.hour, batch.global_index)
        again = batch.attempt > 1
        for place, some in (
            (topic, given),
            (f"{topic}/{group}", _ids(batch.hour[again], batch.global_index[again])),
        ):
            released = self.messages[place, Kind.RELEASED]
            if UNKNOWN not in released:
                demand(
                    some <= released,
                    f"L8: {some - released} go to {group}, and no row releases them to {place}",
                )
        self.messages[f"{topic}/{group}", Kind.DELIVERED] |= given

    def retried(self, told: Told) -> list[str]:
        """Return the groups, as `topic/group`, for which a message has been put back for a retry."""
        return [
            place
            for (place, kind), messages in self.messages.items()
            if kind is Kind.RETRIED and place.split("/")[0] == told.topic and told.message in messages
        ]

    def check(self) -> None:
        """Nothing that a client knows of may be missing in the rows."""
        ledger = self._ledger
        for label, told in ledger.told.items():
            kinds = [Kind.SCHEDULED, *([Kind.CANCELLED] if label in ledger.cancelled else [])]
            # it may have misfired, or have waited for its retry
            of_topics = (told.topic, dead_letter_topic(told.topic), *self.retried(told))
            missing = [
                kind
                for kind in kinds
                if not any(told.message in self.messages[topic, kind] for topic in of_topics)
            ]
            demand(not missing, f"L9: no row {missing} tells of {label!r}")
        for (group, label), kind in [
            *((place, Kind.DELIVERED) for place in ledger.given),
            *((place, Kind.ACKED) for place in ledger.settled),
        ]:
            demand(
                ledger.id_of(label) in self.messages[group, kind], f"L9: no row {kind} of {group}: {label!r}"
            )

    def _learn(self, index: int, event: Event, queues: Queues) -> None:
        if event.kind is Kind.GROUP_MOVED:
            self.order.moved(f"{event.topic}/{event.group}", index)
        if event.hour is None or event.global_index is None:
            return
        numbers = np.broadcast_to(np.asarray(event.queue), event.n)
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            topic = event.topic if number < 0 else queues[number].topic
            group = event.group or ("" if number < 0 else queues[number].group)
            place = (f"{topic}/{group}" if group else f"{topic}", event.kind)
            found = _ids(event.hour[mine], event.global_index[mine])
            if event.kind in (Kind.SCHEDULED, Kind.RELEASED) and not group:
                again = found & self.messages[place]
                demand(not again and len(found) == mine.sum(), f"L7: {again} of {place} are told of twice")
            if event.kind is Kind.RELEASED and not group:
                unknown = found - self.messages[f"{topic}", Kind.SCHEDULED]
                demand(not unknown, f"L7: {unknown} of {topic} are released, and no row says scheduled")
                self._note_offsets(f"{topic}", event, mine)
            self.messages[place] |= found
            if event.kind is Kind.SCHEDULED and (fire := fire_in(event.detail)) is not None:
                self.fires += ((fire, message) for message in found)
            if event.detail == "REDRIVEN":
                self._ledger.redriven |= {(place[0], message) for message in found}
            if event.kind is Kind.EXPIRED and not group:
                self._ledger.expired[f"{topic}"] |= found
            if self.misfires is not None and topic == self.misfires.topic and not group:
                self.misfires.check(index, event)

    def _note_offsets(self, topic: str, event: Event, mine: NDArray[np.bool_]) -> None:
        assert event.hour is not None and event.global_index is not None and event.offset is not None
        columns = zip(
            event.hour[mine].tolist(),
            event.global_index[mine].tolist(),
            event.offset[mine].tolist(),
            strict=True,
        )
        for hour, index, offset in columns:
            self.released[topic][hour, index] = (offset, event.at_ms)


def _ids(hour: NDArray[np.generic], global_index: NDArray[np.generic]) -> set[Id]:
    return set(zip(hour.tolist(), global_index.tolist(), strict=True))


def _is_unknown(event: Event) -> bool:
    """Whether the replica could not read all that it tells of: a copy, or the ready queue, has rotted."""
    return event.hour is not None and bool((np.asarray(event.hour, np.int64) == -1).any())


def _equal(one: Event, other: Event) -> bool:
    """Whether two replicas tell the same, as far as neither has rotten files."""
    if _is_unknown(one) or _is_unknown(other):
        unread = [name for name in OF_QUEUE if getattr(one, name) is None or getattr(other, name) is None]
        one, other = one._replace(**dict.fromkeys(unread)), other._replace(**dict.fromkeys(unread))
    known: NDArray[np.bool_] | None = None
    if one.hour is not None and other.hour is not None and len(one.hour) == len(other.hour):
        known = (np.asarray(one.hour, np.int64) != -1) & (np.asarray(other.hour, np.int64) != -1)
    for name, mine, others in zip(Event._fields, one, other, strict=True):
        if name == UNTOLD:
            continue
        if not isinstance(mine, np.ndarray) or not isinstance(others, np.ndarray):
            if mine is not others and (isinstance(mine, np.ndarray) or mine != others):
                return False
        elif name in ("hour", "global_index", "attempt") and known is not None:
            if not np.array_equal(mine[known], others[known]):
                return False
        elif not np.array_equal(mine, others):
            return False
    return True
