"""Opening of an LMDB environment whose file may be damaged."""

from __future__ import annotations

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
