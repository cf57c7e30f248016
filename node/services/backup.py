"""Backup: the asked node's state as of one entry, streamed to an operator.

    wait for index_min ─► checkpoint ─► files compared with it ─► manifest, chunks

It is what a follower is given that lacks a part of the log (`replication/snapshot`), and paced like that: a
chunk is read in a thread once the one before has been taken. While a backup is open no file is deleted, so
it is closed where its operator takes too long, or the disk has too little room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import grpc

from tarry.node.assembly import Core
from tarry.node.config import NodeConfig
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.files import free_bytes
from tarry.proto.reasons import Reason
from tarry.proto.tarry_peer_pb2 import LogPosition, SnapshotFile
from tarry.proto.version import VERSION
from tarry.replication.blocking import in_thread
from tarry.replication.driver.serve_snapshot import chunks
from tarry.replication.snapshot.state_files import FilesSnapshot, StateSource
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX, SnapshotFailed
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.refusal import Refusal

CATCH_UP_ENTRIES_MAX: Final = 100_000
CATCH_UP_LOOKS: Final = 250
LOOK_S: Final = 0.02
"""Between two looks whether the node has what the operator asks for."""
DISK_LOOK_CHUNKS: Final = 64
"""Chunks between two looks at the free disk: 32 MiB."""
TOO_SLOW: Final = (
    "was not taken within backup.stall_ms or backup.duration_ms_max, and files are deleted again"
)


class BackupCalls:
    """Answers for the state of the node itself, whoever leads."""

    def __init__(self, core: Core, authorizer: Authorizer, audit: Audit) -> None:
        self._core = core
        self._audit = audit
        self._settings = core.config.backup
        self._authorizer = authorizer
        self._preparing = 0
        self._opened: list[FilesSnapshot] = []

    def methods(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        backup = self._audit.stream("Backup", self._backup)
        return {"Backup": grpc.unary_stream_rpc_method_handler(backup)}

    async def _backup(self, raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
        request = parse(pb.BackupRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE) or self._refusal(request)
        if refusal is not None:
            await abort(context, refusal)
        self._preparing += 1
        try:
            opened, manifest = await self._open(request.index_min)
        except SnapshotFailed as failed:
            await abort(context, _unavailable(f"this node's state {failed}"))
        finally:
            self._preparing -= 1
        self._opened.append(opened)
        loop, settings = asyncio.get_running_loop(), self._settings
        ending = loop.call_later(settings.duration_ms_max / 1_000, opened.close)
        try:
            kept = await in_thread(partial(_by_name, request))
            async for response in self._responses(opened, manifest, kept):
                stalling = loop.call_later(settings.stall_ms / 1_000, opened.close)
                yield response
                stalling.cancel()
                if not opened.open:
                    raise SnapshotFailed(TOO_SLOW)
        except SnapshotFailed as failed:
            await abort(context, _unavailable(f"the backup {failed}"))
        finally:
            ending.cancel()
            opened.close()
            self._opened.remove(opened)

    async def _open(self, index_min: int) -> tuple[FilesSnapshot, pb.BackupManifest]:
        """Return the state as of a new checkpoint, and what is told of it. Raises SnapshotFailed."""
        machine, driver = self._core.machine, self._core.driver
        await caught_up(machine, index_min)
        digests: list[bytes] = []
        positions: list[LogPosition] = []

        async def checkpoint() -> bytes:
            written, index, digest = await self._core.checkpoints.write_with_digest()
            positions.append(driver.position(index))  # while the journal has that entry
            digests.append(digest)
            return written

        now_ms = self._core.time.now_ms()
        source = StateSource(machine, checkpoint, on_damage=self._core.damage.report_state)
        opened = await source.open_snapshot()
        core = self._core
        told = partial(_manifest, opened, positions[0], digests[0], now_ms, core.config, core.driver.cluster)
        try:
            return opened, await in_thread(told)
        except BaseException:  # a caller that is gone: nobody else would let the files go
            opened.close()
            raise

    async def _responses(
        self, opened: FilesSnapshot, manifest: pb.BackupManifest, kept: Mapping[str, SnapshotFile]
    ) -> AsyncIterator[bytes]:
        """Yield the backup, serialized. Raises SnapshotFailed."""
        yield await in_thread(pb.BackupResponse(manifest=manifest).SerializeToString)
        number = 0
        async for chunk in chunks(opened, kept, in_thread):
            if number % DISK_LOOK_CHUNKS == 0 and (refusal := self._disk_refusal()) is not None:
                raise SnapshotFailed(f"ends: {refusal.text}")
            number += 1
            part = pb.BackupChunk(file=chunk.file, offset=chunk.offset, data=chunk.data, crc32c=chunk.crc32c)
            yield pb.BackupResponse(chunk=part).SerializeToString()

    def _refusal(self, request: pb.BackupRequest) -> Refusal | None:
        most = self._settings.backups_max
        if (count := len(request.kept)) > KEPT_FILES_MAX:
            text = f"{count} files are kept: name {KEPT_FILES_MAX} at most, others are sent anew"
            return Refusal(Reason.BATCH_TOO_LARGE, text)
        if self._preparing + sum(opened.open for opened in self._opened) >= most:
            text = f"{most} backups are under way at this node (backup.backups_max): try another, or later"
            return Refusal(Reason.OVERLOADED, text, retry_ms=1_000)
        return self._disk_refusal()

    def _disk_refusal(self) -> Refusal | None:
        return disk_refusal(self._core, "backup")


async def caught_up(machine: Machine, index_min: int) -> None:
    """Wait until the machine has applied an entry. Raises SnapshotFailed where it is far before it."""
    if index_min > machine.applied_index + CATCH_UP_ENTRIES_MAX:
        raise SnapshotFailed(f"is at entry {machine.applied_index}, far before {index_min}")
    for _ in range(CATCH_UP_LOOKS):
        if machine.applied_index >= index_min:
            return
        await asyncio.sleep(LOOK_S)
    raise SnapshotFailed(f"is at entry {machine.applied_index}, before {index_min}")


def disk_refusal(core: Core, what: str) -> Refusal | None:
    """Refuse a backup or an export while what it keeps from being deleted may be needed."""
    free, least = free_bytes(core.machine.folder), core.config.limits.disk_free_bytes_min
    if free >= least:
        return None
    text = f"no {what}: the node's disk has {free} bytes free, fewer than {least}: make room on it"
    facts = {"disk_free_bytes": str(free), "disk_free_bytes_min": str(least)}
    return Refusal(Reason.DISK_FULL, text, facts, retry_ms=5_000)


def _unavailable(text: str) -> Refusal:
    return Refusal(Reason.BACKUP_UNAVAILABLE, f"{text}; ask again, or another node", retry_ms=1_000)


def _by_name(request: pb.BackupRequest) -> dict[str, SnapshotFile]:
    return {
        file.name: SnapshotFile(name=file.name, size_bytes=file.size_bytes, crc32c=file.crc32c)
        for file in request.kept
    }


def _manifest(
    opened: FilesSnapshot,
    position: LogPosition,
    digest: bytes,
    now_ms: int,
    config: NodeConfig,
    cluster: str,
) -> pb.BackupManifest:
    return pb.BackupManifest(
        cluster=cluster,
        node=config.node,
        version=VERSION,
        shard=config.shard,
        index=position.index,
        term=position.term,
        chain=position.chain,
        now_ms=now_ms,
        digest=digest,
        files=[
            pb.BackupFile(name=file.name, size_bytes=file.size_bytes, crc32c=file.crc32c)
            for file in opened.manifest.files
        ],
    )
