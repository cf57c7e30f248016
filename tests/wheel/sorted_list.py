"""What the wheel must be equal to: a plain sorted list of messages, and calls that are made to both."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.state import HOUR_MS, NONE, NOTHING_RELEASED, CancelOutcome, Cut, MessageState, Taken
from tarry.wheel.wheel import Wheel

START_MS = 1_792_281_600_000  # 2026-10-17T16:00Z, the beginning of an hour


def u4(*values: int) -> NDArray[np.uint32]:
    return np.array(values, np.uint32)


def append(
    wheel: Wheel, due_ms: Sequence[int], records: Sequence[bytes] | None = None
) -> list[tuple[int, int]]:
    """Append messages that differ in topic and mask; their (hour, global index)."""
    due = np.array(due_ms, np.int64)
    where = wheel.append(
        due,
        (due % 7).astype(np.uint32),
        (due % 11).astype(np.uint64),
        records if records is not None else [b"due %d" % at for at in due_ms],
    )
    return list(zip(where.hour.tolist(), where.global_index.tolist(), strict=True))


def ids(messages: Sequence[tuple[int, int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    return u4(*[hour for hour, _ in messages]), u4(*[index for _, index in messages])


def rows(taken: Taken) -> list[tuple[int, int, int]]:
    """(due_ms, hour, global index) of what was taken, after the columns are seen to belong together."""
    assert (taken.due_ms // HOUR_MS == taken.hour).all()
    assert (taken.due_ms % 7 == taken.topic).all()
    assert (taken.due_ms % 11 == taken.tag_mask).all()
    return list(zip(taken.due_ms.tolist(), taken.hour.tolist(), taken.global_index.tolist(), strict=True))


@dataclass
class SortedList:
    """The wheel's promise, as plainly as it can be written."""

    cut: Cut = NOTHING_RELEASED
    local_index: int = 0
    floor_hour: int = 0
    pending: list[tuple[int, int]] = field(default_factory=list)
    states: dict[tuple[int, int], MessageState] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def append(self, due_ms: Sequence[int]) -> list[tuple[int, int]]:
        names = []
        for asked in due_ms:
            due = max(asked, self.floor_hour * HOUR_MS)
            hour = due // HOUR_MS
            index = self.sizes.get(hour, 0)
            self.sizes[hour] = index + 1
            names.append((hour, index))
            if (due, index) <= self.cut:
                self.states[hour, index] = MessageState.RELEASED
            else:
                self.states[hour, index] = MessageState.PENDING
                insort(self.pending, (due, index))
        return names

    def take(self, until_ms: int, count: int) -> list[tuple[int, int, int]]:
        if (until_ms, NONE) <= self.cut:
            return []
        due = [message for message in self.pending if message[0] <= until_ms]
        taken = due[:count]
        if len(taken) == len(due):
            cut = Cut(until_ms, NONE)
        elif taken:
            cut = Cut(*taken[-1])
        else:
            return []
        del self.pending[: len(taken)]
        if cut.due_ms // 1000 != self.cut.due_ms // 1000:
            self.local_index = 0
        self.local_index += sum(at // 1000 == cut.due_ms // 1000 for at, _ in taken)
        self.cut = cut
        for at, index in taken:
            self.states[at // HOUR_MS, index] = MessageState.RELEASED
        return [(at, at // HOUR_MS, index) for at, index in taken]

    def overtake(self, names: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        chosen = sorted(m for m in self.pending if (m[0] // HOUR_MS, m[1]) in names)
        self.pending = [message for message in self.pending if message not in chosen]
        for at, index in chosen:
            self.states[at // HOUR_MS, index] = MessageState.RELEASED
        return [(at, at // HOUR_MS, index) for at, index in chosen]

    def cancel(self, names: Sequence[tuple[int, int]]) -> list[CancelOutcome]:
        outcomes = []
        for name in names:
            match self.states.get(name, MessageState.NOT_FOUND):
                case MessageState.PENDING:
                    self.states[name] = MessageState.CANCELLED
                    self.pending = [m for m in self.pending if (m[0] // HOUR_MS, m[1]) != name]
                    outcomes.append(CancelOutcome.CANCELLED)
                case MessageState.CANCELLED:
                    outcomes.append(CancelOutcome.ALREADY_CANCELLED)
                case MessageState.RELEASED:
                    outcomes.append(CancelOutcome.ALREADY_RELEASED)
                case MessageState.NOT_FOUND:
                    outcomes.append(CancelOutcome.NOT_FOUND)
        return outcomes

    def withdraw(self, names: Sequence[tuple[int, int]]) -> None:
        for name in names:
            if self.states.get(name) is MessageState.RELEASED:
                self.states[name] = MessageState.CANCELLED

    def drop_hour(self, hour: int) -> None:
        self.floor_hour = max(self.floor_hour, hour + 1)
        self.sizes.pop(hour, None)
        self.states = {name: state for name, state in self.states.items() if name[0] != hour}
