"""A segment of the far log: some consecutive rows, each of which is on disk twice.

    far-0000000c/delay.log      ┌ unit │ record ┐┌ unit │ record ┐ …     of any hours
    far-0000000c/delay.index    ┌ unit ┐┌ unit ┐ …                       the same units

No peer has the same rows, so a segment mends itself: each unit is proven by a sum over its own bytes, and
where one of the two is damaged, it is written again from the other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tarry.wheel.bitmaps import loaded, serialized
from tarry.wheel.delay_log import DelayLog, Places, end_before
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.state import Flags, Rows, SegmentState

FAR_UNIT: Final = np.dtype(
    [
        ("offset", "<u8"),  # of the record in delay.log, behind its unit there
        ("tag_mask", "<u8"),
        ("before", "<i8"),  # row of the unit of the same hour that came before, plus 1; 0: there is none
        ("size", "<u4"),
        ("due_in_hour_ms", "<u4"),
        ("hour", "<u4"),
        ("global_index", "<u4"),
        ("topic", "<u4"),
        ("crc32c", "<u4"),
        ("proof", "<u8"),  # of all that stands before it
    ]
)
FAR_UNIT_BYTES: Final = FAR_UNIT.itemsize
_WORDS: Final = FAR_UNIT_BYTES // 8
_SEED, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_READ_BYTES: Final = 1 << 20
_RUN_UNITS: Final = 512  # to each side of a damaged unit, in which those beside it are mended with it
_RUNS_MAX: Final = 32  # with more the whole index is mended, which then costs less


def segment_name(number: int) -> str:
    """Return the name of a segment's folder."""
    return f"far-{number:08x}"


def segment_number(folder: str) -> int | None:
    """Return the segment that a folder's name stands for; None where it is not the name of one."""
    try:
        number = int(folder.removeprefix("far-"), 16)
    except ValueError:
        return None
    return number if folder == segment_name(number) else None


def proofs(units: Rows) -> NDArray[np.uint64]:
    """Return each unit's proof, u8[n]; a change of a single word of a unit changes it."""
    words = np.ascontiguousarray(units).view("<u8").reshape(-1, _WORDS)
    found = np.full(len(units), _SEED)
    for place in range(_WORDS - 1):
        found ^= words[:, place]
        found *= _FACTOR
        found ^= found >> np.uint64(29)
    return found


def are_sound(units: Rows) -> Flags:
    """Flag the units that agree with their proofs."""
    sound: Flags = proofs(units) == units["proof"]
    return sound


