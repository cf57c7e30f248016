"""Restore, recovery of a survivor and marks, the power lost at each write: all before, or all after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry.client.local.cluster import free_ports
from tarry.node.config import NodeConfig
from tarry.node.ledger.went_alone import marked
from tarry.node.recovery import state_replacement
from tarry.node.recovery.recover_alone import recover_alone
from tarry.node.recovery.restore import restore
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.tarry_peer_pb2 import MemberList
from tarry.replication.clock import SystemClock
from tarry.replication.driver.install_snapshot import StateMismatch, finish_installing
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.raft.membership import Membership
from tarry.replication.snapshot.state_folder import PointerDamaged, StateFolder
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.recovery.test_restore import N1, parts  # noqa: F401 - a fixture
from tests.power import Power, losses
from tests.replication.journals import fill, sync
from tests.simulation.disk import unsynced


def started(data: Path) -> tuple[bytes, int]:
    """Open a data folder as a start does; return the state's digest and the journal's cluster.

    Raises PointerDamaged, StateMismatch.
    """
    with closing(Journal(open_log(data / "journal"), incarnation=1)) as journal:
        folder = StateFolder(data)
        with closing(Machine(folder.path, MachineSettings(), from_start=journal.first_index == 1)) as machine:
            finish_installing(journal, machine.applied_index)
            return (machine.digest() if machine.applied_index else b""), journal.cluster_incarnation


def test_power_lost_at_any_write_of_a_restore_leaves_nothing_that_starts_or_all_of_it(
    parts: list[pb.BackupResponse],  # noqa: F811
    tmp_path: Path,
) -> None:
    digest = parts[0].manifest.digest

    def play(data: Path, _: Power) -> None:
        restore(parts, data, N1)

    seen = set()
    for data, was_lost in losses(tmp_path / "lost", lambda data: data.mkdir(parents=True), play):
        try:
            found = started(data)
        except (PointerDamaged, StateMismatch):  # no journal yet, and the operator is told
            seen.add("refused")
            assert was_lost
        else:
            assert found in ((b"", 0), (digest, 171))
            assert was_lost or found[0]
            seen.add("whole" if found[0] else "empty")
    assert seen == {"empty", "refused", "whole"}


@pytest.fixture
def members() -> Iterator[dict[str, str]]:
    yield {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(3), 1)}


def test_power_lost_at_any_write_of_a_recovery_leaves_a_member_as_before_or_one_that_is_alone(
    tmp_path: Path, members: dict[str, str]
) -> None:
    def begin(data: Path) -> None:
        data.mkdir(parents=True)
        StateFolder(data)
        with closing(Journal(open_log(data / "journal"), incarnation=7)) as journal:
            journal.set_members(MemberList(addresses=members))
            journal.set_term(3, "n2")
            fill(journal, 6, term=3)
            sync(journal)
        with closing(Machine(data / "state-1", MachineSettings())):
            pass

    def play(data: Path, _: Power) -> None:
        config = NodeConfig(node="n1", data=data, listen=members["n1"], members=members)
        assert recover_alone(config, lambda _: True, 171, SystemClock()) is not None

    seen = set()
    for data, was_lost in losses(tmp_path, begin, play):
        with unsynced(), closing(Journal(open_log(data / "journal"), incarnation=1)) as journal:
            alone = journal.cluster_incarnation == 171
            current = Membership(journal, members).current()
            assert current.keys() == ({"n1"} if alone else members.keys())
            assert (journal.last_index, journal.term) == ((9, 4) if alone else (6, 3))
        assert alone == (marked(data, 171 if alone else 0) is not None)  # what the ledger tells
        assert was_lost or alone
        seen.add(alone)
    assert seen == {False, True}


def test_power_lost_at_any_write_of_a_mark_leaves_it_or_not(tmp_path: Path) -> None:
    seen = {
        state_replacement.is_marked(data)
        for data, _ in losses(
            tmp_path, lambda data: data.mkdir(parents=True), lambda data, _: state_replacement.mark(data)
        )
    }
    assert seen == {False, True}
