"""Feed of one group on one queue, at the leader: messages that wait, are in flight or are held.

    queue ──load──► waiting, sorted by (due, offset) ──take──► in flight, leased ──► acked / retried
                      ▲ │ ▲                                        │
                      │ │ └─ with room ── given back ──────────────┘
                      │ └─ its lane is closed ─► parked ─┐
                      └──────── the lane is open ◄───────┘
    after a failover: offsets below the old leader's cursor are held, for they may be in flight
    marked, for it is being cancelled: set aside until that is known, and waits again where it was not

No clock, no network: times come as arguments, what is to be done goes back as values.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from itertools import islice, repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.node.delivery.delay import Delay
from tarry.node.delivery.early_units import EARLY_MAX, EarlyUnits
from tarry.node.delivery.in_flight import Batch, InFlight
from tarry.node.delivery.int_table import IntTable
from tarry.node.delivery.marks import Marks
from tarry.node.delivery.offset_pieces import first_piece, share_of
from tarry.node.delivery.ordering import PARKED_MAX, UNPARKED_PIECE, Lanes, Parked
from tarry.node.delivery.places import Found, Place
from tarry.node.delivery.reservation import Reservation
from tarry.node.delivery.waiting_messages import EMPTY, WAITING_MAX, WINDOW, in_order, merged
from tarry.proto.tags import TagFilter
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.wheel.bitmaps import contains, members
from tarry.wheel.columns import starts_of

LOOK_UNITS_MAX: Final = 65_536
"""Units of a group that one turn of the event loop looks at: a filter may pass over all of them."""

TURN_LOOKS_MAX: Final = 4 * LOOK_UNITS_MAX
"""Units of all groups that one turn looks at."""

HELD_PIECE: Final = 8_192
"""Messages that one turn of the event loop ends the hold of, closes the lanes of, or lets wait again: some
6 to 12 ms where each has an ordering key, and half as long where none has."""

NONE: Final = np.empty(0, dtype=np.uint64)


class Feed:
    """One group on one queue; lives as long as the group is open."""

    def __init__(
        self,
        queue: ReadyQueue,
        acknowledged: Acknowledgements,
        lanes: Lanes,
        marks: Marks | None = None,
        had_below: int = 0,
    ) -> None:
        """Take ``had_below``: consumers may have what lies below, from before the group was moved."""
        self.queue = queue
        self.lanes = lanes
        self.cursor = acknowledged.floor  # highest offset + 1 ever delivered
        self.doubtful = 0  # offsets below may have been delivered, nobody knows
        self.reservation = Reservation()
        self.announced = 0  # a heartbeat has said that offsets below may have been delivered
        self.tags: TagFilter | None = None  # pass over what it does not let through; None: take all
        self.held_until_ms: int | None = None
        self.in_flight = InFlight()
        self.delay = Delay()
        self.damage: UnitsDamaged | None = None  # met by ``load``, and not mended
        self.awaits_disk = False  # what is due next is being read; nothing is delivered meanwhile
        self.read_ahead = NONE  # offsets whose records have been, unless some were delivered since
        self._acknowledged = acknowledged
        self.next = acknowledged.floor  # offsets below have been looked at
        self._waiting = EMPTY
        self._parked = Parked()
        self._opened: dict[int, None] = {}  # lanes whose first parked message is to wait again, in order
        self._spent = 0.0
        self._batch_at = IntTable[Batch]()
        self._resumed = BitMap64()  # and did not wait again since: what was taken before does not either
        self._early = EarlyUnits()
        self._ahead = BitMap64()  # from `next` on, and seen: early, held, or resumed
        self._back = BitMap64()  # given back, and to wait again at a pump with room; keeps its lanes
        self._held = BitMap64()
        self._held_due_ms = 0  # and nothing that is due later
        self._closed = 0  # the lanes of what is held below are closed
        self._marks = marks or Marks()  # of what is being cancelled
        self._aside = BitMap64()  # marked, and would wait else; keeps its lanes closed
        self._mending = BitMap64()  # taken and never delivered, for it is being mended
        self._had_below = had_below

    @property
    def in_flight_messages(self) -> int:
        """Number of messages in flight."""
        return len(self._batch_at)

    def in_hand(self, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which offsets, shape (n,), a consumer has, or after a failover may have."""
        return self._batch_at.has(offsets) | contains(self._held, offsets)

    def is_out(self) -> bool:
        """Return whether something that may have been delivered is not acknowledged."""
        return self._acknowledged.floor < max(self.cursor, self.doubtful)

    def take_spent(self) -> float:
        """Return the turns of the event loop, estimated, that the work since the last call has taken."""
        spent, self._spent = self._spent, 0.0
        return spent

    def hold(self, cursor: int, until_ms: int, doubtful: int = 0, due_ms: int = sys.maxsize) -> None:
        """Hold what an earlier leader may have delivered, up to its cursor, for a lease.

        What is due later than ``due_ms`` it cannot have: that, and what lies above but below ``doubtful``,
        goes out at its time, marked. Nothing may be taken from any feed of the group until ``close_held`` has
        closed the lanes of all that is held.
        """
        self.cursor = max(self.cursor, cursor)
        self.doubtful = max(doubtful, cursor)
        self._held = self._acknowledged.missing_set(self.next, min(cursor, self.queue.units))
        self._ahead |= self._held
        if self._held:
            self.held_until_ms, self._held_due_ms = until_ms, due_ms

    def close_held(self) -> bool:
        """Close the lanes of the next HELD_PIECE held messages; return whether those of all are closed."""
        if not self._held or self._held.max() < self._closed:
            return True
        piece = first_piece(self._held, HELD_PIECE, self._closed)
        offsets = piece[~self._acknowledged.contains(piece)]
        units = self.queue.at(offsets)
        later = units["due_ms"] > self._held_due_ms
        lanes = units["lane"][~later]
        self.lanes.hold(self.queue.queue, offsets[~later], lanes)
        self._unhold(offsets[later])
        self._ahead -= BitMap64(offsets[later].tolist())
        self._spent += share_of(piece, HELD_PIECE, keyed=bool(lanes.any()))
        self._closed = int(piece[-1]) + 1
        return not self._held or bool(self._held.max() < self._closed)

    def hold_ends_ms(self) -> int | None:
        """Return when to call ``end_hold``; None where nothing is held, or too much waits already."""
        return self.held_until_ms if len(self._waiting) < WAITING_MAX else None

    def end_hold(self) -> None:
        """Let the first piece of what is still held go out again, marked.

        Where more is held, ``held_until_ms`` is over: call it again in another turn of the event loop.
        """
        room = bool(self._held) and len(self._waiting) < WAITING_MAX
        held = first_piece(self._held, HELD_PIECE) if room else NONE
        self._unhold(held)
        self.held_until_ms = 0 if self._held else None
        self.lanes.end_hold(self.queue.queue, held)
        self._spent += share_of(held, HELD_PIECE, keyed=True)
        self._wait(held[~self._acknowledged.contains(held)], maybe_duplicate=True)

    def _unhold(self, offsets: NDArray[np.uint64]) -> None:
        self._held -= BitMap64(offsets.tolist())

    def load(self, end: int | None = None, now_ms: int = 0) -> NDArray[np.uint64]:
        """Fill the window from the queue, up to an offset; return the offsets passed over by the filter."""
        passed = []
        self._unpark()
        end = self.queue.units if end is None else min(end, self.queue.units)
        while self._has_room() and self.next < end and self.damage is None:
            if (self.delay.looks_ms(self.next) or 0) > now_ms:
                break
            units = self._sound(self.next, min(WINDOW, end - self.next))
            units = units[: self.delay.open(self.next, units["due_ms"], now_ms)]
            offsets = np.arange(self.next, self.next + len(units), dtype=np.uint64)
            wanted = np.zeros(len(units), dtype=np.bool_)
            wanted[self._acknowledged.missing(self.next, self.next + len(units)) - np.uint64(self.next)] = (
                True
            )
            self.next += len(units)
            self._early.note_window(units["due_ms"])
            if self._ahead:
                wanted &= ~contains(self._ahead, offsets)
                self._ahead.remove_range(0, self.next)
            passed.append(self._take_in(units, offsets, wanted))
        passed += self._look_on(end - self.next)
        return np.concatenate(passed) if passed else NONE

    def _take_in(
        self, units: NDArray[np.void], offsets: NDArray[np.uint64], wanted: NDArray[np.bool_]
    ) -> NDArray[np.uint64]:
        """Have the wanted ones wait; return the offsets of them that are passed over by the filter."""
        wanted = wanted & ~self._put_aside(offsets, units["lane"], wanted)
        matches = self.tags.may_match(units["tag_mask"]) if self.tags is not None else wanted
        passed, wanted = offsets[wanted & ~matches], wanted & matches
        self._merge(units[wanted], offsets[wanted], offsets[wanted] < np.uint64(self.doubtful))
        return passed

    def _look_on(self, most: int) -> list[NDArray[np.uint64]]:
        """Have early units wait, of so many beyond the window at most; return the offsets passed over."""
        passed = []
        while most > 0 and (left := self._early_left()) > 0:
            begin = self._early.begin(self.next)
            units = self._sound(begin, min(WINDOW, most, left))
            offsets = self._early.find(begin, units["due_ms"], EARLY_MAX - self._early_waiting())
            wanted = ~(self._acknowledged.contains(offsets) | contains(self._ahead, offsets))
            self._ahead |= BitMap64(offsets.tolist())
            passed.append(self._take_in(units[offsets - np.uint64(begin)], offsets, wanted))
            self._spent += len(units) / TURN_LOOKS_MAX
            most -= len(units)
        return passed

    def _early_left(self) -> int:
        """Return how many units to look on at: none where a rate opens one offset after another."""
        stopped = not self._has_room() or self.delay.looks_ms(self.next) is not None
        may = stopped and self.damage is None and not self.queue.pace.bounded and len(self._waiting) > 0
        room = may and self._early_waiting() < EARLY_MAX
        return self._early.left(self.next, self.queue.units) if room else 0

    def _sound(self, first: int, count: int) -> NDArray[np.void]:
        """Return units, up to what is damaged: nothing goes past that until it is mended."""
        try:
            return self.queue.read(first, count)
        except UnitsDamaged as damage:
            self.damage = damage
            return self.queue.read(first, damage.stretches[0].first - first)

    def to_look(self) -> bool:
        """Return whether parked messages of open lanes, or with room others, have not been loaded."""
        some = self._more_to_load() or self._early_left() > 0
        return bool(self._opened) or some or self._back_has_room()

    def _more_to_load(self) -> bool:
        some = self.next < self.queue.units and self.delay.looks_ms(self.next) is None
        return some and self._has_room() and self.damage is None

    def _has_room(self) -> bool:
        in_window = len(self._waiting) - self._early_waiting()
        return in_window < min(WINDOW, PARKED_MAX - self._parked.count)

    def _early_waiting(self) -> int:
        ahead = self._waiting["offset"] >= np.uint64(self.next) if self._ahead else NONE
        return int(np.count_nonzero(ahead))

    def _back_has_room(self) -> bool:
        """Return whether some given back may wait: what has not been out before does not keep it."""
        if not self._back:
            return False
        out = self._waiting["offset"][self._waiting["maybe_duplicate"] != 0] < np.uint64(self.cursor)
        return bool(np.count_nonzero(out) < WINDOW)

    def next_due_ms(self) -> int | None:
        """Return when the first of what waits is due and, where the topic has a rate, open."""
        if not len(self._waiting):
            return None
        first = self._waiting[0]
        return max(int(first["due_ms"]) + self.delay.ms, self.queue.pace.opens_ms(int(first["offset"])))

    def looks_ms(self) -> int | None:
        """Return when to look at the queue again, for the group's delay; None: ``to_look`` says."""
        return self.delay.looks_ms(self.next) if self._has_room() and self.damage is None else None

    def due(self, now_ms: int) -> int:
        """Return how many of the window are due, open, and reserved."""
        due = self._due_of_window(now_ms)
        if self._ahead and self.next < self.queue.units:  # what is early waits for what is not
            sure_ms = self.delay.stopped_ms(self.next) or self._early.window_ms
            due = min(due, bisect_right(self._waiting["due_ms"], sure_ms))
        ends = [] if self.reservation.limit is None else [self.reservation.limit]
        if due and self.queue.pace.bounded:
            ends.append(self.queue.pace.opened(now_ms, self.queue.units))
        if due and ends and min(ends) < self._early.begin(self.next):
            shut = self._waiting["offset"][:due] >= min(ends)
            due = int(shut.argmax()) if shut.any() else due
        return due

    def needs(self, now_ms: int) -> int:
        """Return the offset below which all is delivered already, or due: what has to be reserved."""
        due = self._due_of_window(now_ms)
        return max(self.cursor, int(self._waiting["offset"][:due].max()) + 1 if due else 0)

    def reserves(self, now_ms: int, most: int) -> int:
        """Return the limit to reserve: ``most`` above what is needed, and nothing that waits on disk."""
        needed = self.needs(now_ms)
        shut = self.delay.looks_ms(self.next) is not None
        return min(needed + most, max(needed, self.next)) if shut else needed + most

    def _due_of_window(self, now_ms: int) -> int:
        """Return how many are due for the group; searchsorted copies a column of a table first."""
        return bisect_right(self._waiting["due_ms"], now_ms - self.delay.ms)

    def due_of_hours(self, hours: NDArray[np.uint32], now_ms: int, count: int) -> NDArray[np.void]:
        """Return what is due of the next `count`, in these hours and not trimmed, dtype WAITING."""
        due = self._waiting[: min(count, self._due_of_window(now_ms))]
        return due[np.isin(due["hour"], hours) & (due["offset"] >= np.uint64(self.queue.first))]

    def count_read(self, taken: NDArray[np.void]) -> int:
        """Return how many from the first on were read ahead."""
        if not len(self.read_ahead):
            return 0
        others = ~np.isin(taken["offset"], self.read_ahead)
        return int(others.argmax()) if others.any() else len(taken)

    def within(self, count: int, hours: set[int], hours_max: int) -> int:
        """Return how many of the next are of these hours, or of so many with them; adds their hours."""
        column = self._waiting["hour"][:count]
        for start in starts_of(column).tolist():
            hour = int(column[start])
            if hour not in hours and len(hours) >= hours_max:
                return int(start)
            hours.add(hour)
        return len(column)

    def take(self, now_ms: int, count: int) -> NDArray[np.void]:
        """Return (and no longer hold as waiting) up to count due messages, shape (n,), dtype WAITING."""
        n = min(count, self.due(now_ms))
        taken, self._waiting = self._waiting[:n], self._waiting[n:]
        if not np.count_nonzero(taken["lane"]):
            return taken
        admitted = self.lanes.take(self.queue.queue, taken, self._opened)
        self._parked.put(taken[~admitted])
        return taken[admitted]

    def lease(
        self, offsets: NDArray[np.uint64], consumer: str, until_ms: int, size_bytes: float = 0
    ) -> Batch:
        """Record a delivery: offsets, size_bytes of records, are in flight until the lease ends."""
        batch = Batch(consumer, offsets, until_ms, size_bytes / len(offsets))
        self.in_flight.add(batch)
        self._batch_at.put(offsets, repeat(batch))
        self.cursor = max(self.cursor, int(offsets.max()) + 1)
        return batch

    def take_back(self, consumer: str, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Take offsets that a consumer is done with out of flight; return which were its own."""
        held = contains(self._held, offsets)  # the old leader delivered it, perhaps to this one
        if held.any():
            self._unhold(offsets)
            self._claim(offsets[held])
            self.lanes.end_hold(self.queue.queue, offsets[held])
            rest = self.take_back(consumer, offsets[~held])
            held[~held] = rest
            return held
        batches = self._batch_at.pop(offsets, None)
        all_own = True
        for batch, count in Counter(batches).items():
            if batch is not None and batch.consumer == consumer:
                self.in_flight.remove(batch, count)
            else:
                all_own = False
        if all_own:
            return np.ones(len(offsets), dtype=np.bool_)
        others = {place: batch for place, batch in enumerate(batches) if batch and batch.consumer != consumer}
        self._batch_at.put(offsets[list(others)], others.values())
        return np.array([batch is not None and batch.consumer == consumer for batch in batches])

    def expire(self, batch: Batch) -> NDArray[np.uint64]:
        """Take what is left of a batch, whose lease is over, out of flight; return it."""
        still = self.left_of(batch)
        self._batch_at.pop(still, None)
        self.in_flight.remove(batch, len(still))
        return still

    def left_of(self, batch: Batch) -> NDArray[np.uint64]:
        """Return what of the batch is still in flight."""
        if batch.left in (0, len(batch.offsets)):
            return batch.offsets[: batch.left]
        return batch.offsets[[one is batch for one in self._batch_at.get(batch.offsets, None)]]

    def extend(
        self, consumer: str, offsets: NDArray[np.uint64], until_ms: int
    ) -> tuple[Batch | None, NDArray[np.uint64]]:
        """Renew a lease: return it, and the offsets that are not in flight to the consumer."""
        held = self._batch_at.get(offsets, None)
        sizes = np.array([batch.bytes_each if batch else 0.0 for batch in held])
        own = self.take_back(consumer, offsets)
        if not own.any():
            return None, offsets
        size = float(sizes[own].sum())
        return self.lease(offsets[own], consumer, until_ms, size), offsets[~own]

    def give_back(self, consumer: str, batches: Collection[Batch]) -> None:
        """Let go what the consumer has left of these; it goes out again by ``wait_again``."""
        lost = np.concatenate([NONE, *map(self.left_of, batches)])
        self.take_back(consumer, lost)
        self._back |= BitMap64(lost.tolist())

    def wait_again(self) -> None:
        """Let the first piece of what was given back go out again, marked, if there is room."""
        if not self._back_has_room():
            return
        back = first_piece(self._back, HELD_PIECE)
        listed = BitMap64(back.tolist())
        self._back -= listed
        self._resumed -= listed
        keyed = self.lanes.leave(self.queue.queue, back)
        self._spent += share_of(back, HELD_PIECE, keyed=keyed)
        self._wait(back[~self._acknowledged.contains(back)], maybe_duplicate=True)

    def resume(self, consumer: str, offsets: NDArray[np.uint64], until_ms: int) -> Batch | None:
        """Let a reconnected consumer keep what is still in flight to it; return what of it goes on.

        Not kept: what is acknowledged, in flight to another by now, or never was in the queue.
        """
        offsets = np.unique(offsets)
        offsets = offsets[offsets < np.uint64(self.queue.units)]
        offsets = offsets[~self._acknowledged.contains(offsets)]
        offsets = offsets[~contains(self._aside, offsets)]  # never delivered, and being cancelled
        owners = self._batch_at.get(offsets, None)
        free = np.array([owner is None or owner.consumer == consumer for owner in owners], dtype=np.bool_)
        mine = offsets[np.array([owner is not None for owner in owners], dtype=np.bool_) & free]
        offsets = offsets[free]
        offsets = offsets[self._claim(offsets)]
        if not len(offsets):
            return None
        listed = BitMap64(offsets.tolist())
        self._held -= listed
        self._back -= listed
        self._resumed.remove_range(0, self._acknowledged.floor)
        self._resumed |= listed
        self.lanes.end_hold(self.queue.queue, offsets)
        self._waiting = self._waiting[~np.isin(self._waiting["offset"], offsets)]
        self._parked.forget(set(offsets.tolist()), set(self.queue.at(offsets)["lane"].tolist()))
        self._ahead |= BitMap64(offsets[offsets >= np.uint64(self.next)].tolist())
        mine = np.intersect1d(offsets, mine)
        if len(mine):
            self.take_back(consumer, mine)
        return self.lease(offsets, consumer, until_ms)

    def forget_trimmed(self) -> None:
        """Forget what the queue has lost, wherever it is here; all else goes on as it was."""
        first, number = self.queue.first, self.queue.queue
        if first == 0:
            return
        self.next = max(self.next, first)
        self._waiting = self._waiting[self._waiting["offset"] >= np.uint64(first)]
        if self._parked.count:
            self._parked.forget(range(first), set(self._parked.lanes()))
        held, back = (members(some[: some.rank(first - 1)]) for some in (self._held, self._back))
        self._unhold(held)
        self.lanes.end_hold(number, held)
        for some in (self._back, self._resumed, self._ahead):
            some.remove_range(0, first)
        cut = [batch for one in self.in_flight.values() for batch in one.batches if batch.lowest < first]
        left = list(map(self.left_of, cut))
        lost = [offsets[offsets < np.uint64(first)] for offsets in left]
        self._batch_at.pop(np.concatenate([NONE, *lost]), None)
        for batch, offsets in zip(cut, lost, strict=True):
            self.in_flight.remove(batch, len(offsets))
        self.lanes.leave(number, np.concatenate([back, *lost]))

    def refuse(self, taken: NDArray[np.void]) -> None:
        """Put back what ``take`` returned."""
        self.lanes.leave(self.queue.queue, taken["offset"])
        self._waiting = np.concatenate([taken, self._waiting])

    def put_back(self, taken: NDArray[np.void]) -> None:
        """Put back what ``take`` returned a while ago; not what was resumed, settled or trimmed since."""
        taken = taken[~contains(self._resumed, taken["offset"])]
        offsets = taken["offset"]
        self.lanes.leave(self.queue.queue, offsets)
        gone = self._acknowledged.contains(offsets) | (offsets < np.uint64(self.queue.first))
        gone |= np.isin(offsets, self._waiting["offset"]) | contains(self._held, offsets)
        self._mending -= BitMap64(offsets.tolist())
        gone |= contains(self._aside, offsets) | self._put_aside(
            offsets, taken["lane"], ~gone & (taken["maybe_duplicate"] == 0)
        )
        self._waiting, share = in_order(np.concatenate([taken[~gone], self._waiting]))
        self._spent += share

    def find(self, offset: int, lane: int) -> Found:
        """Return where an offset of the queue, of that lane, is now."""
        one = np.array([offset], dtype=np.uint64)
        if self._acknowledged.contains(one)[0]:
            return Found(Place.ACKNOWLEDGED)
        (batch,) = self._batch_at.get(one, None)
        if batch is not None:
            return Found(Place.IN_HAND, batch.consumer, batch.until_ms)
        if offset in self._held:
            return Found(Place.HELD, until_ms=self.held_until_ms or 0, maybe_delivered=True)
        if offset in self._aside or offset in self._marks.of(self.queue.queue):
            return Found(Place.MARKED)
        if offset in self._mending:
            return Found(Place.MENDING)
        if offset in self._back:
            return Found(Place.WAITING, before=len(self._waiting), maybe_delivered=True)
        rows = np.flatnonzero(self._waiting["offset"] == one)
        if len(rows):
            marked = bool(self._waiting["maybe_duplicate"][rows[0]])
            return Found(Place.WAITING, before=int(rows[0]), maybe_delivered=marked)
        if (parked := self._parked.find(lane, offset)) is not None:
            return Found(Place.PARKED, before=parked[0], maybe_delivered=parked[1])
        if offset < self.next or offset in self._ahead:
            return Found(Place.SETTLING)
        between = len(self._acknowledged.missing_set(self.next, offset) - self._ahead)
        before = between + len(self._waiting) + self._parked.count
        return Found(Place.WAITING, before=before, maybe_delivered=offset < self.doubtful)

    # -- cancels -------------------------------------------------------------------------

    @property
    def had_below(self) -> int:
        """The offset below which consumers may have had anything."""
        return max(self._had_below, self.cursor, self.doubtful)

    def note_mending(self, taken: NDArray[np.void]) -> None:
        """Note what ``take`` returned and is not delivered before it is mended."""
        self._mending |= BitMap64(taken["offset"][taken["maybe_duplicate"] == 0].tolist())

    def set_aside(self, offsets: NDArray[np.uint64], lanes: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which marked offsets, ascending, with their lanes, no consumer of the group has been given.

        Those are not handed over until ``end_marks``; what follows under their keys waits as well.
        """
        seen = (offsets < np.uint64(self.next)) | contains(self._ahead, offsets)
        fresh = ~seen
        waiting = self._waiting[self._waiting["maybe_duplicate"] == 0]["offset"]
        fresh |= np.isin(offsets, waiting)
        fresh |= contains(self._mending, offsets) | contains(self._aside, offsets)
        keyed = np.flatnonzero(lanes)
        if len(keyed) and self._parked.count:
            unmarked = self._parked.unmarked(set(lanes[keyed].tolist()))
            fresh[keyed] |= np.isin(offsets[keyed], unmarked)
        fresh &= offsets >= np.uint64(max(self._had_below, self.doubtful))
        fresh &= ~self._acknowledged.contains(offsets)
        loaded = fresh & seen & ~contains(self._mending, offsets)
        chosen = offsets[loaded & ~contains(self._aside, offsets)]
        if len(chosen):
            self._waiting = self._waiting[~np.isin(self._waiting["offset"], chosen)]
            self._parked.forget(set(chosen.tolist()), set(lanes[keyed].tolist()))
            self._close_aside(chosen, lanes[np.searchsorted(offsets, chosen)])
        return fresh

    def _put_aside(
        self, offsets: NDArray[np.uint64], lanes: NDArray[np.uint32], wanted: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which of the wanted offsets are marked, and set these aside."""
        marked = self._marks.of(self.queue.queue)
        if not marked:
            return np.zeros(len(offsets), dtype=np.bool_)
        aside = wanted & contains(marked, offsets)
        self._close_aside(offsets[aside], lanes[aside])
        return aside

    def _close_aside(self, offsets: NDArray[np.uint64], lanes: NDArray[np.uint32]) -> None:
        self._aside |= BitMap64(offsets.tolist())
        self.lanes.hold(self.queue.queue, offsets, lanes)

    def end_marks(self, offsets: NDArray[np.uint64]) -> None:
        """Let what was set aside of these wait again, unless it was cancelled; their marks are lifted."""
        listed = BitMap64(offsets.tolist())
        cancelled = offsets[self._acknowledged.contains(offsets)]
        done = members(self._mending & BitMap64(cancelled.tolist()))
        if len(done):  # it is put back no more, and what follows under its key does not wait for that
            self._mending -= BitMap64(done.tolist())
            self.lanes.leave(self.queue.queue, done)
        aside = members(self._aside & listed)
        if not len(aside):
            return
        self._aside -= listed
        self.lanes.end_hold(self.queue.queue, aside)
        back = aside[~self._acknowledged.contains(aside) & (aside >= np.uint64(self.queue.first))]
        for marked in (False, True):
            chosen = back[(back < np.uint64(self.doubtful)) == marked]
            self._wait(chosen, maybe_duplicate=marked)

    def _claim(self, offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these a consumer can have had in flight all along."""
        return self.lanes.claim(self.queue.queue, offsets, self.queue.at(offsets)["lane"])

    def _unpark(self) -> None:
        """Have the first of each of UNPARKED_PIECE lanes that are open again wait; the others stay closed."""
        opened = self.lanes.take_opened(self.queue.queue, self._parked.lanes())
        self._opened.update(dict.fromkeys(opened))
        if not self._opened:
            return
        lanes = list(islice(self._opened, UNPARKED_PIECE))
        for lane in lanes:
            del self._opened[lane]
        first = self._parked.take_first(lanes)
        self._spent += len(first) / (2 * UNPARKED_PIECE)
        for marked in {mark for _, _, mark in first}:
            offsets = np.array(sorted(o for _, o, mark in first if mark == marked), dtype=np.uint64)
            self._wait(offsets, maybe_duplicate=bool(marked))

    def _wait(self, offsets: NDArray[np.uint64], *, maybe_duplicate: bool) -> None:
        marks = np.full(len(offsets), maybe_duplicate, dtype=np.bool_)
        self._merge(self.queue.at(offsets), offsets, marks)

    def _merge(
        self, units: NDArray[np.void], offsets: NDArray[np.uint64], maybe_duplicate: NDArray[np.bool_]
    ) -> None:
        if len(units):
            self._waiting, share = merged(self._waiting, units, offsets, maybe_duplicate)
            self._spent += share
