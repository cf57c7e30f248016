"""A disk that keeps what was synced, and of the rest whatever a crash leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tarry.replication.journal.records import Batch


class DiskFailed(OSError):
    """Injected. The process ends, as it would on EIO."""


class SimDisk:
    """A journal's storage that outlives its node's starts."""

    syncs = True
    """False: writes are forgotten by a crash, as without fsync."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.records: dict[int, bytes] = {}
        self.head: bytes | None = None
        self.fails = False
        self.room_bytes: int | None = None
        self._before: tuple[dict[int, bytes], bytes | None] | None = None
        self._under_way: Batch | None = None

    def read_head(self) -> bytes | None:
        return self.head

    def read(self, index: int) -> bytes | None:
        return self.records.get(index)

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        for index in sorted(self.records):
            if index >= first:
                yield index, self.records[index]

    def write(self, batch: Batch) -> None:
        if self.fails:
            self._leave_something(batch)
            raise DiskFailed("EIO")
        if self.room_bytes is not None:
            self.room_bytes -= sum(len(value) for _, value in batch.puts)
            if self.room_bytes < 0:
                raise DiskFailed("ENOSPC")
        if not self.syncs and self._before is None:
            self._before = dict(self.records), self.head
        self._apply(batch)
        self.head = batch.head

    def grow(self) -> None: ...

    def close(self) -> None: ...

    def crash(self, under_way: Batch | None) -> None:
        """Power is lost while `under_way` is being written."""
        if self._before is not None:
            self.records, self.head = self._before
            self._before = None
        if under_way is not None and under_way.delete_from is None and under_way.delete_below is None:
            torn = self._rng.randrange(len(under_way.puts) + 1)
            self.records.update(dict(under_way.puts[:torn]))  # pages without the meta page that counts them

    def _leave_something(self, batch: Batch) -> None:
        """A sync that failed: of what was to be synced nothing is on the disk, or some, or all."""
        whole = self._rng.random()
        if whole < 0.3:
            self._apply(batch)
            self.head = batch.head
        elif whole < 0.6:
            self.crash(batch)

    def _apply(self, batch: Batch) -> None:
        if batch.delete_from is not None:
            for index in [index for index in self.records if index >= batch.delete_from]:
                del self.records[index]
        self.records.update(dict(batch.puts))
        if batch.delete_below is not None:
            for index in [index for index in self.records if index < batch.delete_below]:
                del self.records[index]
