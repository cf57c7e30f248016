"""A data folder that is made of a backup: what it holds, and which backups are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from tarry.node.recovery.restore import Founder, fault, restore
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.backup_folder import BackupDamaged, BackupRefused
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.loop_holds import Holds
from tarry.replication.snapshot.state_folder import PointerDamaged, StateFolder
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.wheel.id_gaps import gap_of
from tests.node.lone_leader import leader
from tests.node.services.test_backup import all_of, backup

N1 = Founder("n1", "127.0.0.1:1", 171, 99)


@pytest.fixture
async def parts(tmp_path: Path) -> list[pb.BackupResponse]:
    async with leader(tmp_path / "old", Holds()) as lead:
        await lead.ready(500)
        return await all_of(backup(lead))


def restored(parts: list[pb.BackupResponse], data: Path) -> pb.BackupManifest:
    return restore(parts, data, N1)


def raises(journal: Journal) -> tuple[int, int]:
    """Return the level to which the last entry of a journal raises, and its id gap."""
    (command,) = log_pb.LogEntry.FromString(journal.entry(journal.last_index)[0][1:]).commands
    raised = command_codec.decode(command)
    assert isinstance(raised, log_pb.RaiseLevelCommand)
    return raised.level, raised.id_gap


def changed(parts: list[pb.BackupResponse], **more: Any) -> list[pb.BackupResponse]:
    manifest = pb.BackupManifest.FromString(parts[0].manifest.SerializeToString())
    for name, value in more.items():
        setattr(manifest, name, value)
    return [pb.BackupResponse(manifest=manifest), *parts[1:]]


def with_checkpoint(parts: list[pb.BackupResponse], **more: Any) -> list[pb.BackupResponse]:
    """Return the parts with another checkpoint, which fits its checksums."""
    stored = log_pb.Checkpoint.FromString(parts[1].chunk.data)
    for name, value in more.items():
        setattr(stored, name, value)
    data = stored.SerializeToString()
    crc = google_crc32c.value(data)
    manifest = pb.BackupManifest.FromString(parts[0].manifest.SerializeToString())
    manifest.files[0].size_bytes, manifest.files[0].crc32c = len(data), crc
    chunk = pb.BackupChunk(data=data, crc32c=crc)
    return [pb.BackupResponse(manifest=manifest), pb.BackupResponse(chunk=chunk), *parts[2:]]


def test_a_restored_node_is_alone_in_a_new_incarnation_and_has_the_state(
    parts: list[pb.BackupResponse], tmp_path: Path
) -> None:
    told = restored(parts, tmp_path / "new")
    journal = Journal(open_log(tmp_path / "new" / "journal"), incarnation=1)
    assert journal.cluster_incarnation == 171
    assert journal.incarnation == 99
    assert journal.members is not None
    assert dict(journal.members.addresses) == {"n1": "127.0.0.1:1"}
    assert (journal.first_index, journal.last_index, journal.commit_index) == (
        told.index,
        told.index + 1,
        told.index + 1,
    )
    assert journal.chain_at(told.index) == told.chain
    assert (journal.term, journal.term_at(told.index), journal.last_term) == (
        told.term + 1,
        told.term,
        told.term + 1,
    )
    # so 0.2.0, which knows of none, ends at that entry, and no id is given again
    assert raises(journal) == (levels.INCARNATIONS, gap_of(171))
    journal.close()


def test_only_an_empty_folder_is_filled_and_one_that_cannot_be_is_left_empty(
    parts: list[pb.BackupResponse], tmp_path: Path
) -> None:
    data = tmp_path / "new"
    restored(parts, data)
    with pytest.raises(BackupRefused, match="not empty"):
        restored(parts, data)
    for broken in (parts[:-1], parts[1:], [parts[0], *parts], [], [*parts[:2], *parts[3:]]):
        with pytest.raises(BackupDamaged):
            restored(broken, tmp_path / "other")
        assert list((tmp_path / "other").iterdir()) == []


def test_no_node_starts_with_what_a_restore_that_was_killed_has_left(
    parts: list[pb.BackupResponse], tmp_path: Path
) -> None:
    """Neither with half of it, nor, as a state of before is whole, empty."""
    left = []

    def killed(_: int) -> None:
        left.append(tmp_path / f"left-{len(left)}")
        shutil.copytree(tmp_path / "new", left[-1])

    restore(parts, tmp_path / "new", N1, killed)
    assert len(left) > 2
    for data in left:
        with pytest.raises(PointerDamaged):
            StateFolder(data)


@pytest.mark.parametrize(
    ("node", "address", "said"),
    [("n1", "host:7001", ""), ("N 1", "host:7001", "lower-case"), ("n1", "host", "give host:port")],
)
def test_a_name_that_no_node_can_have_and_an_address_without_a_port_are_refused(
    node: str, address: str, said: str
) -> None:
    assert said in fault(node, address)
    assert bool(fault(node, address)) is bool(said)


def test_a_backup_of_another_state_than_it_tells_is_refused(
    parts: list[pb.BackupResponse], tmp_path: Path
) -> None:
    with pytest.raises(BackupDamaged, match="its state has the digest"):
        restored(changed(parts, digest=bytes(16)), tmp_path / "new")
    with pytest.raises(BackupDamaged, match="which no log leads to"):
        restored(changed(parts, term=2**63), tmp_path / "new")


def test_a_backup_of_a_newer_version_is_refused_by_its_name(
    parts: list[pb.BackupResponse], tmp_path: Path
) -> None:
    newer = changed(with_checkpoint(parts, apply_version=999), version="99.0")
    with pytest.raises(AnotherVersion, match=r"of tarry 99\.0"):
        restored(newer, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
