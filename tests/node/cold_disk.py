"""A disk of whose files nothing is cached but what was read ahead."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from tarry.node.repair.record_reads import RecordReads
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.cached_reads import FilePlaces, NotCached


class ColdDisk:
    """Of one file, for it knows places by their offset."""

    def __init__(self) -> None:
        self.read: list[FilePlaces] = []
        self.there: set[int] = set()

    def reads(self, machine: Machine) -> RecordReads:
        return RecordReads(machine, self._pread, self._run_blocking)  # type: ignore[arg-type]

    def _pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        if offset not in self.there:
            raise NotCached
        return os.pread(fd, size_bytes, offset)

    async def _run_blocking(self, work: partial[Any]) -> None:
        for places in work.args[0]:
            self.read.append(places)
            self.there.update(places.offsets)
        work()
