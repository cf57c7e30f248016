"""Restore: the data folder of a new cluster's first node, from a backup.

    backup ─► side folder, each byte checked ─► state, opened: its digest is the backup's ─► journal

The journal begins behind the backup's last entry, has this node as the only member, and belongs to a new
incarnation of the cluster: no node of before can take part, nor any that was restored apart from this one.
Others join as newcomers. It is written last, and until the state is whole nothing points to one, so that a
node does not start with half a restore, nor empty in its place.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tarry.node.config import ADDRESS, NODE_NAME
from tarry.node.recovery import new_incarnation
from tarry.proto.backup_folder import BackupDamaged, BackupRefused
from tarry.proto.files import make_folder, sync_path
from tarry.proto.tarry_operator_pb2 import BackupManifest, BackupResponse
from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotResponse,
    LogPosition,
    MemberList,
    SnapshotChunk,
    SnapshotFile,
    SnapshotManifest,
)
from tarry.replication.blocking import in_thread
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.records import JournalDamaged
from tarry.replication.raft.guard.terms import is_plausible
from tarry.replication.snapshot.state_files import StateSink
from tarry.replication.snapshot.state_folder import POINTER, StateFolder
from tarry.replication.snapshot.transfer import SnapshotFailed, fetch
from tarry.replication.state_machine.checkpoint import CheckpointDamaged
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.ready_queue import QueueDamaged
from tarry.wheel.state import WheelDamaged

DAMAGE: Final = (SnapshotFailed, CheckpointDamaged, WheelDamaged, QueueDamaged, JournalDamaged)


@dataclass(frozen=True, slots=True)
class Founder:
    """The new cluster's first node."""

    node: str
    address: str
    """Where others reach it, if the configuration that it is started with names no address of it."""
    cluster_incarnation: int
    incarnation: int
    """Random numbers, of the cluster and of the node's journal."""


def fault(node: str, address: str) -> str:
    """Return why no node of that name could be started, or reached there; empty: one could."""
    if NODE_NAME.fullmatch(node) is None:
        return f"--name {node!r}: give the node's name, of lower-case letters, digits and '-'"
    if ADDRESS.fullmatch(address) is None:
        return f"--address {address!r}: give host:port"
    return ""


def restore(
    parts: Iterable[BackupResponse],
    data: Path,
    founder: Founder,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> BackupManifest:
    """Make the data folder of the founder of a backup's parts; return what the backup tells of itself.

    ``on_bytes`` is told how many bytes have come. Where it fails, the folder is as empty as before.
    Raises BackupRefused: the folder is not empty; BackupDamaged, AnotherVersion, OSError.
    """
    if data.exists() and any(data.iterdir()):
        raise BackupRefused(f"{data} is not empty: name an empty folder, or a new one")
    make_folder(data)
    try:
        return _restored(parts, data, founder, on_bytes)
    except BaseException:
        for path in data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _restored(
    parts: Iterable[BackupResponse], data: Path, founder: Founder, on_bytes: Callable[[int], None]
) -> BackupManifest:
    folder, told = StateFolder(data), BackupManifest()
    folder.side.mkdir()
    (data / POINTER).unlink()  # a node that starts before the end finds states that nothing points to
    sync_path(data)

    async def ask(_: Sequence[SnapshotFile]) -> AsyncIterator[FetchSnapshotResponse]:
        for part in _converted(parts, told, on_bytes):
            yield part

    sink = StateSink(None, folder)
    try:
        asyncio.run(fetch(ask, sink, in_thread))
        sink.install()
        folder.remove_others()
        digest = _digest_of(folder.path, told.shard)
    except (*DAMAGE, AnotherVersion) as error:
        if isinstance(error, AnotherVersion):
            text = f"the backup is of tarry {told.version}, and this one cannot read it: use that one"
            raise AnotherVersion(text) from error
        raise BackupDamaged(str(error)) from error
    if digest != told.digest:
        raise BackupDamaged(f"its state has the digest {digest.hex()}, not {told.digest.hex()}")
    _begin_journal(data / "journal", told, founder)
    sync_path(data)
    return told


def _converted(
    parts: Iterable[BackupResponse], told: BackupManifest, on_bytes: Callable[[int], None]
) -> Iterator[FetchSnapshotResponse]:
    """Yield a backup's parts as those of a snapshot; keep its manifest in ``told``."""
    for part in parts:
        if part.HasField("manifest"):
            told.CopyFrom(part.manifest)
            files = [
                SnapshotFile(name=file.name, size_bytes=file.size_bytes, crc32c=file.crc32c)
                for file in told.files
            ]
            manifest = SnapshotManifest(position=LogPosition(index=told.index), files=files)
            yield FetchSnapshotResponse(manifest=manifest)
        else:
            chunk = part.chunk
            yield FetchSnapshotResponse(
                chunk=SnapshotChunk(
                    file=chunk.file, offset=chunk.offset, data=chunk.data, crc32c=chunk.crc32c
                )
            )
            on_bytes(len(chunk.data))


def _digest_of(state: Path, shard: int) -> bytes:
    """Return the digest of a state, opened as a node opens it. Raises one of DAMAGE, AnotherVersion."""
    with closing(Machine(state, MachineSettings(shard=shard), from_start=False)) as machine:
        return machine.digest()


def _begin_journal(path: Path, told: BackupManifest, founder: Founder) -> None:
    """Write a journal that goes on behind the backup. Raises BackupDamaged, OSError."""
    if not is_plausible(told.term, 0) or not told.index:
        raise BackupDamaged(f"its last entry is {told.index} of term {told.term}, which no log leads to")
    with closing(Journal(open_log(path), incarnation=founder.incarnation)) as journal:
        members = MemberList(addresses={founder.node: founder.address})
        journal.prepare_reset(
            LogPosition(index=told.index, term=told.term, chain=told.chain, members=members)
        )
        journal.reset()
        journal.set_term(told.term + 1, founder.node)  # the old cluster may have gone on in its term
        new_incarnation.begin(journal, founder.cluster_incarnation, told.now_ms)
