"""A whole state in place of a log that is no longer there.

    follower                                      leader
       │◄───────────── NeedSnapshot ─────────────────│  what it lacks is not in the journal any more
       │── FetchSnapshot (what is here already) ────►│
       │◄── manifest, chunks (each with checksum) ───│  SnapshotSource
       │ SnapshotSink: side folder, proven, synced
       │ journal: "installing" ─► sink.install(), adopt() ─► journal starts at the snapshot

The engine's own snapshots are never used: they commit what they did not verify, load damage, and lower what
was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from typing import Protocol

import google_crc32c

from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotResponse,
    LogPosition,
    SnapshotChunk,
    SnapshotFile,
    SnapshotManifest,
)
from tarry.replication.blocking import RunBlocking
from tarry.replication.settings import SNAPSHOT_STALL_MS

CHUNK_BYTES = 512 << 10
KEPT_FILES_MAX = 12_288
"""Named in a request, which is read in one turn of the event loop; of more, the largest."""
KEPT_FILE_BYTES = 64
"""Of one in the request, at most."""


class SnapshotFailed(Exception):
    """The state could not be brought over. Nothing has changed here; it will be asked for again."""


class StateTooNew(SnapshotFailed):
    """The state is of a higher level than who asks for it can apply."""


class OpenSnapshot(Protocol):
    """A state that stays as it is while it is read, whatever happens to the machine."""

    @property
    def manifest(self) -> SnapshotManifest:
        """The files; of the position only the index is known here."""

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        """Read a part of a file, named by its place in the manifest. Blocks; raises SnapshotFailed."""

    def close(self) -> None: ...


class SnapshotSource(Protocol):
    async def open_snapshot(self) -> OpenSnapshot:
        """Open the machine's latest durable state, whose index must still be in the journal."""


class SnapshotSink(Protocol):
    """Destination of a state that arrives. All but `adopt` blocks."""

    def kept(self) -> Sequence[SnapshotFile]:
        """Return the files that an interrupted arrival left, as far as they came."""

    def begin(self, manifest: SnapshotManifest) -> None:
        """Keep what is there of the manifest's files, and nothing else."""

    def write(self, file: int, offset: int, data: bytes) -> None:
        """Write a part of a file; anything beyond it in the file is void."""

    def prove(self) -> None:
        """Compare what has come with its own checksums. Raises SnapshotFailed, AnotherVersion."""

    def install(self) -> None:
        """Sync the side folder and put it in the place of the machine's, atomically also under a power loss.

        The next start opens it. Raises SnapshotFailed only before anything has changed.
        """

    async def adopt(self) -> None:
        """Let the machine go over to what was installed; its `applied_index` is then the manifest's."""


Ask = Callable[[Sequence[SnapshotFile]], AsyncIterator[FetchSnapshotResponse]]
"""Begins to fetch, given what is here already."""


async def fetch(
    ask: Ask, sink: SnapshotSink, run_blocking: RunBlocking, stall_ms: int = SNAPSHOT_STALL_MS
) -> LogPosition:
    """Fetch a state into the sink, checked byte by byte; it only has to be installed.

    Raises SnapshotFailed where something is missing, doubled, out of order or damaged, there or on the way,
    or nothing comes for ``stall_ms``.
    """
    arrival: _Arrival | None = None
    kept = await run_blocking(partial(_largest, await run_blocking(sink.kept)))
    async for part in _unstalled(ask(list(kept.values())), stall_ms):
        if part.HasField("manifest"):
            if arrival is not None:
                raise SnapshotFailed("a second manifest")
            arrival = await run_blocking(partial(_Arrival, part.manifest, kept))
            await run_blocking(partial(sink.begin, part.manifest))
        elif arrival is None:
            raise SnapshotFailed("no manifest")
        else:
            arrival.take(part.chunk)
            chunk = part.chunk
            await run_blocking(partial(sink.write, chunk.file, chunk.offset, chunk.data))
    if arrival is None:
        raise SnapshotFailed("nothing came")
    arrival.check_complete()
    await run_blocking(sink.prove)
    return arrival.manifest.position


async def _unstalled(
    parts: AsyncIterator[FetchSnapshotResponse], stall_ms: int
) -> AsyncGenerator[FetchSnapshotResponse]:
    """Yield parts; who gives them may be alive and its disk not. Raises SnapshotFailed."""
    while True:
        try:
            async with asyncio.timeout(stall_ms / 1000):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SnapshotFailed(f"nothing has come for {stall_ms} ms") from None
        yield part


def _largest(kept: Sequence[SnapshotFile]) -> dict[str, SnapshotFile]:
    """Return by their names the kept files that are named to the peer: of many, that takes its time."""
    some = (file for file in kept if file.size_bytes)
    return {file.name: file for file in nlargest(KEPT_FILES_MAX, some, key=lambda file: file.size_bytes)}


class _Arrival:
    """Position in an arriving state, and the checksum of the file so far."""

    def __init__(self, manifest: SnapshotManifest, kept: Mapping[str, SnapshotFile]) -> None:
        self.manifest = manifest
        self._files = list(manifest.files)
        self._kept = kept
        self._goes_on = False
        self._file = -1
        self._next_file()

    def take(self, chunk: SnapshotChunk) -> None:
        if self._goes_on and (chunk.file, chunk.offset) == (self._file, 0):
            self._offset = self._crc = 0  # what was kept of it is not what the peer has
        self._goes_on = False
        if (chunk.file, chunk.offset) != (self._file, self._offset) or not chunk.data:
            raise SnapshotFailed(
                f"file {chunk.file} at {chunk.offset} instead of {self._file} at {self._offset}"
            )
        if chunk.crc32c != google_crc32c.value(chunk.data):
            raise SnapshotFailed(f"file {chunk.file} at {chunk.offset}: checksum")
        self._crc = google_crc32c.extend(self._crc, chunk.data)
        self._offset += len(chunk.data)
        if self._offset == self._files[self._file].size_bytes:
            self._next_file()

    def check_complete(self) -> None:
        if self._file < len(self.manifest.files):
            raise SnapshotFailed(f"ended in {self.manifest.files[self._file].name} at {self._offset}")

    def _next_file(self) -> None:
        """Go on to the first file that is not complete. Raises SnapshotFailed on a wrong checksum."""
        files = self._files
        while self._file < 0 or self._offset == files[self._file].size_bytes:
            if self._file >= 0 and self._crc != files[self._file].crc32c:
                raise SnapshotFailed(f"{files[self._file].name}: checksum")
            self._file, self._offset, self._crc = self._file + 1, 0, 0
            if self._file == len(files):
                return
            kept = self._kept.get(files[self._file].name)
            if kept is not None and self._may_go_on(kept, files[self._file]):
                self._offset, self._crc, self._goes_on = kept.size_bytes, kept.crc32c, True

    @staticmethod
    def _may_go_on(kept: SnapshotFile, file: SnapshotFile) -> bool:
        """Return whether the kept bytes can be the beginning of the file, or are all of it."""
        if kept.size_bytes == file.size_bytes:
            return kept.crc32c == file.crc32c
        return kept.size_bytes < file.size_bytes
