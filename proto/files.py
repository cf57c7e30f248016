"""Folders and files that survive a power loss: fsync, atomic replacement; holes in files, and free space."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PAGE_BYTES: Final = 4_096
"""Disk space is given back by whole pages."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate

_fallocate: Final[Callable[..., int] | None] = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)


def free_bytes(folder: Path) -> int:
    """Return how many bytes are free for this process on the disk of a folder. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that none of their names goes with the power."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Force a file or folder to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Give a file new content, atomically also under a power loss.

    Raises OSError: the file has its old content, or the new one, which may go with the power.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content)
        sync_path(fresh)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def punch(path: Path, holes: Iterable[tuple[int, int]]) -> None:
    """Give back the disk space between places of a file, begin and end, which become zeros; its size stays.

    Nothing happens where the file is gone, or its file system gives back no parts of files. Raises OSError.
    """
    if _fallocate is None:
        return
    try:
        file = path.open("r+b", buffering=0)
    except FileNotFoundError:
        return
    with file:
        for begin, end in holes:
            size: Any = ctypes.c_longlong(end - begin)
            if _fallocate(file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(begin), size):
                number = ctypes.get_errno()
                if number in (errno.EOPNOTSUPP, errno.ENOSYS):
                    return
                raise OSError(number, os.strerror(number), str(path))
