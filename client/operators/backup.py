"""Backups: the node that one is taken from, and its bytes on their way into a folder or a stream."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tarry.client.errors import NotFound, Unavailable
from tarry.client.operators.cluster_operator import Operator
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.backup_folder import BackupDamaged, BackupRefused, FolderWriter, StreamWriter
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import BackupChunk, BackupManifest

KEPT_FILES_MAX: Final = 12_288
"""Files of an earlier backup that a node is told of."""


class BackupFailed(Exception):
    """A backup could not be written; the text says why, and what to do. The one before it stays whole."""


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Progress of a backup."""

    manifest: BackupManifest
    file: int
    """Place of the file under way in the manifest."""
    passed_bytes: int
    """Of the state, up to what has come last; files that the folder has already are passed."""
    new_bytes: int
    """Written so far."""
    done: bool = False


async def steps(
    operator: Operator, address: str, index_min: int, writer: FolderWriter | StreamWriter
) -> AsyncGenerator[BackupProgress]:
    """Let the writer take the backup of the node at an address, in threads; yield how far it is.

    After the last, ``done``, it is durable. Raises as ``Operator.backup``; BackupDamaged, BackupRefused,
    OSError.
    """
    manifest: BackupManifest | None = None
    before = list[int]()
    kept = await asyncio.to_thread(writer.kept)
    parts = operator.backup(address, kept=kept[:KEPT_FILES_MAX], index_min=index_min)
    async with aclosing(parts):
        async for part in parts:
            if part.HasField("manifest"):
                manifest = part.manifest
                await asyncio.to_thread(_begin, writer, manifest)
                before = _before(manifest)
                yield BackupProgress(manifest, 0, 0, 0)
            elif manifest is not None:
                chunk: BackupChunk = part.chunk
                await asyncio.to_thread(writer.take, chunk)
                passed = before[chunk.file] + chunk.offset + len(chunk.data)
                yield BackupProgress(manifest, chunk.file, passed, writer.bytes_written)
    if manifest is None:
        raise Unavailable(Reason.BACKUP_UNAVAILABLE, f"{address} sent nothing: ask again")
    await asyncio.to_thread(writer.finish)
    yield BackupProgress(manifest, len(manifest.files), before[-1], writer.bytes_written, done=True)


async def into_folder(
    operator: Operator, address: str, index_min: int, folder: Path
) -> AsyncGenerator[BackupProgress]:
    """Write the backup of the node at an address into a folder, new or of earlier ones; yield how far it is.

    Raises BackupFailed, and as ``Operator.backup``.
    """
    try:
        writer = await asyncio.to_thread(FolderWriter, folder)
        try:
            async with aclosing(steps(operator, address, index_min, writer)) as each:
                async for progress in each:
                    yield progress
        finally:
            writer.close()
    except (BackupDamaged, BackupRefused) as error:
        raise BackupFailed(str(error)) from error
    except OSError as error:
        raise BackupFailed(f"{error.filename or folder}: {error.strerror}") from error


async def as_stream(operator: Operator, address: str, index_min: int) -> AsyncGenerator[bytes]:
    """Yield the backup of the node at an address as the bytes of a stream, as ``tarry restore`` reads them.

    Raises BackupFailed, and as ``Operator.backup``: what was yielded by then is no backup.
    """
    target = io.BytesIO()
    try:
        async with aclosing(steps(operator, address, index_min, StreamWriter(target))) as each:
            async for _ in each:
                yield target.getvalue()
                target.seek(0)
                target.truncate()
    except (BackupDamaged, BackupRefused) as error:
        raise BackupFailed(str(error)) from error


def _before(manifest: BackupManifest) -> list[int]:
    """Return the bytes before each file, and last those of all."""
    before = [0]
    for file in manifest.files:
        before.append(before[-1] + file.size_bytes)
    return before


def _begin(writer: FolderWriter | StreamWriter, manifest: BackupManifest) -> None:
    """Begin. Raises BackupRefused, also where the disk has not the room for what is new."""
    if isinstance(writer, FolderWriter):
        disk = os.statvfs(writer.folder)
        kept = {file.name: file.size_bytes for file in writer.kept()}
        needed = sum(max(0, file.size_bytes - kept.get(file.name, 0)) for file in manifest.files)
        if needed > disk.f_bavail * disk.f_frsize:
            free = disk.f_bavail * disk.f_frsize
            raise BackupRefused(
                f"{writer.folder} needs {needed} bytes more, and its disk has {free} free: make room"
            )
    writer.begin(manifest)


def source_of(status: ClusterStatus, node: str = "") -> str:
    """Return the address of the node to ask: the named one, or the follower in touch that has most.

    Raises NotFound: no member has that name; Unavailable: no follower is in touch, or nobody leads, so that
    the status does not say how much has been acknowledged.
    """
    members = {member.node: member for member in status.members}
    if node:
        if node not in members:
            text = f"{node!r} is no member: name one of {', '.join(sorted(members))}"
            raise NotFound(Reason.MEMBER_INVALID, text)
        return members[node].address
    if not status.lease:
        text = (
            "no node leads, so nobody knows how much has been acknowledged: wait for a leader, or take what "
            "one node has, perhaps not all of it, with --node"
        )
        raise Unavailable(Reason.BACKUP_UNAVAILABLE, text)
    if list(members) == [status.leader]:
        return members[status.leader].address
    followers = [m for m in members.values() if m.connected and m.node != status.leader]
    if not followers:
        text = "no follower is in touch with the leader: wait for one, or take it from the leader with --node"
        raise Unavailable(Reason.BACKUP_UNAVAILABLE, text)
    return max(followers, key=lambda member: member.match_index).address
