"""What tests of the journal share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch


class MemoryStorage:
    """A journal's storage in memory."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}
        self.head: bytes | None = None

    def read_head(self) -> bytes | None:
        return self.head

    def read(self, index: int) -> bytes | None:
        return self.records.get(index)

    def scan(self, first: int) -> Iterator[tuple[int, bytes]]:
        for index in sorted(self.records):
            if index >= first:
                yield index, self.records[index]

    def first_within(self, size_bytes: int) -> int:
        return 0

    def is_long(self, batch: Batch) -> bool:
        return False

    def needs_upkeep(self) -> bool:
        return False

    def upkeep(self) -> None: ...

    may_defer = is_marked = False

    def flush(self) -> None: ...

    def settle(self) -> None: ...

    def write(self, batch: Batch) -> None:
        for index in list(self.records):
            if (batch.delete_from is not None and index >= batch.delete_from) or index < (
                batch.delete_below or 0
            ):
                del self.records[index]
        self.records.update(dict(batch.puts))
        self.head = batch.head

    def close(self) -> None: ...


CALLS = ("open", "pwrite", "pread", "fsync", "fdatasync", "rename", "unlink", "posix_fallocate")


@contextmanager
def failing_at(number: int, error: BaseException) -> Iterator[None]:
    """Raise at a call of the disk, counted from 0, once."""
    left = iter(range(number))

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if next(left, None) is None and not failed:
                failed.append(True)
                raise error
            return call(*args)

        return run

    failed: list[bool] = []
    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, wrapped(getattr(os, name)))
        yield


def sync(journal: Journal) -> None:
    batch = journal.stage()
    assert batch is not None
    journal.write(batch)
    journal.mark_durable(batch)


def fill(journal: Journal, last: int, term: int = 1) -> None:
    for index in range(journal.last_index + 1, last + 1):
        journal.append(b"\0entry %d" % index, index, term)
