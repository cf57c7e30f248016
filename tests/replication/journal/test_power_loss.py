"""Frames that wait for their flush: a kill leaves them, and a loss of power costs only them, noticed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.power_loss import (
    BOOT_ID_CHARACTERS_MAX,
    MARK,
    UNKNOWN_BOOT,
    PowerLost,
    boot_id,
    is_lost,
)
from tarry.replication.journal.records import Batch, JournalMisused, membership_payload
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tests.replication.journals import fill
from tests.simulation.disk import torn

SEGMENT_BYTES = 16 << 10


def opened(folder: Path, boot: str = "one", *, cut: bool = False) -> Journal:
    return Journal(WriteAheadLog(folder, segment_bytes=SEGMENT_BYTES, boot=boot, cut=cut), incarnation=7)


def put(journal: Journal, last: int, *, defer: bool = True) -> Batch:
    fill(journal, last)
    batch = journal.stage(defer=defer)
    assert batch is not None
    journal.write(batch)
    journal.mark_durable(batch)
    return batch


def flush(journal: Journal) -> None:
    journal.begin_flush()
    journal.flush()
    journal.mark_flushed()


def fail(_: int) -> None:
    raise OSError(5, "EIO")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is synced, in order."""
    names: list[str] = []

    def note(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return names


def test_the_mark_is_durable_before_the_first_write_without_a_sync(tmp_path: Path, synced: list[str]) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    synced.clear()
    put(journal, 4)
    assert synced == [f".{MARK}.new", tmp_path.name]
    put(journal, 5)
    assert len(synced) == 2
    assert (journal.durable_index, journal.flushed_index) == (5, 3)
    flush(journal)
    assert synced[2:] == [f"{1:016x}.wal"]
    assert journal.flushed_index == 5
    assert journal.is_marked
    journal.settle()
    assert synced[3:] == [tmp_path.name]
    assert not (tmp_path / MARK).exists()
    journal.close()


def test_no_mark_goes_while_something_waits_for_its_flush(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    journal.settle()
    assert (tmp_path / MARK).read_text() == "one"
    journal.close()


def test_a_term_a_vote_and_a_deletion_are_never_deferred(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 5, defer=False)
    assert put(journal, 6).deferred
    journal.set_term(9, "n2")
    assert not put(journal, 7).deferred
    assert journal.flushed_index == 7
    assert put(journal, 8).deferred
    journal.delete_from(8)
    assert journal.flushed_index == 7
    assert not put(journal, 9).deferred
    assert put(journal, 10).deferred
    journal.demand_flush()
    assert not put(journal, 11).deferred
    assert journal.flushed_index == 11
    journal.close()


def test_without_a_boot_id_nothing_is_deferred(tmp_path: Path) -> None:
    journal = opened(tmp_path, UNKNOWN_BOOT)
    put(journal, 3, defer=False)
    assert not put(journal, 4).deferred
    assert not (tmp_path / MARK).exists()
    journal.close()


def test_a_kill_leaves_all_and_the_next_start_writes_and_syncs_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 9)
    put(journal, 12)
    journal.close()
    written, write = [], os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: (written.append((at, len(data))), write(fd, data, at))[1]
    )
    again = opened(tmp_path)
    assert (again.last_index, again.flushed_index) == (12, 12)
    ((start, size_bytes),) = written
    assert start == 64  # all frames of the segment: any of them may be one that a failed sync let go
    assert size_bytes > 600
    assert not (tmp_path / MARK).exists()  # also where nothing is written for long from now on
    again.close()


