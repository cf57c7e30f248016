"""Replicas that apply one log, each with a ledger; one is killed, starts again, or takes another's state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tarry.node.config import LedgerSettings
from tarry.node.ledger.ledger import Ledger
from tarry.proto.ledger.arrow import SCHEMA
from tarry.proto.ledger.segment import closed
from tarry.replication.snapshot.state_files import StateSink, StateSource
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.machine import Captured, Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Outcome
from tarry.replication.state_machine.refusal import Refusal
from tests.fuzz.edge import config_of

CHUNK_BYTES = 1 << 20


class Replica:
    """A state machine and its ledger, in folders as a node has them."""

    def __init__(self, folder: Path, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.config = config_of(folder, ledger=LedgerSettings(disk_free_bytes_min=1, segment_rows_max=100))
        self.state = StateFolder(folder)
        self.open()

    def open(self) -> None:
        self.machine = Machine(self.state.path, MachineSettings())
        self.machine.events.wanted = True
        self.bound()
        self.ledger = Ledger(self.config, self.machine.applied_index, self._now_ms)
        self.captured: Captured | None = None

    def bound(self) -> None:
        """Let the table of producers forget soon, on all replicas alike."""
        table = self.machine.producers
        table._window, table._answers_bytes_max, table._producers_kept = 2, 300, 1

    def apply(self, index: int, commands: list[bytes]) -> tuple[list[Outcome], list[Event]]:
        outcomes = self.machine.apply(index, 1, commands)
        events = self.machine.take_events()
        self.ledger.applied(index, 1, events, self.machine.queues)
        queues = self.machine.queues
        queues.take_trimmed(), queues.take_moved(), queues.take_changed()
        return outcomes, events

    async def rows(self) -> int:
        """Close the ledger's segments; return how many rows they have, each by the schema."""
        await self.ledger.close()
        tables = [pq.read_table(path, schema=SCHEMA) for path, _ in closed(self.ledger.folder)]
        return sum(table.num_rows for table in tables)


class Replicas:
    """One that only goes on, and one to which things happen."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 1_795_000_000_000
        self.one, self.other = (Replica(folder / name, lambda: self.now_ms) for name in ("one", "other"))
        self.log: list[list[bytes]] = []
        self.loop = asyncio.new_event_loop()

    def run(self, work: Any) -> Any:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(work)

    def commit(self, commands: list[bytes]) -> list[Outcome]:
        """Apply an entry everywhere: outcomes, what the ledgers are told, and the states are equal."""
        self.log.append(commands)
        outcomes, events = self.one.apply(len(self.log), commands)
        assert len(outcomes) == len(commands)
        assert all(outcome.text for outcome in outcomes if isinstance(outcome, Refusal))
        again, told = self.other.apply(len(self.log), commands)
        assert repr(outcomes) == repr(again)
        assert [_plain(event) for event in events] == [_plain(event) for event in told]
        self.compare()
        return outcomes

    def compare(self) -> None:
        assert self.one.machine.digest() == self.other.machine.digest()

    def checkpoint(self) -> None:
        """The other takes a checkpoint, or writes the one that it has taken."""
        if self.other.captured is None:
            self.other.captured = self.other.machine.capture()
        else:
            self.other.machine.write(self.other.captured)
            self.other.captured = None

    def restart(self) -> None:
        """The other is killed, and replays what its last checkpoint does not hold."""
        self.other.machine.close()
        self.other.open()
        for index in range(self.other.machine.applied_index + 1, len(self.log) + 1):
            self.other.apply(index, self.log[index - 1])
        self.compare()

    def tell(self) -> None:
        """The ledgers' rows are written."""
        for replica in (self.one, self.other):
            self.run(replica.ledger.write())

    def send_snapshot(self) -> None:
        """The other takes the first one's whole state in place of its own."""
        self.run(self._send_snapshot())
        self.compare()

    async def _send_snapshot(self) -> None:
        giver, taker = self.one.machine, self.other

        async def checkpoint() -> bytes:
            return giver.write(giver.capture())

        taker.captured = None
        snapshot = await StateSource(giver, checkpoint).open_snapshot()
        sink = StateSink(taker.machine, taker.state)
        sink.begin(snapshot.manifest)
        for place, file in enumerate(snapshot.manifest.files):
            for offset in range(0, file.size_bytes, CHUNK_BYTES):
                size = min(CHUNK_BYTES, file.size_bytes - offset)
                sink.write(place, offset, snapshot.read(place, offset, size))
        snapshot.close()
        sink.install()
        await sink.adopt()
        taker.bound()

    def close(self) -> None:
        """Everything is checkpointed, opened again, and in the ledgers."""
        self.checkpoint()
        self.restart()
        for replica in (self.one, self.other):
            replica.machine.write(replica.machine.capture())
            self.run(replica.rows())
            replica.machine.close()
        self.loop.close()


def _plain(event: Event) -> tuple[object, ...]:
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value for value in event)
