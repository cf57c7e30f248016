"""Upkeep of a wheel's files: looking for damage, mending, and giving back space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tarry.wheel.far_segment import segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.scrub import StoredRecords, mend_index, mend_segment, read_hour, walk, walk_segment
from tarry.wheel.state import HourState, Numbers, SegmentState, WheelSettings
from tarry.wheel.thinning import Thinned, allocated_bytes, write_thin


class Upkeep:
    """Keeps the files of a wheel sound and small. Made by `Wheel`."""

    __slots__ = ("_folder", "_hours", "_settings")

    def __init__(self, folder: Path, hours: HourWheel, settings: WheelSettings) -> None:
        self._folder = folder
        self._hours = hours
        self._settings = settings

    def walk(self, state: HourState) -> Iterator[tuple[int, Numbers]]:
        """Verify a captured hour a portion at a time: yield its bytes, and the global indices of the damaged.

        From any thread; the caller sets the pace. Raises OSError, WheelDamaged for the index.
        """
        return walk(self._folder / folder_name(state.hour), state, self._settings.read_gap_bytes)

    def read_hour(self, state: HourState) -> Iterator[StoredRecords]:
        """Read the records of a captured hour a portion at a time, from any thread, as `walk` does."""
        return read_hour(self._folder / folder_name(state.hour), state, self._settings.read_gap_bytes)

    def far_segments(self) -> tuple[SegmentState, ...]:
        """Return the segments of the far log as `capture` gives them, ascending."""
        return self._hours.far.capture().segments

    def walk_far(self, state: SegmentState) -> Iterator[tuple[int, Numbers]]:
        """Look at a segment of the far log, as `walk` does; the damaged by their places in it."""
        return walk_segment(self._folder / segment_name(state.number), state, self._settings.read_gap_bytes)

    def mend_far(self, state: SegmentState) -> bool:
        """Write a segment's damaged units again; return False where that needs a peer's whole state.

        From any thread. Raises OSError.
        """
        return mend_segment(self._folder / segment_name(state.number), state)

    def take_far_mended(self) -> list[int]:
        """Return the segments of the far log that reading found damaged, and mended, since the last call."""
        mended, self._hours.far.mended = self._hours.far.mended, set()
        return sorted(mended)

    def far_ids(self, segment: int, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return the hours and global indices of those rows of a segment that are alive."""
        return self._hours.far.ids(segment, places)

    def hour_state(self, hour: int) -> HourState | None:
        """Capture one hour's partition, without what is in the far log; None where there is none.

        What is far must not move behind an index that is looked at because it may be damaged.
        """
        return self._hours.state(hour)

    def whole_state(self, hour: int) -> HourState | None:
        """Capture one hour's partition, once what is far has moved there; None where there is none."""
        self._hours.find(hour)
        return self._hours.state(hour)

    def mend_index(self, state: HourState, index: bytes) -> bool:
        """Write a captured hour's index again, from a peer's bytes; then `reread` it. From any thread.

        False, and nothing done, where they are not its own.
        """
        return mend_index(self._folder / folder_name(state.hour), state, index)

    def allocated_bytes(self, hour: int) -> int:
        """Return the disk space of an hour's log and index. Raises OSError."""
        return allocated_bytes(self._folder / folder_name(hour))

    def write_thin(self, state: HourState, kept: Numbers) -> Thinned:
        """Write a captured hour's index anew with the units kept alone, ascending; then call `thin`.

        From any thread. Raises OSError, WheelDamaged.
        """
        return write_thin(self._folder / folder_name(state.hour), state, kept)

    def thin(self, thinned: Thinned) -> bool:
        """Forget the other units of the hour, which must lie wholly behind the cut, with their records.

        False, and nothing done, where the hour has changed since it was captured. Answers change only for
        the ids of these: they are known, and cannot be read. Raises OSError.
        """
        return self._hours.thin(thinned)
