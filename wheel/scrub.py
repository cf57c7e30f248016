"""The scan for silent damage in hours and the far log, from any thread, and mending from a peer's bytes.

Only bytes below the captured lengths are looked at; those never change, so appends may go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from tarry.wheel.columns import portions
from tarry.wheel.delay_log import UNIT_BYTES, DelayLog, is_there, on_index
from tarry.wheel.far_segment import Segment
from tarry.wheel.index_checksum import prove_index
from tarry.wheel.page_budget import PageBudget
from tarry.wheel.state import HourState, Numbers, Rows, SegmentState, WheelDamaged

_BLOCK_BYTES: Final = 1 << 20
_BLOCK_UNITS: Final = 1_024


class StoredRecords(NamedTuple):
    """Some records of an hour: their global indices and units, shape (n,); None where one is damaged."""

    global_index: Numbers
    units: Rows
    records: list[bytes | None]


def walk(folder: Path, state: HourState, gap_bytes: int) -> Iterator[tuple[int, Numbers]]:
    """Look at an hour a portion at a time: how many bytes that was, and the damaged records in it.

    A portion is 1 MiB or 1,024 records, or one large record. Raises OSError, WheelDamaged for its index.
    """
    log = DelayLog(folder, PageBudget(_BLOCK_BYTES), state.log_bytes, state.units, state.index_crc)
    yield from _walk(log, gap_bytes)


def walk_segment(folder: Path, state: SegmentState, gap_bytes: int) -> Iterator[tuple[int, Numbers]]:
    """Look at a segment of the far log, as `walk` does; the damaged by their places in it.

    Raises WheelDamaged where its units differ in the log and in the index, as well.
    """
    segment = Segment(folder, PageBudget(_BLOCK_BYTES), state)
    prove_index(segment)
    try:
        segment.open(create=False)
        for start in range(0, segment.units, _BLOCK_UNITS):
            units = segment.block(start, min(start + _BLOCK_UNITS, segment.units))
            if bool(segment.heads_differ(units).any()):
                raise WheelDamaged(segment.log_path, f"other units than in the index, from {start} on")
            yield units.nbytes, np.empty(0, np.uint32)
    finally:
        segment.close()
    yield from _walk(segment, gap_bytes)


def mend_segment(folder: Path, state: SegmentState) -> bool:
    """Write units of a captured segment again, in its index or its log, from the other. Raises OSError.

    False where a unit is damaged in both.
    """
    segment = Segment(folder, PageBudget(_BLOCK_BYTES), state)
    try:
        segment.open(create=False)
        if not segment.is_whole() and not segment.mend_index():
            return False
        segment.mend_heads()
    finally:
        segment.close()
    return True


def read_hour(folder: Path, state: HourState, gap_bytes: int) -> Iterator[StoredRecords]:
    """Read the records of an hour, portions as of `walk`; what was thinned out is left out.

    Raises OSError, WheelDamaged for its index.
    """
    return _read(
        DelayLog(folder, PageBudget(_BLOCK_BYTES), state.log_bytes, state.units, state.index_crc), gap_bytes
    )


def _walk(log: DelayLog, gap_bytes: int) -> Iterator[tuple[int, Numbers]]:
    for part in _read(log, gap_bytes):
        bad = np.array([record is None for record in part.records], np.bool_)
        yield int(part.units["size"].sum(dtype=np.int64)), part.global_index[bad]


def _read(log: DelayLog, gap_bytes: int) -> Iterator[StoredRecords]:
    prove_index(log)
    try:
        log.open(create=False)  # it may have been deleted meanwhile, and is not to come back
        for start in range(0, log.units, _BLOCK_UNITS):
            block = np.arange(start, min(start + _BLOCK_UNITS, log.units), dtype=np.uint32)
            units = log.units_at(block)
            block, units = block[is_there(units)], units[is_there(units)]
            for rows in portions(units["size"], _BLOCK_BYTES):
                yield StoredRecords(block[rows], units[rows], log.read(block[rows], gap_bytes))
    finally:
        log.close()


def mend_index(folder: Path, state: HourState, index: bytes) -> bool:
    """Write a captured hour's index again; False, and nothing done, where the bytes are not its own."""
    if len(index) != state.units * UNIT_BYTES or google_crc32c.value(index) != state.index_crc:
        return False
    with on_index(folder, lambda path: path.open("r+b")) as file:  # what was appended since follows it
        file.write(index)
    return True
