"""Durability of a captured state of the wheel, made from any thread while appends go on.

capture() ──► sync(state) ──► the caller commits the state ──► capture() ──► sync(state) …
(in order)    fsync the files that grew since the last sync         └─ now the hours that the committed
                                                                       state no longer names are deleted
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tarry.proto.files import sync_path
from tarry.wheel.delay_log import index_path
from tarry.wheel.far_segment import segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import WheelState

_FEW: Final = 16  # folders, of three forced writes each


def _tells_errors(release: str) -> bool:
    """Return whether this kernel's syncfs reports errors of earlier writes: Linux from 5.8 on."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 8)


_syncfs: Final[Callable[[int], int] | None] = (
    getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if _tells_errors(os.uname().release) else None
)


class Durability:
    """The state that is certainly on disk. Only `sync` uses it, one call at a time.

    Its descriptor is open from before the first write: of an error in writing back, syncfs tells every
    descriptor once, but none that was opened after somebody, be it another process, had been told.
    """

    def __init__(self, folder: Path, durable: WheelState) -> None:
        """Take `durable`, the state the wheel was recovered from, or the empty one."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)
        self._hours = _hours(durable)
        self._segments = _segments(durable)
        self._condemned: set[int] = set()
        self._condemned_segments: set[int] = set()

    def sync(self, state: WheelState, dropped: list[int], dropped_segments: list[int], *, keep: bool) -> None:
        """Force the files that `state` names to disk. Raises OSError: then `state` must not be committed.

        `dropped` are the hours dropped and not deleted yet, and the far log's segments; those deleted are
        removed from it. To call this is to say that the state of the call before has been committed. `keep`:
        none is deleted now.
        """
        hours, segments = _hours(state), _segments(state)
        grown = [folder_name(hour) for hour, units in hours.items() if self._hours.get(hour) != units]
        created = {folder_name(hour) for hour in hours.keys() - self._hours.keys()}
        grown += [segment_name(one) for one, units in segments.items() if self._segments.get(one) != units]
        created.update(map(segment_name, segments.keys() - self._segments.keys()))
        if len(grown) < _FEW or not self.sync_filesystem():
            self._sync_each(grown, created)
        for hour, _ in state.thinned:
            with suppress(FileNotFoundError):  # dropped since
                sync_path(self._folder / folder_name(hour))
        self._hours, self._segments = hours, segments
        if not keep:
            self._delete(map(folder_name, self._condemned))
            self._delete(map(segment_name, self._condemned_segments))
            _remove(dropped, self._condemned)
            _remove(dropped_segments, self._condemned_segments)
        self._condemned = set(dropped).difference(hours)
        self._condemned_segments = set(dropped_segments).difference(segments)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _sync_each(self, names: list[str], created: set[str]) -> None:
        for name in names:
            sync_path(self._folder / name / "delay.log")
            sync_path(index_path(self._folder / name))
            if name in created:
                sync_path(self._folder / name)
        if created:
            sync_path(self._folder)

    def sync_filesystem(self) -> bool:
        """Force the folder's whole file system to disk; False where this system cannot. Raises OSError."""
        if _syncfs is None:
            return False
        if _syncfs(self._fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(self._folder))
        return True


def _hours(state: WheelState) -> dict[int, int]:
    return {hour.hour: hour.units for hour in state.hours}


def _segments(state: WheelState) -> dict[int, int]:
    return {segment.number: segment.units for segment in state.far.segments}


def _remove(dropped: list[int], deleted: set[int]) -> None:
    for one in deleted:
        dropped.remove(one)