class Segment(DelayLog):
    """Some consecutive rows of the far log, and which of them are cancelled."""

    __slots__ = ("captured", "gone", "runs")
    unit: ClassVar[np.dtype[np.void]] = FAR_UNIT
    head_bytes: ClassVar[int] = FAR_UNIT_BYTES
    held_units_max: ClassVar[int] = 0  # each unit is proven by itself

    def __init__(self, folder: Path, budget: PageBudget, state: SegmentState | None = None) -> None:
        if state is None:
            super().__init__(folder, budget)
        else:
            super().__init__(folder, budget, state.log_bytes, state.units, state.index_crc)
        self.gone = loaded(state.cancelled) if state else BitMap()
        self.captured = state
        self.runs = 0
        """Runs of damaged units that were mended one by one since the whole index was."""

    def capture(self, number: int) -> SegmentState:
        """Return its checkpoint value, the same as long as nothing changes."""
        if self.captured is None:
            cancelled = serialized(self.gone)
            self.captured = SegmentState(number, self.log_bytes, self.units, self.index_crc, cancelled)
        return self.captured

    def heads(self, rows: Rows) -> list[bytes]:
        """Return the units themselves, which are complete but for their proofs."""
        rows["proof"] = proofs(rows)
        return rows.view(f"V{FAR_UNIT_BYTES}").tolist()  # type: ignore[no-any-return]

    def is_whole(self) -> bool:
        """Return whether the index is as it was written. Raises OSError."""
        self.open()
        return bool(google_crc32c.value(self._stored_index()) == self.index_crc)

    def mend_index(self) -> bool:
        """Write damaged units of the index again from the log; return whether it is whole. Raises OSError."""
        self.open()
        units = np.frombuffer(self._stored_index(), FAR_UNIT).copy()
        for place in np.flatnonzero(~are_sound(units)).tolist():
            units[place] = np.frombuffer(self._head(end_before(units, place)), FAR_UNIT)[0]
        index = units.tobytes()
        if google_crc32c.value(index) != self.index_crc:
            return False
        self._write(self._index_fd, index, 0)
        self.runs = 0
        return True

    def mend_units(self, places: Places) -> bool:
        """Write the damaged units at places, ascending, again from the log, and those beside them.

        Return False where the whole index is to be mended instead: much is damaged, or the log lacks a unit.
        Raises OSError.
        """
        self.open()
        end = 0
        for place in places.tolist():
            if place >= end:
                self.runs += 1
                if self.runs > _RUNS_MAX or (end := self._mend_run(place)) <= place:
                    return False
        return True

    def _mend_run(self, place: int) -> int:
        """Write the damaged units around a place again; return the place behind them, 0 where that fails.

        The units in the log must reach from the end of the record before them to the next sound unit.
        """
        start = max(0, place - _RUN_UNITS)
        units = self.block(start, min(self.units, place + _RUN_UNITS))
        sound = np.flatnonzero(are_sound(units))
        at = int(np.searchsorted(sound, place - start))
        begin = int(sound[at - 1]) + 1 if at else 0
        end = int(sound[at]) if at < len(sound) else len(units)
        if (begin == 0 and start > 0) or (end == len(units) and start + end < self.units):
            return 0
        log_end = end_before(units, begin)
        behind = int(units["offset"][end]) - FAR_UNIT_BYTES if end < len(units) else self.log_bytes
        heads = []
        for _ in range(begin, end):
            heads.append(self._head(log_end))
            unit = np.frombuffer(heads[-1], FAR_UNIT)[0]
            log_end = int(unit["offset"]) + int(unit["size"])
        mended = b"".join(heads)
        if log_end != behind or not bool(are_sound(np.frombuffer(mended, FAR_UNIT)).all()):
            return 0
        self._write(self._index_fd, mended, (start + begin) * FAR_UNIT_BYTES)
        return start + end

    def mend_heads(self) -> None:
        """Write units in the log again where they are not the index's, which is whole. Raises OSError."""
        units = np.frombuffer(self._stored_index(), FAR_UNIT)
        for place in np.flatnonzero(self.heads_differ(units)).tolist():
            self._write(self._log_fd, units[place].tobytes(), int(units["offset"][place]) - FAR_UNIT_BYTES)

    def heads_differ(self, units: Rows) -> Flags:
        """Flag the units of which the log has a different copy. Raises OSError."""
        self.open()
        begins = (units["offset"].astype(np.int64) - FAR_UNIT_BYTES).tolist()
        heads = np.frombuffer(b"".join(map(self._head, begins)), "<u8").reshape(-1, _WORDS)
        differ: Flags = (heads != np.ascontiguousarray(units).view("<u8").reshape(-1, _WORDS)).any(axis=1)
        return differ

    def _head(self, begin: int) -> bytes:
        """Return the unit that begins at a place of the log; zeros where nothing can be read."""
        try:
            head = os.pread(self._log_fd, FAR_UNIT_BYTES, begin) if begin < self.log_bytes else b""
        except OSError:
            head = b""
        return head.ljust(FAR_UNIT_BYTES, b"\0")

    def _stored_index(self) -> bytes:
        """Return the index as it can be read; zeros where it cannot."""
        blocks = []
        for begin in range(0, self.units * FAR_UNIT_BYTES, _READ_BYTES):
            size = min(_READ_BYTES, self.units * FAR_UNIT_BYTES - begin)
            try:
                blocks.append(os.pread(self._index_fd, size, begin).ljust(size, b"\0"))
            except OSError:
                blocks.append(bytes(size))
        return b"".join(blocks)
