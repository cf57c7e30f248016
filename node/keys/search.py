"""Messages that have a key: the index tells which may, and their records which do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.node.keys.keeper import KeyKeeper
from tarry.node.repair.records import Damage
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.keys import IDEMPOTENCY_PREFIX, hashes, of_topic
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.keys.run import PLACES_END, Words, hours_of, indices_of, words_of
from tarry.wheel.state import HOUR_MS, Flags, MessageState, Numbers, Rows, UnknownMessage
from tarry.wheel.wheel import Wheel

STEP_PLACES: Final = 256
"""Asked of the index at a time."""
PLACE_NS: Final = 6_000
"""CPU time that a place costs, whatever its hour: its unit, its state and its record are looked at."""
TURN_NS: Final = 3_000_000
"""Of places looked at in one turn of the event loop."""
TURN_BYTES: Final = 256 << 10
"""Of their records, likewise; a larger record is looked at alone."""
STEP_BYTES: Final = 1 << 20
"""Records of one step, beside those of its last turn."""
DUE_MS_MAX: Final = (1 << 32) * HOUR_MS
Fitting = tuple[Numbers, Numbers, Rows, NDArray[np.uint8], tuple[Numbers, Numbers]]
"""Hours, indices, units, states and ids of messages, shape (n,), all of one moment."""


class Span(NamedTuple):
    """Times from one to before another; 0: from the beginning, without an end."""

    from_ms: int = 0
    to_ms: int = 0

    def has(self, time_ms: int) -> bool:
        """Return whether a time is in it; 0, a time that is not known, is only in one without bounds."""
        if not (self.from_ms or self.to_ms):
            return True
        return max(self.from_ms, 1) <= time_ms < (self.to_ms or DUE_MS_MAX)


EVER: Final = Span()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages to be found: of a queue, with a key, of some times, in one of some states."""

    queue: int
    key: str
    due_from_ms: int = 0
    due_to_ms: int = DUE_MS_MAX
    states: Collection[MessageState] = (MessageState.PENDING, MessageState.RELEASED, MessageState.CANCELLED)
    idempotent: bool = False
    """The key is an idempotency key."""
    stored_ms: Span = EVER
    born_ms: Span = EVER

    @property
    def key_hash(self) -> int:
        """Hash of topic and key."""
        prefix = IDEMPOTENCY_PREFIX if self.idempotent else b""
        return int(of_topic(hashes([prefix + self.key.encode()]), np.array([self.queue], np.uint32))[0])

    def fits(self, record: bytes) -> bool:
        """Return whether a record has the key, and its times are in the spans."""
        parsed = Record.FromString(record)
        has = self.key == parsed.idempotency_key if self.idempotent else self.key in parsed.keys
        return has and self.stored_ms.has(parsed.stored_ms) and self.born_ms.has(parsed.born_ms)

    @property
    def first(self) -> int:
        """The first place that may be due in time."""
        first_ms = max(self.due_from_ms, self.stored_ms.from_ms)  # nothing is due before it is stored
        return first_ms // HOUR_MS << 32

    @property
    def end(self) -> int:
        """The place behind the last that may be due in time."""
        return min(-(-self.due_to_ms // HOUR_MS) << 32, PLACES_END)


class Found(NamedTuple):
    """One message that has the key, as it is now."""

    hour: int
    global_index: int
    place: int
    """Its number in the order of pages, by where it rests."""
    due_ms: int
    state: MessageState
    record: bytes


@dataclass(slots=True)
class Step:
    """Some places that the index has for a key, ascending, and what came of them."""

    found: list[Found] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    """Places of messages whose records are damaged here, and being mended: they may have the key."""
    examined: int = 0
    """Number of the places."""
    spent_ns: int = 0
    """CPU time, as estimated."""
    next: int | None = None
    """The place from which the next step begins; None: this was the last."""
    size_bytes: int = 0
    """Of the records of what was found."""

    def has(self, most: int) -> bool:
        """Return whether that is enough of a step."""
        return len(self.found) >= most or self.size_bytes >= STEP_BYTES


class KeySearch:
    """Looks for messages by their keys, a bounded piece in each turn of the event loop."""

    def __init__(self, keeper: KeyKeeper, machine: Machine, damage: Damage) -> None:
        self._keeper, self._machine, self._damage = keeper, machine, damage

    async def step(self, wanted: Wanted, first: int, most: int = STEP_PLACES) -> Step | Refusal:
        """Look at the places from ``first`` on, until ``most`` messages or more are found.

        STEP_PLACES at most. What is there no more is passed over.
        """
        places = await self._keeper.find(wanted.key_hash, max(first, wanted.first), wanted.end, STEP_PLACES)
        if places is None:
            return incomplete(self._keeper)
        step = Step(examined=len(places), next=int(places[-1]) + 1 if len(places) == STEP_PLACES else None)
        costs_ns = PLACE_NS + self._machine.wheel.costs_ns(hours_of(places), indices_of(places))
        step.spent_ns = int(costs_ns.sum(dtype=np.int64))
        for rows in portions(costs_ns, TURN_NS):
            last = await self._look(wanted, places[rows], step, most)
            await asyncio.sleep(0)
            if step.has(most) and last < int(places[-1]):
                step.examined, step.next = int(np.searchsorted(places, np.uint64(last), "right")), last + 1
                break
        return step

    async def _look(self, wanted: Wanted, places: Words, step: Step, most: int) -> int:
        """Look at places, in order, until the step has enough; return the last that was looked at."""
        left = places
        while len(left):
            hour, index, units, states, named = self._fitting(wanted, hours_of(left), indices_of(left))
            left = places[:0]
            for rows in portions(units["size"], TURN_BYTES):
                part = words_of(hour[rows], index[rows])
                try:
                    records = await self._damage.reads.read(hour[rows], index[rows])
                except UnknownMessage:  # some were deleted meanwhile, or thinned: look at the others again
                    left = places[np.searchsorted(places, part[0]) :]
                    await asyncio.sleep(0)
                    break
                of_rows = (named[0][rows], named[1][rows])
                fitting = hour[rows], index[rows], units[rows], states[rows], of_rows
                self._take(wanted, fitting, records, step)
                if step.has(most):
                    return int(part[-1])
        return int(places[-1])

    def _take(self, wanted: Wanted, fitting: Fitting, records: Sequence[bytes | None], step: Step) -> None:
        """Add to the step which of the messages have the key."""
        hour, index, units, states, named = fitting
        places = words_of(hour, index)
        damaged = np.array([record is None for record in records], np.bool_)
        if damaged.any():
            self._damage.report(hour[damaged], index[damaged])
            step.unreadable += places[damaged].tolist()
        due_ms = hour.astype(np.int64) * HOUR_MS + units["due_in_hour_ms"]
        columns = (*named, places, due_ms, states)
        found = [
            Found(at, number, place, due, MessageState(state), record)
            for at, number, place, due, state, record in zip(
                *map(np.ndarray.tolist, columns), records, strict=True
            )
            if record is not None and wanted.fits(record)
        ]
        step.found += found
        step.size_bytes += sum(len(one.record) for one in found)

    def _fitting(self, wanted: Wanted, hour: Numbers, index: Numbers) -> Fitting:
        """Return those of the messages that are there and may be wanted, with all that is known of them."""
        some = seen(self._machine.wheel, hour, index)
        fits = some.rests & (some.queue == wanted.queue) & np.isin(some.states, list(wanted.states))
        fits &= (some.due_ms >= wanted.due_from_ms) & (some.due_ms < wanted.due_to_ms)
        hour, index, named = some.hour[fits], some.global_index[fits], some.named
        return hour, index, some.units[fits], some.states[fits], (named[0][fits], named[1][fits])


class Seen(NamedTuple):
    """Messages that are there and can be read, columns of shape (n,), all of one moment."""

    hour: Numbers
    global_index: Numbers
    queue: Numbers
    due_ms: NDArray[np.int64]
    units: Rows
    states: NDArray[np.uint8]
    named: tuple[Numbers, Numbers]
    """Their ids."""
    rests: Flags
    """False where one has moved from there, and is found where it rests."""


def seen(wheel: Wheel, hour: Numbers, index: Numbers) -> Seen:
    """Return those of the messages at places, by hour, that are there and can be read."""
    there = wheel.known(hour, index)
    hour, index = hour[there], index[there]
    readable = wheel.readable(hour, index)
    hour, index = hour[readable], index[readable]
    units, states = wheel.units(hour, index), wheel.states(hour, index)
    due_ms = hour.astype(np.int64) * HOUR_MS + units["due_in_hour_ms"]
    named = wheel.ids_of(hour, index)  # now: of one that moves later the wheel forgets where it was
    at_hour, at_index = wheel.places_of(*named)
    rests = (at_hour == hour) & (at_index == index)
    return Seen(hour, index, queue_of(units["topic"]), due_ms, units, states, named, rests)


def incomplete(keeper: KeyKeeper) -> Refusal:
    """Return why the index of keys has found nothing, and when to try again."""
    if keeper.complete:
        return Refusal(Reason.KEYS_INCOMPLETE, "the index of keys has changed", retry_ms=100)
    text = f"this node builds its index of keys ({keeper.progress}): try again later"
    return Refusal(Reason.KEYS_INCOMPLETE, text, retry_ms=1_000)
