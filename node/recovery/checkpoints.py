"""Checkpoints: now and then the state is made durable, so that a restart replays little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import structlog

from tarry.node.config import Dispatch
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.durations import Durations
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.checkpoint import CheckpointRefused
from tarry.replication.state_machine.machine import PREPARED_MAX, Machine

log = structlog.get_logger()

PREPARED_TURNS_MAX: Final = 1_000

Written: TypeAlias = tuple[bytes, int, Callable[[], bytes]]
"""A checkpoint, its index, and what works out the digest of the state in it, where it was asked for."""


class Checkpoints:
    """Writes a checkpoint every ``checkpoint_ms`` in which something was applied."""

    def __init__(
        self,
        machine: Machine,
        settings: Dispatch,
        compact: Callable[[int], None],
        run_blocking: RunBlocking = in_thread,
        before: Callable[[], Awaitable[None]] | None = None,
        holds: Holds | None = None,
    ) -> None:
        """Take ``before``, which makes durable what only a replay could tell again.

        ``compact`` is then told the index up to which nothing need be replayed any more.
        """
        self._machine = machine
        self._compact = compact
        self._settings = settings
        self._run_blocking = run_blocking
        self._before = before
        self._holds = holds or Holds()
        self._written = machine.applied_index
        self._failed = False
        self.durations = Durations()
        self.writing = asyncio.Lock()  # held while one is written

    async def run(self) -> None:
        """Write until cancelled. Raises OSError, CheckpointRefused: the process must end."""
        while True:
            await asyncio.sleep(self._settings.checkpoint_ms / 1000)
            failed = self._failed and not self.writing.locked()  # as who fetches the state had asked for it
            if failed or self._machine.applied_index > self._written:
                await self.write()

    async def write(self) -> bytes:
        """Write one now, captured on the loop, built and synced in a thread; return it.

        It is written also where the caller is cancelled meanwhile: what it has to sync is told only once.
        Raises OSError; CheckpointRefused: an entry was applied by half, or a checkpoint has failed before.
        """
        checkpoint, _, _ = await self._shielded(digested=False)
        return checkpoint

    async def write_with_digest(self) -> tuple[bytes, int, bytes]:
        """Write one as ``write`` does; return it, its index, and the digest of the state in it."""
        checkpoint, index, digest = await self._shielded(digested=True)
        return checkpoint, index, await self._run_blocking(digest)

    async def _shielded(self, *, digested: bool) -> Written:
        writing = asyncio.ensure_future(self._write(digested=digested))
        writing.add_done_callback(_heeded)
        return await asyncio.shield(writing)

    async def close(self, *, write: bool) -> None:
        """Let the one under way finish, and write a last one if asked."""
        if write:
            await self.write()
        async with self.writing:
            pass

    async def _write(self, *, digested: bool) -> Written:
        async with self.writing:
            if self._failed:  # what it was to sync is told no more, and a second fsync would lie
                raise CheckpointRefused("a checkpoint could not be written")
            began_s = self._holds.now_s()
            await in_turns(self._machine.prepare, self._holds)
            with self._holds.by("checkpoint capture"):
                captured = self._machine.capture()
                digest = self._machine.digested() if digested else bytes
            self._failed = True  # until it is written
            if self._before is not None:
                await self._before()
            checkpoint: bytes = await self._run_blocking(partial(self._machine.write, captured))
            self._failed = False
            self._written = captured.applied_index
            self.durations.add(self._holds.now_s() - began_s)
            self._compact(captured.applied_index)
            log.debug("checkpoint", applied_index=captured.applied_index, bytes=len(checkpoint))
            return checkpoint, captured.applied_index, digest


def _heeded(writing: asyncio.Task[Written]) -> None:
    """Retrieve an error that no caller is left for: the next checkpoint is refused for it."""
    if not writing.cancelled():
        writing.exception()


async def in_turns(work: Callable[[], int], holds: Holds) -> None:
    """Let the machine do what a capture in one turn would have to do, some in each of many turns.

    ``work``: ``prepare`` of a machine, or ``build``.
    """
    for _ in range(PREPARED_TURNS_MAX):  # for what is done is to be done again where something has changed
        with holds.by("checkpoint capture"):
            some = work()
        if some < PREPARED_MAX:
            return
        await asyncio.sleep(0)
