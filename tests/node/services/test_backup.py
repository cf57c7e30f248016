"""Bounds on a backup: of those under way, of how long it may take, and of the disk's room."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import BackupSettings, Limits
from tarry.node.services.backup import CATCH_UP_ENTRIES_MAX
from tarry.proto import tarry_operator_pb2 as pb
from tarry.replication.loop_holds import Holds
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tests.node.lone_leader import Leader, leader, until
from tests.simulation.edge import Context, StreamEnded


def backup(lead: Leader, **request: Any) -> AsyncIterator[bytes]:
    context: Any = Context()
    return lead._operator._backup_calls._backup(pb.BackupRequest(**request).SerializeToString(), context)


async def all_of(parts: AsyncIterator[bytes]) -> list[pb.BackupResponse]:
    return [pb.BackupResponse.FromString(part) async for part in parts]


async def test_it_is_of_one_entry_whole_and_what_is_kept_is_not_sent_again(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await lead.ready(3_000)
        manifest, *chunks = await all_of(backup(lead))
        told = manifest.manifest
        assert told.digest == lead.machine.digest()
        assert (told.index, told.node) == (lead.machine.applied_index, "n1")
        assert sum(len(part.chunk.data) for part in chunks) == sum(file.size_bytes for file in told.files)
        manifest, *chunks = await all_of(backup(lead, kept=told.files))
        assert {manifest.manifest.files[part.chunk.file].name for part in chunks} <= {"checkpoint.bin"}
        assert lead.machine.snapshots == 0


async def test_so_many_are_under_way_and_one_that_is_not_taken_ends_and_lets_files_be_deleted(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds(), backup=BackupSettings(stall_ms=50)) as lead:
        await lead.ready(10)
        first = backup(lead)
        await anext(first)
        assert lead.machine.snapshots == 1
        with pytest.raises(StreamEnded, match=r"1 backups are under way at this node \(backup.backups_max\)"):
            await anext(backup(lead))
        await until(lambda: lead.machine.snapshots == 0)
        await anext(backup(lead))  # there is room again, though the first one's call is still open
        with pytest.raises(StreamEnded, match="was not taken within"):
            await anext(first)


async def test_one_that_takes_too_long_ends_however_steadily_it_is_taken(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), backup=BackupSettings(duration_ms_max=1)) as lead:
        with pytest.raises(StreamEnded, match=r"backup\.duration_ms_max"):
            parts = backup(lead)
            await anext(parts)
            await until(lambda: lead.machine.snapshots == 0)
            await all_of(parts)


async def test_it_is_refused_where_the_disk_is_full_or_the_node_is_behind(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    least = Limits(disk_free_bytes_min=2 * disk.f_blocks * disk.f_frsize)
    async with leader(tmp_path, Holds(), limits=least) as lead:
        with pytest.raises(StreamEnded, match="make room on it"):
            await all_of(backup(lead))
        kept = [pb.BackupFile(name="x")] * (KEPT_FILES_MAX + 1)
        with pytest.raises(StreamEnded, match="name 12288 at most"):
            await all_of(backup(lead, kept=kept))
    async with leader(tmp_path / "other", Holds()) as lead:
        beyond = lead.machine.applied_index + CATCH_UP_ENTRIES_MAX + 1
        with pytest.raises(StreamEnded, match="far before"):
            await all_of(backup(lead, index_min=beyond))
