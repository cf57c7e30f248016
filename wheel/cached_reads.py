"""Reads of files that do not wait for the disk, and the reading ahead that they then need.

`preadv2` with RWF_NOWAIT (Linux 4.14) returns what is in the page cache, and never waits for what is not.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

Pread: TypeAlias = Callable[[int, int, int], bytes]
"""As os.pread: file descriptor, size in bytes, offset."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class FilePlaces(NamedTuple):
    """Places of one file that are to be read."""

    path: Path
    offsets: list[int]
    sizes_bytes: list[int]


class NotCached(Exception):
    """A read would wait for the disk; ``files``: what to read ahead, empty where the caller knows."""

    def __init__(self, files: Sequence[FilePlaces] = ()) -> None:
        super().__init__()
        self.files = tuple(files)


def pread_cached(fd: int, size_bytes: int, offset: int) -> bytes:
    """Read as os.pread, from the page cache alone.

    Raises NotCached where a byte is not there or the file ends before; OSError. Where Python, the kernel or
    the file system has no RWF_NOWAIT it is os.pread: it waits, and returns less where the file ends before.
    """
    if _NOWAIT is None:
        return os.pread(fd, size_bytes, offset)
    buffer = bytearray(size_bytes)
    try:
        read_bytes = os.preadv(fd, (buffer,), offset, _NOWAIT)
    except BlockingIOError:
        raise NotCached from None
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return os.pread(fd, size_bytes, offset)
        raise
    if read_bytes < size_bytes:
        raise NotCached
    return bytes(buffer)


def read_ahead(files: Sequence[FilePlaces]) -> None:
    """Bring places of files into the page cache, but for what cannot be read; return once they are there.

    The disk is told of all places before the first is waited for.
    """
    for path, offsets, sizes_bytes in files:
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            for start, length in zip(offsets, sizes_bytes, strict=True):
                os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
            for start, length in zip(offsets, sizes_bytes, strict=True):
                with contextlib.suppress(OSError):
                    os.pread(file.fileno(), length, start)
