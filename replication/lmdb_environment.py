"""Opening an LMDB environment whose file may be damaged, and keeping its map out of this process's memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any, Final

import lmdb

from tarry.proto.files import make_folder, sync_path

DAMAGE: Final = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""What LMDB raises where its pages are not what it wrote."""


_MAPS: Final = Path("/proc/self/maps")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def let_go_of_pages(env: lmdb.Environment) -> None:
    """Unmap the pages of the environment that were looked at; the page cache keeps them (Linux).

    LMDB reads through a mapping of the whole file, and Linux maps some pages around each one touched: in
    time all of the file would count as memory of this process.
    """
    file = os.path.realpath(f"{env.path()}/data.mdb")
    if not _MAPS.exists():
        return
    for line in _MAPS.read_text().splitlines():
        if line.endswith(f" {file}"):
            begin, _, end = line.split(maxsplit=1)[0].partition("-")
            start, length = int(begin, 16), int(end, 16) - int(begin, 16)
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def open_environment(folder: Path, **options: Any) -> lmdb.Environment:
    """Open the environment, synced at each commit. Raises one of DAMAGE.

    A file that was cut short is given its length back, as zeros: LMDB reads through a mapping, and past
    the file's end the process would be killed; zeros it refuses.
    """
    make_folder(folder)
    env = lmdb.open(str(folder), metasync=True, sync=True, **options)
    for there in (folder, folder.parent):  # LMDB syncs its file, not the names that lead to it
        sync_path(there)
    file = folder / "data.mdb"
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < needed:
        os.truncate(file, needed)
    return env
