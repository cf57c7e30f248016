"""Installation of a snapshot on a follower: fetched beside the turns, swapped in within one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from tarry.proto.tarry_peer_pb2 import LogPosition
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch
from tarry.replication.raft.guard.terms import is_plausible
from tarry.replication.replica import Replica
from tarry.replication.snapshot import transfer
from tarry.replication.snapshot.transfer import SnapshotFailed, SnapshotSink
from tarry.replication.transport.interface import Transport


class StateMismatch(Exception):
    """The machine's state and the journal do not belong together. The replica must not start."""


def finish_installing(journal: Journal, applied: int) -> None:
    """Finish an install that a crash interrupted between the swap of the state and the journal's reset.

    Raises StateMismatch.
    """
    if journal.installing is not None:
        if applied >= journal.installing.index:
            journal.reset()
        else:
            journal.abandon_reset()
    if not journal.first_index - 1 <= applied <= journal.last_index:
        raise StateMismatch(f"applied {applied}; journal {journal.first_index} … {journal.last_index}")


class SnapshotInstaller:
    """Fetches a leader's state beside the turns; installs it within one, while nothing else happens."""

    def __init__(self, replica: Replica, transport: Transport, sink: SnapshotSink | None) -> None:
        self._replica = replica
        self._transport = transport
        self._sink = sink
        self._fetching: asyncio.Task[None] | None = None
        self._arrived: LogPosition | None = None
        self._asked_s = 0.0

    @property
    def ready(self) -> bool:
        return self._arrived is not None

    def ask(self, peer: str) -> None:
        """Fetch the state of a peer, the leader, unless one is on its way or has arrived."""
        if self._sink is not None and self._fetching is None and self._arrived is None:
            self._asked_s = self._replica.now()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(peer), name="snapshot")
            self._fetching.add_done_callback(self._replica.watch)

    async def install(self, write: Callable[[Batch | None], Awaitable[None]]) -> bool:
        """Install the state that arrived; False: it is no longer needed, or could not be swapped in."""
        position, self._arrived = self._arrived, None
        journal, sink = self._replica.journal, self._sink
        if position is None or sink is None or not self._is_ahead(position):
            return False
        journal.prepare_reset(position)
        await write(journal.stage())
        try:
            await self._replica.run_blocking(sink.install)
        except SnapshotFailed:
            journal.abandon_reset()
            return False
        await sink.adopt()
        journal.reset()
        await write(journal.stage())
        self._replica.timings.snapshot.add(self._replica.now() - self._asked_s)
        return True

    def _is_ahead(self, position: LogPosition) -> bool:
        """Return whether to install: nothing committed here is taken back, and the term must be plausible."""
        state = self._replica.consensus.state
        return position.index > state.commit_index and is_plausible(position.term, state.term)

    def cancel(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fetch(self, peer: str) -> None:
        try:
            if self._sink is not None:
                level = self._replica.hello.level
                ask = partial(self._transport.fetch_snapshot, peer, level=level)
                stall_ms = self._replica.settings.snapshot_stall_ms
                self._arrived = await transfer.fetch(ask, self._sink, self._replica.run_blocking, stall_ms)
                self._replica.wake.set()
        except SnapshotFailed:
            await asyncio.sleep(self._replica.settings.snapshot_retry_ms / 1000)
        finally:
            self._fetching = None
