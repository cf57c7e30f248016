"""Opening of a journal's write-ahead log; a journal that 0.1.0 kept in LMDB is taken over, once.

    journal/data.mdb   entries: by index (u64, big-endian); meta: the head
    journal/takeover   is there while the log is being written

The log is written whole and checked before LMDB's files go, and written anew where that was interrupted.
An LMDB beside a whole log was to be removed, or made by 0.1.0 started once more: the log counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tarry.proto.files import sync_path
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch, JournalDamaged, parse_head
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.lmdb_environment import DAMAGE, open_environment

BATCH_BYTES: Final = 2 << 20
"""Much less than a segment: what is left of one when the next batch does not fit stays empty."""
MARK: Final = "takeover"
_KEY: Final = struct.Struct(">Q")


def open_log(folder: Path) -> WriteAheadLog:
    """Open the write-ahead log of a journal's folder. Raises JournalDamaged."""
    if (folder / "data.mdb").exists():
        if (folder / MARK).exists() or not any(folder.glob("*.wal")):
            _take_over(folder)
        for name in ("data.mdb", "lock.mdb"):
            (folder / name).unlink(missing_ok=True)
    return WriteAheadLog(folder)  # it syncs the folder before anything is written


def _take_over(folder: Path) -> None:
    (folder / MARK).touch(0o600)
    sync_path(folder)
    for begun in folder.glob("*.wal"):
        begun.unlink()
    log = WriteAheadLog(folder)
    try:
        for batch in _batches(folder):
            log.write(batch)
        Journal(log, incarnation=1)  # it checks all of it
    finally:
        log.close()
    (folder / MARK).unlink()
    sync_path(folder)


def _batches(folder: Path) -> Iterator[Batch]:
    with _named(), open_environment(folder, max_dbs=2, max_readers=16) as env:
        entries, meta = env.open_db(b"entries"), env.open_db(b"meta")
        with env.begin() as txn:
            head = txn.get(b"head", db=meta)
            if head is None:  # it was made, and never written
                return
            puts, size_bytes, index = [], 0, parse_head(head).first_index
            # Asked for one by one: a cursor that comes upon a page of zeros ends the process.
            while (value := txn.get(_KEY.pack(index), db=entries)) is not None:
                puts.append((index, value))
                size_bytes, index = size_bytes + len(value), index + 1
                if size_bytes >= BATCH_BYTES:
                    yield Batch(None, puts, None, head, 0, 0)
                    puts, size_bytes = [], 0
            yield Batch(None, puts, None, head, 0, 0)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise JournalDamaged(str(error)) from error
