"""Messages by their places (hour and global index): reading, cancelling, releasing ahead of the cut.

Those in the far log are handled together, of the others an hour's together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.cached_reads import FilePlaces, Pread
from tarry.wheel.columns import distinct, first_rows, groups, starts_of
from tarry.wheel.delay_log import UNIT, Places, converted, is_there
from tarry.wheel.far_segment import FAR_UNIT
from tarry.wheel.hour_partition import HourPartition
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.near_queue import taken
from tarry.wheel.state import (
    HOUR_MS,
    MARK,
    NONE,
    Cancellation,
    CancelOutcome,
    Cut,
    Flags,
    MessageState,
    Numbers,
    Rows,
    Taken,
    UnknownMessage,
)

# CPU time, measured on the machine that the turns' bounds are set on.
_CHAINED_NS: Final = 400
"""For each unit of a chain of the far log that may have to be passed; a cancel passes it three times."""
_PARTITION_NS: Final = 150_000
"""Of a partition that has to be opened, and another closed for it."""
_ABSENT_NS: Final = 2_000
"""Of an hour that has none."""

_NO_ROWS: Final = np.empty(0, np.int64), np.empty(0, FAR_UNIT)


class Page(NamedTuple):
    """Some of an hour's messages, columns of shape (n,), and the global index behind all looked at."""

    global_index: Numbers
    units: Rows
    end: int


