"""A digest of all messages that does not depend on which of them are in the far log.

That is each replica's own affair: it follows from what has been looked at. So an hour counts as its partition
would be if all of its units had moved there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from tarry.wheel.bitmaps import members
from tarry.wheel.delay_log import LENGTH_BYTES, UNIT
from tarry.wheel.far_log import FAR_UNIT
from tarry.wheel.grouping import starts_of
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.state import HOUR_SECONDS, NONE, SECOND_MS, Flags, Numbers, Rows


class _Hour(NamedTuple):
    units: int
    log_bytes: int
    index_crc: int
    gone: bytes
    overtaken: bytes


def update(hasher: Any, hours: HourWheel) -> None:
    """Give a hash every hour, ascending."""
    far = _far(hours)
    for at in hours.hours():
        hour = far.get(at) or _written(hours, at)
        told = (at, hour.units, hour.log_bytes, hour.index_crc, hours.counts.of(at))
        hasher.update(repr(told).encode())
        hasher.update(hour.gone + b"," + hour.overtaken)


def _written(hours: HourWheel, at: int) -> _Hour:
    partition = hours.partition(at)
    if partition is None:
        return _Hour(0, 0, 0, b"", b"")
    log = partition.log
    gone, overtaken = members(partition.gone).tobytes(), members(partition.overtaken).tobytes()
    return _Hour(log.units, log.log_bytes, log.index_crc, gone, overtaken)


def _far(hours: HourWheel) -> dict[int, _Hour]:
    """The hours that have units in the far log, as if those lay behind the others."""
    blocks = list(hours.far.everything())
    if not blocks:
        return {}
    far = np.concatenate([units for _, units in blocks] or [np.empty(0, FAR_UNIT)])
    gone = hours.far.is_gone(np.concatenate([rows for rows, _ in blocks]))
    order = np.lexsort((far["global_index"], far["hour"]))
    far, gone = far[order], gone[order]
    if len(far) == 0:
        return {}
    starts = starts_of(far["hour"])
    bounds = np.append(starts, len(far)).tolist()
    units = _as_alone(far, starts)
    return {
        at: _behind(hours, at, units[begin:end], gone[begin:end])
        for at, begin, end in zip(far["hour"][starts].tolist(), bounds, bounds[1:], strict=False)
    }


def _as_alone(far: Rows, starts: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Rows:
    """Units as they are in an hour that has no others; by hour and global index."""
    units = np.empty(len(far), UNIT)
    for name in ("size", "due_in_hour_ms", "topic", "crc32c", "tag_mask"):
        units[name] = far[name]
    ends = np.cumsum(far["size"].astype(np.int64) + LENGTH_BYTES)
    lengths = np.diff(np.append(starts, len(far)))
    before = np.append(0, ends)[starts]
    units["offset"] = ends - far["size"] - np.repeat(before, lengths)
    second = far["hour"].astype(np.int64) * HOUR_SECONDS + far["due_in_hour_ms"] // SECOND_MS
    order = np.argsort(second, kind="stable")
    begins = starts_of(second[order])
    counts = np.diff(np.append(begins, len(far)))
    position = np.arange(len(far)) - np.repeat(starts, lengths)
    previous = np.empty(len(far), np.uint32)
    previous[1:] = position[order[:-1]]
    previous[begins] = NONE
    units["local_index"][order] = np.arange(len(far)) - np.repeat(begins, counts)
    units["pre_global_index"][order] = previous
    return units


def _behind(hours: HourWheel, at: int, units: Rows, gone: Flags) -> _Hour:
    """An hour with units behind those of its partition, if it has one."""
    partition = hours.written(at) if hours.counts.written[at] else None
    written = _written(hours, at)
    if partition is not None:
        second = (units["due_in_hour_ms"] // SECOND_MS).astype(np.uint16)
        places = partition.seconds.place(second, written.units)
        units["local_index"] = places.local_index
        units["pre_global_index"] = places.pre_global_index
        units["offset"] += np.uint64(written.log_bytes)
    log_bytes = int(units["offset"][-1]) + int(units["size"][-1])
    index_crc = google_crc32c.extend(written.index_crc, units.tobytes())
    lost: Numbers = (np.flatnonzero(gone) + written.units).astype(np.uint32)
    return _Hour(
        written.units + len(units), log_bytes, index_crc, written.gone + lost.tobytes(), written.overtaken
    )
