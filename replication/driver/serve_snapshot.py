"""Sending of the leader's state to a follower that lacks entries which the journal no longer holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import google_crc32c

from tarry.proto.tarry_peer_pb2 import FetchSnapshotResponse, LogPosition, SnapshotChunk, SnapshotFile
from tarry.replication.blocking import RunBlocking
from tarry.replication.replica import Replica
from tarry.replication.snapshot.transfer import (
    CHUNK_BYTES,
    OpenSnapshot,
    SnapshotFailed,
    SnapshotSource,
    StateTooNew,
)


async def serve(
    replica: Replica, source: SnapshotSource | None, kept: Sequence[SnapshotFile] = (), level: int = 1
) -> AsyncIterator[FetchSnapshotResponse]:
    """Yield this leader's state, without what is `kept` already and the same.

    Raises SnapshotFailed; StateTooNew where the state is of a higher level than `level`.
    """
    if source is None:
        raise SnapshotFailed("this replica serves no snapshots")
    if replica.cluster_level() > level:
        raise StateTooNew(
            f"the state is of level {replica.cluster_level()}, and who asks applies {level} at most: "
            f"start there what {replica.node} runs, {replica.hello}"
        )
    replica.given_away.add(replica.applied)  # what comes behind it stays in the journal
    opened = await source.open_snapshot()
    try:
        manifest = opened.manifest
        # of tens of thousands of files a copy takes longer than a turn may
        first = await replica.run_blocking(partial(FetchSnapshotResponse, manifest=manifest))
        first.manifest.position.CopyFrom(position(replica, manifest.position.index))
        yield first
        left = {file.name: file for file in kept}
        async for chunk in chunks(opened, left, replica.run_blocking):
            yield FetchSnapshotResponse(chunk=chunk)
    finally:
        opened.close()


async def chunks(
    opened: OpenSnapshot, kept: Mapping[str, SnapshotFile], run_blocking: RunBlocking
) -> AsyncIterator[SnapshotChunk]:
    """Yield the bytes of the files, in order, without what is ``kept``, by name, already and the same."""
    for place, file in enumerate(opened.manifest.files):
        begun = await run_blocking(partial(_begun, opened, place, kept.get(file.name)))
        for offset in range(begun, file.size_bytes, CHUNK_BYTES):
            size_bytes = min(CHUNK_BYTES, file.size_bytes - offset)
            data = await run_blocking(partial(opened.read, place, offset, size_bytes))
            yield SnapshotChunk(file=place, offset=offset, data=data, crc32c=google_crc32c.value(data))


def _begun(opened: OpenSnapshot, place: int, kept: SnapshotFile | None) -> int:
    """Return how much of a file need not be sent: all that is kept, if it is the same here, or nothing."""
    if kept is None or kept.size_bytes > opened.manifest.files[place].size_bytes:
        return 0
    crc = 0
    for offset in range(0, kept.size_bytes, CHUNK_BYTES):
        size_bytes = min(CHUNK_BYTES, kept.size_bytes - offset)
        crc = google_crc32c.extend(crc, opened.read(place, offset, size_bytes))
    return kept.size_bytes if crc == kept.crc32c else 0


def position(replica: Replica, index: int) -> LogPosition:
    """Return what a log goes on from behind a state. Raises SnapshotFailed: the entry is not here."""
    journal = replica.journal
    term = journal.term_at(index)
    if term is None or index > replica.consensus.state.commit_index:
        raise SnapshotFailed(f"entry {index} is not in the journal")
    return LogPosition(
        index=index, term=term, chain=journal.chain_at(index), members=replica.membership.at(index)
    )
