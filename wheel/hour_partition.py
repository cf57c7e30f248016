"""One hour's messages: delay log and index, second wheel, cancelled, overtaken and withdrawn messages.

    2026112107/    delay.log    delay.index    slots

An hour partition is the unit of retention: its folder is deleted whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from tarry.wheel import message_sum
from tarry.wheel.bitmaps import contains, loaded, members, serialized
from tarry.wheel.delay_log import BLOCK_UNITS, UNIT_BYTES, DelayLog, is_there
from tarry.wheel.index_checksum import prove_index
from tarry.wheel.message_sum import MessageSum
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.second_wheel import SLOTS_BYTES, SecondWheel
from tarry.wheel.state import HOUR_MS, NONE, SECOND_MS, Flags, HourState, Numbers, Rows

_UNMAPPED_UNITS_MAX: Final = DelayLog.held_units_max
"""Up to so many, slots are rebuilt when they are used, and have no file."""


def folder_name(hour: int) -> str:
    """Return the name of an hour's folder: its UTC date and hour."""
    return datetime.fromtimestamp(hour * 3_600, UTC).strftime("%Y%m%d%H")


def hour_of(folder: str) -> int | None:
    """Return the hour that a folder's name stands for; None where it is not the name of an hour."""
    try:
        start = datetime.strptime(folder, "%Y%m%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    hour = int(start.timestamp()) // 3_600
    return hour if folder_name(hour) == folder else None


class HourPartition:
    """The messages of one hour. Its files are open between the first use and `close`."""

    __slots__ = (
        "_captured",
        "_gone_bytes",
        "_recovered",
        "_slots",
        "_slots_crc",
        "_total",
        "_unproven",
        "folder",
        "gone",
        "hour",
        "log",
        "message_sum",
        "overtaken",
        "withdrawn",
    )

    def __init__(
        self,
        folder: Path,
        hour: int,
        budget: PageBudget,
        total: MessageSum,
        state: HourState | None = None,
    ) -> None:
        """Open an hour that is not there yet, or one whose files have been cut back to `state`.

        `total` gets the sum of its messages, and every change of that.
        """
        self.hour = hour
        self.folder = folder
        self._slots: SecondWheel | None = None
        self._captured = state
        self._slots_crc: int | None = None
        self._recovered = state
        self._unproven = state is not None
        if state is None:
            self.log = DelayLog(folder, budget)
            gone = (b"", b"")
        else:
            self.log = DelayLog(folder, budget, state.log_bytes, state.units, state.index_crc)
            gone = (state.cancelled, state.overtaken)
        self._gone_bytes: tuple[bytes, bytes] | None = gone
        cancelled, self.overtaken = map(loaded, gone)
        self.gone = cancelled | self.overtaken
        self.withdrawn = loaded(state.withdrawn if state else b"")
        self._total = total
        self.message_sum = 0
        if state is not None and state.message_sum is not None:
            self._add(state.message_sum)
        elif state is not None:
            self._captured = None
            self._add(self._sum())

    def _add(self, some: int) -> None:
        self.message_sum = (self.message_sum + some) % (1 << 64)
        self._total.add(some)

    def _sum(self) -> int:
        """Return the sum of the messages there are, from the index. Raises OSError and WheelDamaged."""
        gone, overtaken = members(self.gone), members(self.overtaken)
        found = message_sum.of_gone(self.hour, gone) + message_sum.of_overtaken(self.hour, overtaken)
        found += message_sum.of_withdrawn(self.hour, members(self.withdrawn))
        for start in range(0, self.units, BLOCK_UNITS):
            units = self.log.block(start, min(start + BLOCK_UNITS, self.units))
            found += message_sum.of_units(
                self.hour, np.arange(start, start + len(units), dtype=np.uint32), units
            )
        self.log.close()
        return found % (1 << 64)

    def prove(self) -> None:
        """Prove the index once before anything is decided by it.

        Repeated after each opening where the slots are made of the index: what comes next is chained to them.
        A small one is held in memory then. Raises OSError, and WheelDamaged where it is not what was written.
        """
        if self.units <= self.log.held_units_max:
            if not self.log.is_held:
                self.log.hold()
        elif self._unproven:
            prove_index(self.log)
        self._unproven = False

    @property
    def units(self) -> int:
        """Number of messages that the hour has ever got."""
        return self.log.units

    @property
    def seconds(self) -> SecondWheel:
        """The second wheel, as it was or rebuilt from the index. Raises OSError and WheelDamaged."""
        if self._slots is None:
            self.prove()
            mapped = self.units > _UNMAPPED_UNITS_MAX
            slots = SecondWheel.mapped(f"{self.folder}/slots") if mapped else SecondWheel.in_memory()
            recovered = self._recovered
            if not mapped or (recovered is not None and recovered.slots_crc != slots.checksum()):
                gone = self.log.units_at(members(self.gone))["due_in_hour_ms"]
                slots.rebuild(self.log.due_columns(), gone)
                self._captured = self._captured if not mapped else None  # their checksum is a new one
            self._slots, self._recovered = slots, None
        return self._slots

    @property
    def open_seconds(self) -> SecondWheel | None:
        """The second wheel where it is in use; None: nothing is read for it."""
        return self._slots

    def close(self) -> None:
        """Unmap and close the files; the next use opens them again."""
        if self._slots is not None:
            if self.units > _UNMAPPED_UNITS_MAX and self._slots_crc is None:
                self._slots_crc = self._slots.checksum()
            self._slots = None
        if 0 < self.units <= _UNMAPPED_UNITS_MAX:  # the next use makes slots of what may have rotted
            self._unproven = True
        self.log.close()

    def reread(self) -> None:
        """Forget what was built from the index, which was mended: the next use builds it again."""
        self._slots = self._captured = self._slots_crc = None
        self._unproven = False
        log = self.log
        if bool(is_there(log.index()).all()):  # else the sum of what was thinned out would be lost
            self._add(self._sum() - self.message_sum)
        self._recovered = HourState(self.hour, log.log_bytes, log.units, log.index_crc, None, 0, b"")

    def thin(self, index_crc: int) -> None:
        """Go on with the thin index, as ``thinning.adopt`` has put it in place; nothing may be pending."""
        self.log.thin(index_crc)
        self._slots = self._captured = self._slots_crc = None
        self._unproven = True
        log = self.log
        self._recovered = HourState(self.hour, log.log_bytes, log.units, index_crc, None, 0, b"")

    def append(self, records: Sequence[bytes], units: Rows) -> int:
        """Append n messages; return the first one's global index. Raises OSError.

        Args:
            units: UNIT[n]; their places in the log and in their seconds' chains are set here.
        """
        first = self.units
        if first + len(records) >= NONE:
            raise OverflowError(f"hour {self.hour} is full: {first} messages")
        seconds = self.seconds
        places = seconds.place((units["due_in_hour_ms"] // np.uint32(SECOND_MS)).astype(np.uint16), first)
        units["local_index"], units["pre_global_index"] = places.local_index, places.pre_global_index
        self.log.extend(units, records)
        seconds.link(places)
        self._add(message_sum.of_units(self.hour, np.arange(first, self.units, dtype=np.uint32), units))
        if first <= _UNMAPPED_UNITS_MAX < self.units:
            self._slots = seconds.moved_to(f"{self.folder}/slots")
        self._captured = self._slots_crc = None
        return first

    def lose(self, global_index: Numbers, due_in_hour_ms: Numbers) -> None:
        """Mark units that the cut will pass over; they must exist, be distinct and not be gone yet."""
        if self._slots is not None or self.units > _UNMAPPED_UNITS_MAX:  # else they are rebuilt when used
            seconds = self.seconds  # before the set changes: mapping may rebuild the slots from it
            seconds.lose((due_in_hour_ms // np.uint32(SECOND_MS)).astype(np.uint16))
        self.gone.update(global_index)
        self._add(message_sum.of_gone(self.hour, global_index))
        self._captured = self._slots_crc = self._gone_bytes = None

    def overtake(self, global_index: Numbers, due_in_hour_ms: Numbers) -> None:
        """Mark units that are released now, ahead of the cut; they must be as for `lose`."""
        self.lose(global_index, due_in_hour_ms)
        self.overtaken.update(global_index)
        self._add(message_sum.of_overtaken(self.hour, global_index))

    def withdraw(self, global_index: Numbers) -> None:
        """Mark released units as cancelled; they must exist, be distinct and not be marked yet.

        The cut has passed them: neither the slots nor what is pending changes, and no file is read.
        """
        self.withdrawn.update(global_index)
        self._add(message_sum.of_withdrawn(self.hour, global_index))
        self._captured = None

    def is_gone(self, global_index: Numbers) -> Flags:
        """Flag the units, shape (n,), that are cancelled or have overtaken: the cut passes them over."""
        return contains(self.gone, global_index)

    def has_overtaken(self, global_index: Numbers) -> Flags:
        """Flag the units, shape (n,), that were released ahead of the cut."""
        return contains(self.overtaken, global_index)

    def is_withdrawn(self, global_index: Numbers) -> Flags:
        """Flag the units, shape (n,), that were cancelled after their release."""
        return contains(self.withdrawn, global_index)

    def chain(self, second: int) -> Numbers:
        """Return the global indices of a second's units, ascending. Raises WheelDamaged."""
        last, count = self.seconds.chain(second)
        return self.log.chain(last, count) if count else np.empty(0, np.uint32)

    def entries(self, units: Rows, global_index: Numbers) -> Rows:
        """Return units as near queue entries."""
        entries = np.empty(len(units), ENTRY)
        entries["due_ms"] = units["due_in_hour_ms"]
        entries["due_ms"] += self.hour * HOUR_MS
        entries["global_index"] = global_index
        entries["topic"] = units["topic"]
        entries["tag_mask"] = units["tag_mask"]
        return entries

    def capture(self, pending: int) -> HourState:
        """Return the hour's checkpoint value, the same as long as nothing changes."""
        captured = self._captured
        if captured is not None and captured.pending == pending:
            return captured
        if self._gone_bytes is None:
            self._gone_bytes = serialized(self.gone - self.overtaken), serialized(self.overtaken)
        self._captured = HourState(
            self.hour,
            self.log.log_bytes,
            self.units,
            self.log.index_crc,
            self._checksum_of_slots(),
            pending,
            *self._gone_bytes,
            self.message_sum,
            serialized(self.withdrawn),
        )
        return self._captured

    def _checksum_of_slots(self) -> int | None:
        if self._recovered is not None:
            return self._recovered.slots_crc
        if self.units <= _UNMAPPED_UNITS_MAX:
            return None
        if self._slots_crc is None and self._slots is not None:
            self._slots_crc = self._slots.checksum()
        return self._slots_crc

    def drop(self) -> None:
        """Close the files and take the messages out of the sum of all."""
        self.close()
        self._add(-self.message_sum)

    def disk_bytes(self) -> int:
        """Return bytes of its files."""
        return self.log.log_bytes + self.units * UNIT_BYTES + SLOTS_BYTES