def test_under_another_boot_id_a_journal_with_the_mark_is_not_opened(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    journal.close()
    assert not is_lost(tmp_path, "one")
    for other in ("two", UNKNOWN_BOOT):
        assert is_lost(tmp_path, other)
        with pytest.raises(PowerLost):
            opened(tmp_path, other)
    journal = opened(tmp_path)
    journal.settle()
    journal.close()
    assert not is_lost(tmp_path, "two")
    opened(tmp_path, "two").close()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_loss_of_power_leaves_opens_up_to_the_first_frame_that_is_not_whole(
    tmp_path: Path, seed: int
) -> None:
    """And goes on from there, also where later frames are whole."""
    draw, folder = random.Random(seed), tmp_path / "log"
    journal = opened(folder)
    put(journal, 5, defer=False)
    put(journal, 6)
    for last in range(7, 7 + draw.randrange(1, 20)):
        put(journal, last)
        if draw.random() < 0.1:
            flush(journal)
            flushed = {path.name: path.read_bytes() for path in folder.iterdir()}
    flushed_index, last = journal.flushed_index, journal.last_index
    if flushed_index == 5:
        flush(journal)
        flushed_index = last
        flushed = {path.name: path.read_bytes() for path in folder.iterdir()}
        for _ in range(5):
            put(journal, journal.last_index + 1)
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    journal.close()
    for name, data in torn(flushed, written, draw).items():
        (folder / name).write_bytes(data)
    left = opened(folder, "two", cut=True)
    kept = left.last_index
    assert flushed_index <= kept <= journal.last_index
    assert not put(left, kept + 3).deferred
    left.settle()
    left.close()
    again = opened(folder, "two")
    assert again.last_index == kept + 3
    again.close()


def test_a_segment_is_flushed_before_the_next_one_begins(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    while len(list(tmp_path.glob("*.wal"))) < 2:
        put(journal, journal.last_index + 1)
    journal.settle()
    assert not (tmp_path / MARK).exists()
    journal.close()


def test_nothing_is_written_behind_a_flush_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="EIO"):
        patched.setattr(os, "fdatasync", fail)
        journal.flush()
    journal.settle()
    assert (tmp_path / MARK).exists()
    with pytest.raises(JournalMisused):
        put(journal, 5)
    journal.close()


@pytest.mark.parametrize("by", ["flush", "write", "segment"])
def test_a_log_whose_sync_failed_is_not_opened_under_the_same_boot_id_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The kernel lets pages go that it could not write, and tells one process of it, once."""
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="EIO"):
        patched.setattr(os, "fdatasync", fail)
        if by == "flush":
            journal.flush()
        elif by == "write":
            put(journal, 5, defer=False)
        else:
            while True:
                put(journal, journal.last_index + 1)
    journal.close()
    assert is_lost(tmp_path, "one")
    with pytest.raises(PowerLost):
        opened(tmp_path)
    opened(tmp_path, cut=True).close()


def test_a_sync_that_fails_at_the_start_is_not_forgotten_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    journal.close()
    with monkeypatch.context() as patched, pytest.raises(OSError, match="EIO"):
        patched.setattr(os, "fdatasync", fail)
        opened(tmp_path)
    with pytest.raises(PowerLost):
        opened(tmp_path)


def test_a_failed_sync_that_no_deferred_frame_waits_for_costs_no_rejoin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="EIO"):
        patched.setattr(os, "fdatasync", fail)
        put(journal, 4, defer=False)
    journal.close()
    opened(tmp_path).close()


def test_a_flush_tells_nothing_of_entries_that_took_the_place_of_others_meanwhile(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 9)
    journal.begin_flush()
    journal.flush()  # in a thread, that is slow to tell
    journal.delete_from(5)
    batch = journal.stage(defer=True)
    assert batch is not None
    journal.write(batch)
    journal.mark_durable(batch)
    put(journal, 9)
    journal.mark_flushed()
    assert (journal.durable_index, journal.flushed_index) == (9, 4)
    flush(journal)
    assert journal.flushed_index == 9
    journal.close()


def test_a_change_of_members_is_never_deferred(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    assert put(journal, 4).deferred
    change = MembershipChange(remove=True, node="n2")
    journal.append(membership_payload(change), 5, 1)
    batch = journal.stage(defer=True)
    assert batch is not None
    assert not batch.deferred
    journal.close()


def test_a_write_waits_on_no_event_loop_while_the_mark_is_removed(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    fill(journal, 5)
    batch = journal.stage(defer=True)
    assert batch is not None
    assert not journal.is_long(batch)
    with journal._storage._marking:  # type: ignore[attr-defined]
        assert journal.is_long(batch)
    journal.close()


def test_what_begins_a_segment_waits_on_no_event_loop_for_the_sync_of_the_one_before(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, 3, defer=False)
    put(journal, 4)
    while not journal.needs_upkeep():
        put(journal, journal.last_index + 10)
    journal.upkeep()
    segments = len(list(tmp_path.glob("*.wal")))
    while True:
        fill(journal, journal.last_index + 10)
        batch = journal.stage(defer=True)
        assert batch is not None
        long = journal.is_long(batch)
        journal.write(batch)
        journal.mark_durable(batch)
        assert long == (len(list(tmp_path.glob("*.wal"))) > segments)
        if long:
            break
    journal.close()


def test_this_machine_tells_a_boot_id_and_a_file_that_is_not_there_none(tmp_path: Path) -> None:
    assert len(boot_id()) == 36
    assert boot_id(tmp_path / "none") == UNKNOWN_BOOT
    (tmp_path / "own").write_text(" 42 \n")
    assert boot_id(tmp_path / "own") == "42"


def test_a_boot_id_that_is_too_long_tells_nothing_for_its_end_may_be_what_differs(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("4" * BOOT_ID_CHARACTERS_MAX)
    assert boot_id(tmp_path / "own") == "4" * BOOT_ID_CHARACTERS_MAX
    (tmp_path / "own").write_text("4" * BOOT_ID_CHARACTERS_MAX + "2")
    assert boot_id(tmp_path / "own") == UNKNOWN_BOOT
