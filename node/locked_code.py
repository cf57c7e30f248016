"""A node's code stays in memory once it was used.

What a system short of memory drops first are clean pages of files, and those of a program and its libraries
are such: the event loop then waits for the disk in the middle of an instruction, and a leader is silent for
as long as that stalls. mlock2 with MLOCK_ONFAULT (Linux 4.4) keeps what has been used, and loads nothing.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

_ONFAULT: Final = 1

Lock: TypeAlias = Callable[[int, int], int]
"""Locks so many bytes from an address on; returns 0, or errno."""


class Locked(NamedTuple):
    """Bytes of the code that stay in memory, and of the rest."""

    size_bytes: int
    left_bytes: int
    why: str
    """Why the rest does not; empty: there is none."""


def lock_code(lock: Lock | None = None) -> Locked:
    """Lock the mappings of this process's program and libraries, as far as RLIMIT_MEMLOCK allows."""
    lock = lock or _mlock2()
    found, size_bytes = list(mappings(Path("/proc/self/maps").read_text())), 0
    for at, (start, length) in enumerate(found):
        if error := lock(start, length):
            return Locked(size_bytes, sum(length for _, length in found[at:]), os.strerror(error))
        size_bytes += length
    return Locked(size_bytes, 0, "")


def mappings(maps: str) -> Iterator[tuple[int, int]]:
    """Yield address and bytes of each private mapping of a file, code first; `maps` as in /proc/PID/maps."""
    rows = [row.split(maxsplit=5) for row in maps.splitlines()]
    files = [row for row in rows if len(row) == 6 and row[5].startswith("/") and row[1].endswith("p")]
    for row in sorted(files, key=lambda row: "x" not in row[1]):
        start, end = (int(address, 16) for address in row[0].split("-"))
        yield start, end - start


def _mlock2() -> Lock:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    libc = ctypes.CDLL(None, use_errno=True)
    mlock2 = libc.mlock2

    def lock(start: int, length: int) -> int:
        failed = mlock2(ctypes.c_void_p(start), ctypes.c_size_t(length), ctypes.c_uint(_ONFAULT))
        return ctypes.get_errno() if failed else 0

    return lock
