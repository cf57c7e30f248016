"""Table of the schedules that recur: replicated state, in memory and in checkpoints.

A schedule's state is a RecurringCheckpoint, kept as it is written and read where it is changed: a hundred
thousand take little memory, and a checkpoint takes references alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_recurring_pb2 import RecurringSpec

HISTORY: Final = 10
"""Entries kept of each schedule's history."""
NONE_COMES: Final = -1
"""In the place of the next fire: none comes any more."""
FEW: Final = 64
"""Of a topic's schedules: so many leave the list of names one by one, more all at once."""


@dataclass(slots=True)
class Entry:
    """A schedule: what is looked at often, and its state."""

    number: int
    name: str
    topic: str
    changes: int
    paused: bool
    next_ms: int
    """The next fire, ms since the epoch; 0: not worked out; NONE_COMES."""
    waiting_ms: int
    """The fire that waits until the last is settled; 0: none does."""
    size_bytes: int
    """Of the name, the specification and the record."""
    part: bytes
    """A RecurringCheckpoint."""

    def state(self) -> log_pb.RecurringCheckpoint:
        """Return the state, to be changed and stored."""
        return log_pb.RecurringCheckpoint.FromString(self.part)


class Schedules:
    """All schedules that recur, by number, by name and by topic."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last one created."""
        self.bytes = 0
        """Sum of their sizes."""
        self._numbers: dict[int, Entry] = {}  # ascending, for numbers only grow
        self._names: dict[str, Entry] = {}
        self._sorted: list[str] = []
        self._topics: dict[str, dict[int, Entry]] = {}
        self._changed: dict[int, None] = {}

    def recover(self, parts: Iterable[bytes], number: int) -> None:
        """Take the schedules of a checkpoint."""
        self.number = number
        for part in parts:
            self._add(_entry(log_pb.RecurringCheckpoint.FromString(part), part))
        self._sorted = sorted(self._names)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._numbers.values())

    def named(self, name: str) -> Entry | None:
        """Return the schedule of a name."""
        return self._names.get(name)

    def numbered(self, number: int) -> Entry | None:
        """Return the schedule of a number."""
        return self._numbers.get(number)

    def numbers(self) -> list[int]:
        """Return all numbers, ascending."""
        return list(self._numbers)

    def names_from(self, name: str, count: int) -> list[str]:
        """Return names in order, from one on."""
        first = bisect_left(self._sorted, name)
        return self._sorted[first : first + count]

    def numbers_of(self, topic: str) -> list[int]:
        """Return the numbers of a topic's schedules."""
        return list(self._topics.get(topic, ()))

    def store(self, state: log_pb.RecurringCheckpoint) -> None:
        """Keep a state as it is now; one of a new number is a new schedule."""
        state.changes += 1
        known = self._numbers.get(state.number)
        entry = _entry(state, state.SerializeToString())
        if known is None:
            self._add(entry)
            insort(self._sorted, entry.name)
        else:
            self.bytes += entry.size_bytes - known.size_bytes
            if known.topic != entry.topic:
                self._leave_topic(known)
            self._numbers[entry.number] = self._names[entry.name] = entry
            self._topics.setdefault(entry.topic, {})[entry.number] = entry
        self._changed[entry.number] = None

    def remove(self, entry: Entry) -> None:
        """Forget a schedule."""
        self._leave_topic(entry)
        self._forget(entry)
        del self._sorted[bisect_left(self._sorted, entry.name)]

    def remove_topic(self, topic: str) -> int:
        """Forget the schedules of a topic; return how many. The leader leaves few of them (`remove_all`)."""
        return self.remove_all(self.numbers_of(topic))

    def remove_all(self, numbers: Iterable[int]) -> int:
        """Forget schedules; return how many there were. Of 500 among 100,000 in some 10 ms."""
        gone = [entry for number in dict.fromkeys(numbers) if (entry := self._numbers.get(number))]
        for entry in gone:
            self._leave_topic(entry)
            self._forget(entry)
        if len(gone) > FEW:
            self._sorted = [name for name in self._sorted if name in self._names]
        else:
            for entry in gone:
                del self._sorted[bisect_left(self._sorted, entry.name)]
        return len(gone)

    def take_changed(self) -> list[int]:
        """Return the numbers of schedules that were changed since the last call, those that are gone too."""
        changed, self._changed = list(self._changed), {}
        return changed

    def capture(self) -> Sequence[bytes]:
        """Return the states, by number."""
        return [entry.part for entry in self._numbers.values()]

    def _add(self, entry: Entry) -> None:
        self._numbers[entry.number] = self._names[entry.name] = entry
        self._topics.setdefault(entry.topic, {})[entry.number] = entry
        self.bytes += entry.size_bytes

    def _forget(self, entry: Entry) -> None:
        del self._numbers[entry.number], self._names[entry.name]
        self.bytes -= entry.size_bytes
        self._changed[entry.number] = None

    def _leave_topic(self, entry: Entry) -> None:
        schedules = self._topics[entry.topic]
        del schedules[entry.number]
        if not schedules:
            del self._topics[entry.topic]


def size_bytes(name: str, spec: bytes, record: bytes) -> int:
    """Return the bytes that count of a schedule."""
    return len(name.encode()) + len(spec) + len(record)


def _entry(state: log_pb.RecurringCheckpoint, part: bytes) -> Entry:
    return Entry(
        state.number,
        state.name,
        RecurringSpec.FromString(state.spec).topic,
        state.changes,
        state.paused,
        state.next_ms,
        state.waiting_ms,
        size_bytes(state.name, state.spec, state.record),
        part,
    )
