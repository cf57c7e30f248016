"""A journal's storage in LMDB: one synced transaction per batch.

LMDB writes its pages, syncs, and then writes one of two meta pages; so after a power loss the last
finished transaction is what is there. It relies on that meta page (less than a sector) being written whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from tarry.replication.journal.records import Batch, JournalDamaged, StorageFull
from tarry.replication.lmdb_environment import DAMAGE, let_go_of_pages, open_environment

_KEY = struct.Struct(">Q")
_HEAD = b"head"


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise JournalDamaged(str(error)) from error


class LmdbStorage:
    """Entries by big-endian index, and the head. The map's file is sparse.

    An error from LMDB is fatal: after a failed sync the kernel may have dropped the dirty pages, and a
    second try would report success for what is gone (Rebello et al., ATC 2020).
    """

    def __init__(self, folder: Path, *, map_bytes: int = 1 << 30) -> None:
        """Open the environment. Raises JournalDamaged."""
        with _named():
            self._env = open_environment(folder, map_size=map_bytes, max_dbs=2, max_readers=16)
            self._entries = self._env.open_db(b"entries")
            self._meta = self._env.open_db(b"meta")

    def read_head(self) -> bytes | None:
        with _named(), self._env.begin(self._meta) as txn:
            head: bytes | None = txn.get(_HEAD)
            return head

    def read(self, index: int) -> bytes | None:
        with _named(), self._env.begin(self._entries) as txn:
            value: bytes | None = txn.get(_KEY.pack(index))
            return value

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Yield records, each got by its key: a cursor that comes upon a page of zeros ends the process."""
        with _named(), self._env.begin(self._entries) as txn:
            index = first
            while (value := txn.get(_KEY.pack(index))) is not None:
                yield index, value
                index += 1

    def write(self, batch: Batch) -> None:
        try:
            self._write(batch)
            if batch.delete_below is not None:
                let_go_of_pages(self._env)
        except lmdb.MapFullError as full:
            raise StorageFull from full

    def grow(self) -> None:
        self._env.set_mapsize(self._env.info()["map_size"] * 2)

    def close(self) -> None:
        self._env.close()

    def _write(self, batch: Batch) -> None:
        with self._env.begin(write=True) as txn, txn.cursor(self._entries) as cursor:
            if batch.delete_from is not None and cursor.set_range(_KEY.pack(batch.delete_from)):
                while cursor.delete():
                    pass
            cursor.putmulti([(_KEY.pack(index), value) for index, value in batch.puts], append=False)
            if batch.delete_below is not None and cursor.first():
                below = _KEY.pack(batch.delete_below)
                while cursor.key() < below and cursor.delete():
                    pass
            txn.put(_HEAD, batch.head, db=self._meta)
