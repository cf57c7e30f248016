"""Opening of a journal's write-ahead log; a journal that 0.1.0 kept in LMDB is taken over, once.

    journal/data.mdb   entries: by index (u64, big-endian); meta: the head
    journal/takeover   is there while the log is being written

The log is written whole and checked before LMDB's files go, and written anew where that was interrupted.
An LMDB beside a whole log of the same journal was to be removed; of another journal, nothing is removed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tarry.proto.files import sync_path
from tarry.proto.tarry_peer_pb2 import JournalHead
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.power_loss import UNKNOWN_BOOT
from tarry.replication.journal.records import Batch, JournalDamaged, parse_head
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.lmdb_environment import DAMAGE, open_environment

BATCH_BYTES: Final = 2 << 20
"""Much less than a segment: what is left of one when the next batch does not fit stays empty."""
MARK: Final = "takeover"
_DATA: Final = "data.mdb"
_KEY: Final = struct.Struct(">Q")


def open_log(folder: Path, *, boot: str = UNKNOWN_BOOT, cut: bool = False) -> WriteAheadLog:
    """Open the write-ahead log of a journal's folder.

    ``boot``: the machine's boot id; ``cut``: open it also where a loss of power took its end.

    Raises JournalDamaged, PowerLost.
    """
    if not (folder / _DATA).exists():
        (folder / MARK).unlink(missing_ok=True)
        return WriteAheadLog(folder, boot=boot, cut=cut)  # it syncs the folder before anything is written
    if (folder / MARK).exists():
        _take_over(folder)
    log = WriteAheadLog(folder, boot=boot)
    try:
        head, old = log.read_head(), _head(folder)
        if head is None and old is not None:
            log.close()
            _take_over(folder)
            log = WriteAheadLog(folder, boot=boot)
        elif head is not None and old is not None and parse_head(head).incarnation != old.incarnation:
            raise JournalDamaged(
                f"{folder} has a write-ahead log and an LMDB of another journal: "
                "move away the one that this node has not run with last"
            )
    except BaseException:
        log.close()
        raise
    for name in ("lock.mdb", _DATA):
        (folder / name).unlink(missing_ok=True)
    sync_path(folder)
    return log


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


def _head(folder: Path) -> JournalHead | None:
    """Return the head that is in LMDB; None: it was made, and never written."""
    with _named(), open_environment(folder, max_dbs=2, max_readers=16) as env:
        meta = env.open_db(b"meta")
        with env.begin() as txn:
            head = txn.get(b"head", db=meta)
    return None if head is None else parse_head(head)


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
