"""Making a captured state of the wheel durable, from any thread, while appends go on.

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
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HourState, WheelState

_FEW_HOURS: Final = 16  # three forced writes each; a batch spread over a year touches thousands of hours


def _tells_errors(release: str) -> bool:
    """Whether this kernel's syncfs reports that a file written before could not be: Linux from 5.8 on."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 8)


_syncfs: Final[Callable[[int], int] | None] = (
    getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if _tells_errors(os.uname().release) else None
)


class Durability:
    """What is on disk for certain. Only `sync` uses it, one call at a time.

    Its descriptor is open from before the first write: of an error in writing back, syncfs tells every
    descriptor once, but none that was opened after somebody, be it another process, had been told.
    """

    def __init__(self, folder: Path, durable: WheelState) -> None:
        """`durable`: the state the wheel was recovered from, or the empty one."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)
        self._units = {hour.hour: hour.units for hour in durable.hours}
        self._condemned: set[int] = set()

    def sync(self, state: WheelState, dropped: list[int], *, keep: bool) -> None:
        """Force the files that `state` names to disk. Raises OSError: then `state` must not be committed.

        `dropped` are the hours dropped and not deleted yet; those deleted are removed from it. To call this
        is to say that the state of the call before has been committed. `keep`: none is deleted now.
        """
        grown = [hour for hour in state.hours if self._units.get(hour.hour) != hour.units]
        if len(grown) < _FEW_HOURS or not self._sync_filesystem():
            self._sync_hours(grown)
        self._units = {hour.hour: hour.units for hour in state.hours}
        for hour_dropped in () if keep else self._condemned:
            shutil.rmtree(self._folder / folder_name(hour_dropped), ignore_errors=True)
            dropped.remove(hour_dropped)
        self._condemned = set(dropped).difference(self._units)

    def _sync_hours(self, grown: list[HourState]) -> None:
        created = False
        for hour in grown:
            created = self._sync_hour(hour) or created
        if created:
            _sync_path(self._folder)

    def _sync_hour(self, state: HourState) -> bool:
        folder = self._folder / folder_name(state.hour)
        _sync_path(folder / "delay.log")
        _sync_path(folder / "delay.index")
        if state.hour in self._units:
            return False
        _sync_path(folder)
        return True

    def _sync_filesystem(self) -> bool:
        """Force the folder's whole file system to disk; False where this system cannot. Raises OSError."""
        if _syncfs is None:
            return False
        if _syncfs(self._fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(self._folder))
        return True


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