class Messages:
    """The messages of all hours, by their places: columns of shape (n,), in any order where none is said."""

    __slots__ = ("_gap_bytes", "_hours")

    def __init__(self, hours: HourWheel, gap_bytes: int) -> None:
        """Take `gap_bytes`: records this close to one another are read in one call."""
        self._hours = hours
        self._gap_bytes = gap_bytes

    # Reading

    def units(self, hour: Numbers, global_index: Numbers, *, thinned: bool = False) -> Rows:
        """Return the index units, UNIT[n], in the order asked. Raises UnknownMessage.

        With `thinned`, those that have been thinned out are zero; else they are unknown.
        """
        rows = np.empty(len(hour), UNIT)
        far = self._hours.far.find(hour, global_index)
        is_far = np.flatnonzero(far >= 0)
        if len(is_far):
            units = converted(self._hours.far.units_at(far[is_far]), UNIT)
            units["pre_global_index"] = NONE
            rows[is_far] = units
        left = np.flatnonzero(far < 0)
        for at, chosen in groups(hour[left]):
            of_hour = global_index[left[chosen]]
            units = self._partition(at, int(of_hour.max())).log.units_at(of_hour)
            if not (thinned or bool(is_there(units).all())):
                raise UnknownMessage(f"messages of hour {at} are thinned out")
            rows[left[chosen]] = units
        return rows

    def readable(self, hour: Numbers, global_index: Numbers) -> Flags:
        """Flag the messages, all known, that have not been thinned out."""
        flags = np.ones(len(hour), np.bool_)
        left = np.flatnonzero(self._hours.far.find(hour, global_index) < 0)
        for at, chosen in groups(hour[left]):
            of_hour = global_index[left[chosen]]
            flags[left[chosen]] = is_there(self._partition(at, int(of_hour.max())).log.units_at(of_hour))
        return flags

    def read(self, hour: Numbers, global_index: Numbers, pread: Pread | None = None) -> list[bytes | None]:
        """Return the records in the order asked; None where one is damaged.

        Raises UnknownMessage, and what `pread` raises beside OSError.
        """
        far = self._hours.far.find(hour, global_index) if self._hours.far.live else None
        if far is None or not bool((far >= 0).any()):
            return self._read_written(hour, global_index, pread)
        is_far, left = np.flatnonzero(far >= 0), np.flatnonzero(far < 0)
        rows = far[is_far]
        found, sound = self._hours.far.records(rows, self._hours.far.units_at(rows), pread)
        records: list[bytes | None] = list(found)
        for damaged in np.flatnonzero(~sound).tolist():
            records[damaged] = None
        records += self._read_written(hour[left], global_index[left], pread)
        back = np.argsort(np.concatenate((is_far, left)))
        return list(map(records.__getitem__, back.tolist()))

    def _read_written(self, hour: Numbers, global_index: Numbers, pread: Pread | None) -> list[bytes | None]:
        if len(hour) == 1:
            only = int(global_index[0])
            return [self._partition(int(hour[0]), only).log.read_one(only, pread)]
        records: list[bytes | None] = []
        order = []
        for at, chosen in groups(hour):
            of_hour = global_index[chosen]
            records += self._partition(at, int(of_hour.max())).log.read(of_hour, self._gap_bytes, pread)
            if not isinstance(chosen, slice):
                order.append(chosen)
        if not order:
            return records
        back = np.argsort(np.concatenate(order))
        return list(map(records.__getitem__, back.tolist()))

    def places(self, hour: Numbers, global_index: Numbers) -> list[FilePlaces]:
        """Return where the records lie. Raises UnknownMessage."""
        far = self._hours.far.find(hour, global_index)
        rows = far[far >= 0]
        found = self._hours.far.places(rows, self._hours.far.units_at(rows))
        left = np.flatnonzero(far < 0)
        for at, chosen in groups(hour[left]):
            of_hour = global_index[left[chosen]]
            log = self._partition(at, int(of_hour.max())).log
            found.append(log.places(log.units_at(of_hour)))
        return found

    def parts(self, hour: Numbers, global_index: Numbers, start: Places, bytes_max: int) -> list[bytes]:
        """Return the bytes of records from `start` on, `bytes_max` at most of each, in the order asked.

        Nothing proves them, and of a damaged record there may be fewer. Raises UnknownMessage.
        """
        found = np.empty(len(hour), object)
        far = self._hours.far.find(hour, global_index)
        is_far = np.flatnonzero(far >= 0)
        if len(is_far):
            rows = far[is_far]
            found[is_far] = self._hours.far.parts(
                rows, self._hours.far.units_at(rows), start[is_far], bytes_max
            )
        left = np.flatnonzero(far < 0)
        for at, chosen in groups(hour[left]):
            asked = left[chosen]
            of_hour = global_index[asked]
            log = self._partition(at, int(of_hour.max())).log
            found[asked] = log.parts(log.units_at(of_hour), start[asked], bytes_max, self._gap_bytes)
        return found.tolist()

    def repair(self, hour: int, global_index: int, record: bytes) -> bool:
        """Write a record again; False, and nothing done, where the bytes are not its own."""
        self._hours.find(hour)
        return self._partition(hour, global_index).log.repair(global_index, record)

    def _partition(self, hour: int, highest: int) -> HourPartition:
        """Return the partition that has the messages up to a global index. Raises UnknownMessage."""
        partition = self._hours.written(hour)
        if partition is None or highest >= partition.units:
            raise UnknownMessage(f"hour {hour} has no message {highest}")
        return partition

    # Changes

    def cancel(self, cut: Cut, hour: Numbers, global_index: Numbers) -> Cancellation:
        """Cancel messages."""
        hours = self._hours
        outcomes = np.full(len(hour), CancelOutcome.NOT_FOUND, np.uint8)
        lost = [np.empty(0, np.intp)]
        topic, due_in_hour_ms = np.empty(len(hour), np.uint32), np.empty(len(hour), np.uint32)
        far = hours.far.find(hour, global_index)
        found = np.flatnonzero(far >= 0)
        if len(found):
            outcomes[found] = CancelOutcome.ALREADY_CANCELLED  # nothing in the far log has been released
            rows = found[first_rows(far[found])]
            rows = rows[~hours.far.is_gone(far[rows])]
            units = hours.far.lose(far[rows])
            topic[rows], due_in_hour_ms[rows] = units["topic"], units["due_in_hour_ms"]
            lost.append(rows)
        left = np.flatnonzero(far < 0)
        for at, chosen in groups(hour[left]):
            partition = hours.written(at)
            if partition is None:
                continue
            found = left[chosen]
            found = found[global_index[found] < partition.units]
            some = global_index[found]
            units, gone = _proven(partition, some), partition.is_gone(some)
            pending = ~gone & ~_are_behind(cut, at, units, some)
            is_cancelled = pending | gone & ~partition.has_overtaken(some) | partition.is_withdrawn(some)
            outcomes[found] = np.where(
                is_cancelled, CancelOutcome.ALREADY_CANCELLED, CancelOutcome.ALREADY_RELEASED
            )
            fresh = np.flatnonzero(pending)
            fresh = fresh[first_rows(some[fresh])]
            if len(fresh):
                rows = found[fresh]
                topic[rows], due_in_hour_ms[rows] = units["topic"][fresh], units["due_in_hour_ms"][fresh]
                partition.lose(some[fresh], due_in_hour_ms[rows])
                hours.count(at, -len(fresh))
                lost.append(rows)
        rows = np.sort(np.concatenate(lost))
        outcomes[rows] = CancelOutcome.CANCELLED
        hours.topics.add(topic[rows], -1)
        return Cancellation(outcomes, rows, topic[rows], due_in_hour_ms[rows])

    def withdraw(self, hour: Numbers, global_index: Numbers) -> None:
        """Mark released messages as cancelled; of an hour that has been dropped nothing is kept."""
        for at, rows in groups(hour):
            partition = self._hours.partition(at)
            if partition is None:
                continue
            chosen = distinct(global_index[rows])
            chosen = chosen[chosen < partition.units]
            chosen = chosen[~partition.is_withdrawn(chosen)]
            if len(chosen):
                partition.withdraw(chosen)
                self._hours.note_withdrawn(at)

    def is_withdrawn(self, hour: int, global_index: int) -> bool:
        """Return whether a message was cancelled after its release. Raises OSError and WheelDamaged."""
        partition = self._hours.written(hour)
        return partition is not None and global_index in partition.withdrawn

    def overtake(self, cut: Cut, hour: Numbers, global_index: Numbers) -> Taken:
        """Release pending messages ahead of the cut: hours in the order named, each hour's by due time."""
        parts: list[Rows] = []
        for at, rows in groups(hour):
            partition = self._hours.find(at)
            if partition is None:
                continue
            chosen = global_index[rows]
            chosen = chosen[chosen < partition.units]
            pending = ~partition.is_gone(chosen) & ~_are_released(partition, cut, chosen)
            fresh = distinct(chosen[pending])
            if len(fresh) == 0:
                continue
            units = partition.log.units_at(fresh)
            partition.overtake(fresh, units["due_in_hour_ms"])
            entries = partition.entries(units, fresh)
            self._hours.count(at, -len(fresh))
            self._hours.topics.add(entries["topic"], -1)
            parts.append(entries.take(np.argsort(entries["due_ms"], kind="stable")))
        return taken(parts)

    # State

    def states(self, cut: Cut, hour: Numbers, global_index: Numbers) -> NDArray[np.uint8]:
        """Return the MessageState of each message. Raises OSError and WheelDamaged."""
        states = np.full(len(hour), MessageState.NOT_FOUND, np.uint8)
        far = self._hours.far.find(hour, global_index)
        found = np.flatnonzero(far >= 0)
        if len(found):
            gone = self._hours.far.is_gone(far[found])
            states[found] = np.where(gone, MessageState.CANCELLED, MessageState.PENDING)
        left = np.flatnonzero(far < 0)
        for at, chosen in groups(hour[left]):
            partition = self._hours.written(at)
            if partition is None:
                continue
            found = left[chosen]
            found = found[global_index[found] < partition.units]
            some = global_index[found]
            overtaken = partition.has_overtaken(some)
            released = overtaken | _are_released(partition, cut, some)
            cancelled = partition.is_gone(some) & ~overtaken | partition.is_withdrawn(some)
            states[found] = np.where(released, MessageState.RELEASED, MessageState.PENDING)
            states[found[cancelled]] = MessageState.CANCELLED
        return states

    def page_of(self, cut: Cut, hour: int, topics: Numbers, start: int, count: int) -> Page:
        """Return topics' pending messages of an hour, of `count` units from `start` on, by global index.

        What is in the far log lies behind the others, and comes at once. Raises OSError and WheelDamaged.
        """
        partition = self._hours.written(hour)
        written = partition.units if partition is not None else 0
        if partition is None or start >= written:
            rows, units = self._hours.far.rows_of(hour) if self._hours.counts.far_of(hour) else _NO_ROWS
            (mine,) = np.nonzero(np.isin(units["topic"] & ~MARK, topics) & (units["global_index"] >= start))
            mine = mine[~self._hours.far.is_gone(rows[mine])]
            found = converted(units[mine], UNIT)
            return Page(units["global_index"][mine].astype(np.uint32), found, written + len(rows))
        end = min(start + count, written)
        partition.prove()
        units = partition.log.block(start, end)
        (mine,) = np.nonzero(np.isin(units["topic"] & ~MARK, topics))
        index, found = (mine + start).astype(np.uint32), units[mine]
        pending = ~partition.is_gone(index) & ~_are_behind(cut, hour, found, index)
        return Page(index[pending], found[pending], end)

    def state(self, cut: Cut, hour: int, global_index: int) -> MessageState:
        """Return the state of one message."""
        one = np.array([hour]), np.array([global_index], np.uint32)
        far = self._hours.far.find(*one)
        if far[0] >= 0:
            gone = bool(self._hours.far.is_gone(far)[0])
            return MessageState.CANCELLED if gone else MessageState.PENDING
        partition = self._hours.written(hour)
        if partition is None or global_index >= partition.units:
            return MessageState.NOT_FOUND
        if global_index in partition.withdrawn:
            return MessageState.CANCELLED
        if global_index in partition.gone:
            return MessageState.RELEASED if global_index in partition.overtaken else MessageState.CANCELLED
        released = _are_released(partition, cut, one[1])
        return MessageState.RELEASED if bool(released[0]) else MessageState.PENDING

    # From memory alone

    def costs_ns(self, hour: Numbers, global_index: Numbers) -> Numbers:
        """Estimate the CPU time of each message, places by hour; that of an hour's first has its opening."""
        costs, counts = np.zeros(len(hour), np.uint32), self._hours.counts
        at = np.where(hour < len(counts), hour, 0)
        far = (at == hour) & (global_index >= counts.written[at]) & self.known(hour, global_index)
        costs[far] = np.minimum(counts.far[at[far]], 1 << 20) * np.uint32(_CHAINED_NS)
        near = np.flatnonzero(~far)
        first = near[starts_of(hour[near])]
        there = [self._hours.partition(one) is not None for one in hour[first].tolist()]
        costs[first] = np.where(there, np.uint32(_PARTITION_NS), np.uint32(_ABSENT_NS))
        return costs

    def known(self, hour: Numbers, global_index: Numbers) -> Flags:
        """Flag the messages, places by hour, that were ever appended, and whose hours are not dropped."""
        starts = starts_of(hour)
        units = np.array(list(map(self._hours.units, hour[starts].tolist())), np.uint32)
        flags: Flags = global_index < np.repeat(units, np.diff(np.append(starts, len(hour))))
        return flags


def _are_released(partition: HourPartition, cut: Cut, global_index: Numbers) -> Flags:
    """Flag the units of an hour, shape (n,), that the cut has passed. Raises OSError and WheelDamaged."""
    return _are_behind(cut, partition.hour, _proven(partition, global_index), global_index)


def _proven(partition: HourPartition, global_index: Numbers) -> Rows:
    """Return units of an hour, shape (n,), for a decision. Raises OSError and WheelDamaged."""
    partition.prove()
    return partition.log.units_at(global_index)


def _are_behind(cut: Cut, hour: int, units: Rows, global_index: Numbers) -> Flags:
    return cut.has_passed(units["due_in_hour_ms"] + np.int64(hour * HOUR_MS), global_index)
