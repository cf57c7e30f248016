"""Thinning of an hour: units and records that nobody needs any more give their disk space back.

    delay.index    ░░░░░░ 17 ░░░░░░░░░░░░░ 40 ░░░        other units are zero, and no pages
    delay.log      ░░░░░░░ record ░░░░░░░░ record ░      the same bytes at the same places, and holes

Every message keeps its place. The index is written anew beside the old one, and replaces it in steps that a
crash may come between:

    thread   delay.index.new    written and forced to disk
    loop     delay.index.thin   renamed: it is the hour's index from now on, with another checksum
    thread   delay.index        renamed once a checkpoint with that checksum is durable; holes are punched
    loop                        the log's last page, which what comes now would lie in, if nothing has come

A start takes the thin index if it has the checkpoint's checksum, else the old one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.proto.files import PAGE_BYTES, punch, sync_path
from tarry.wheel.delay_log import INDEX_NAME, LENGTH_BYTES, THIN_NAME, UNIT, UNIT_BYTES, index_path, on_index
from tarry.wheel.index_checksum import checksum
from tarry.wheel.state import HourState, Numbers, Rows, WheelDamaged

_NEW_NAME: Final = f"{INDEX_NAME}.new"
_BLOCK_UNITS: Final = 65_536
"""640 pages of the index."""


class Thinned(NamedTuple):
    """An hour's index that has been written anew."""

    state: HourState
    """The hour as it was then."""
    index_crc: int
    """Of the new index."""
    holes: NDArray[np.int64]
    """Places of the log that may be given back: begin and end, shape (n, 2)."""
    kept_bytes: int
    """Place of the log behind which no record is kept."""


def allocated_bytes(folder: Path) -> int:
    """Return the disk space of an hour's log and index. Raises OSError."""
    return sum(file.st_blocks * 512 for file in ((folder / "delay.log").stat(), on_index(folder, Path.stat)))


def write_thin(folder: Path, state: HourState, kept: Numbers) -> Thinned:
    """Write an hour's index anew: zeros but for the units kept, ascending. For any thread.

    Raises OSError, which leaves nothing of it; WheelDamaged where the index is not what was written.
    """
    try:
        return _write_thin(folder, state, kept)
    except OSError:
        with suppress(OSError):
            discard(folder)  # room on a full disk
        raise


def _write_thin(folder: Path, state: HourState, kept: Numbers) -> Thinned:
    source, crc, thin_crc = index_path(folder), 0, 0
    new = folder / _NEW_NAME
    units = []
    with source.open("rb", buffering=0) as old, new.open("wb", buffering=0) as target:
        for start in range(0, state.units, _BLOCK_UNITS):
            data = old.read(min(_BLOCK_UNITS, state.units - start) * UNIT_BYTES)
            crc = google_crc32c.extend(crc, data)
            count = len(data) // UNIT_BYTES
            some = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + count)] - np.uint32(
                start
            )
            block: Rows = np.zeros(count, UNIT)
            block[some] = np.frombuffer(data, UNIT, count)[some]
            units.append(block[some])
            thin = block.tobytes()
            thin_crc = google_crc32c.extend(thin_crc, thin)
            for begin, end in _page_runs(some.astype(np.int64) * UNIT_BYTES):
                pages = thin[begin:end]
                if os.pwrite(target.fileno(), pages, start * UNIT_BYTES + begin) != len(pages):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new))
        os.truncate(new, state.units * UNIT_BYTES)
        if crc != state.index_crc:
            raise WheelDamaged(source, f"crc32c {crc:08x}, where {state.index_crc:08x} should be")
        os.fsync(target.fileno())
    rows = np.concatenate(units)
    end = int((rows["offset"] + rows["size"]).max(initial=0))
    return Thinned(state, thin_crc, _holes(rows, state.log_bytes), end)


def _page_runs(begin: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the runs of whole pages that have units which begin at places, shape (n,), ascending."""
    if not len(begin):
        return
    pages = np.unique(np.concatenate((begin, begin + UNIT_BYTES - 1)) // PAGE_BYTES)
    breaks = np.flatnonzero(np.diff(pages) != 1)
    firsts, lasts = pages[np.append(0, breaks + 1)], pages[np.append(breaks, len(pages) - 1)]
    yield from zip((firsts * PAGE_BYTES).tolist(), ((lasts + 1) * PAGE_BYTES).tolist(), strict=True)


def _holes(units: Rows, log_bytes: int) -> NDArray[np.int64]:
    """Return the whole pages between the records of units, ascending by their places."""
    offset = units["offset"].astype(np.int64)
    begin = np.append(0, offset + units["size"])
    end = np.append(offset - LENGTH_BYTES, log_bytes)
    begin, end = -(-begin // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES
    return np.column_stack((begin, end))[begin < end]


def discard(folder: Path) -> None:
    """Remove an index that was written and is not to be used. Raises OSError."""
    (folder / _NEW_NAME).unlink(missing_ok=True)


def adopt(folder: Path) -> None:
    """Make the index that was written the hour's: the step between memory and disk. Raises OSError."""
    (folder / _NEW_NAME).rename(folder / THIN_NAME)


def settle(folder: Path, holes: NDArray[np.int64]) -> None:
    """Let the thin index take the old one's place, which no durable checkpoint names, and punch holes.

    For any thread. Raises OSError.
    """
    try:
        (folder / THIN_NAME).replace(folder / INDEX_NAME)
    except FileNotFoundError:
        return  # the hour was dropped
    (folder / "slots").unlink(missing_ok=True)
    punch(folder / "delay.log", holes.tolist())


def punch_tail(folder: Path, thinned: Thinned) -> None:
    """Give the log's last page back, of a settled hour that has not grown, where nothing is kept in it.

    For the thread that appends, since what came meanwhile would lie in that page. Raises OSError.
    """
    begin = thinned.state.log_bytes // PAGE_BYTES * PAGE_BYTES
    if thinned.kept_bytes <= begin < thinned.state.log_bytes:
        punch(folder / "delay.log", [(begin, begin + PAGE_BYTES)])


def recover(folder: Path, state: HourState) -> None:
    """Keep that index of an hour which a checkpoint names. Raises OSError."""
    discard(folder)
    thin = folder / THIN_NAME
    if not thin.exists():
        return
    size = state.units * UNIT_BYTES
    if thin.stat().st_size >= size and checksum(thin, size) == state.index_crc:
        thin.replace(folder / INDEX_NAME)
    else:
        thin.unlink()
    sync_path(folder)
