"""A survivor's journal that goes on alone: what it says, what is written, and when it is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tarry.node.assembly import Core
from tarry.node.config import NodeConfig
from tarry.node.edge.forwarder import Forwarder
from tarry.node.ledger.went_alone import RECOVERED
from tarry.node.process import DataDamaged, serve
from tarry.node.recovery.recover_alone import (
    RecoveryRefused,
    Survey,
    go_alone,
    may_do_without,
    recover_alone,
    survey,
)
from tarry.node.recovery.rejoin import Phase, Rejoining, phase
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_peer_pb2 import LeaveRequest, MemberList, MembershipChange, RecallResponse
from tarry.replication.clock import SystemClock
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.power_loss import boot_id, is_lost
from tarry.replication.journal.records import entry_payload, membership_payload
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.membership import Membership
from tarry.replication.settings import ReplicationSettings
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.replication.transport.peer_transport import PeerTransport
from tarry.wheel.id_gaps import gap_of
from tests.node.recovery.test_restore import raises
from tests.replication.journals import fill, sync

THREE = {"n1": "a:1", "n2": "b:1", "n3": "c:1"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Entries 1 to 6 of term 3, committed up to 5; entry 4 says the time."""
    journal = Journal(WriteAheadLog(tmp_path / "journal"), incarnation=7)
    journal.set_members(MemberList(addresses=THREE))
    journal.set_term(3, "n2")
    fill(journal, 3, term=3)
    ack = command_codec.encode(log_pb.AckCommand(group="g", now_ms=1_234))
    journal.append(entry_payload(log_pb.LogEntry(commands=[ack]).SerializeToString()), 4, 3)
    fill(journal, 6, term=3)
    journal.set_commit_index(5)
    sync(journal)
    yield journal
    journal.close()


def test_it_says_what_the_survivor_has_and_until_when(journal: Journal) -> None:
    found = survey("n1", Membership(journal, THREE), journal)
    assert found == Survey("n1", ("n2", "n3"), 5, 1_234, 6, 1_234, last_term=3)


def test_a_survivor_is_alone_in_a_new_incarnation(journal: Journal, tmp_path: Path) -> None:
    go_alone(journal, survey("n1", Membership(journal, THREE), journal), 171)
    journal.close()
    again = Journal(WriteAheadLog(tmp_path / "journal"), incarnation=8)
    membership = Membership(again, THREE)
    assert membership.current() == {"n1": "a:1"}
    assert membership.votes("n1")
    assert membership.peers() >= {"n2", "n3"}  # which may ask to be added again
    assert again.cluster_incarnation == 171
    assert (again.term, [again.term_at(index) for index in (6, 7, 8, 9)]) == (4, [3, 4, 4, 4])
    assert (again.last_index, again.commit_index) == (9, 9)  # it is a majority by itself
    # so 0.2.0, which knows of none, ends at that entry, and no id is given again
    assert raises(again) == (levels.INCARNATIONS, gap_of(171))
    assert again.incarnation == 7
    with pytest.raises(RecoveryRefused, match="the only member"):
        survey("n1", membership, again)
    again.close()


@pytest.mark.parametrize(("last_ms", "begins_ms"), [(-5, 0), (1_234, 1_234), (1 << 60, DUE_MS_MAX)])
def test_an_incarnation_begins_at_a_time_that_no_replica_refuses(
    journal: Journal, last_ms: int, begins_ms: int
) -> None:
    """The survivor's last entry may have told a time for which every replica has refused it."""
    go_alone(journal, replace(survey("n1", Membership(journal, THREE), journal), last_ms=last_ms), 171)
    (raised,) = log_pb.LogEntry.FromString(journal.entry(journal.last_index)[0][1:]).commands
    assert command_codec.decode(raised).now_ms == begins_ms


def test_one_that_is_no_voter_is_refused(journal: Journal) -> None:
    journal.append(membership_payload(MembershipChange(remove=True, node="n1")), 7, 3)
    with pytest.raises(RecoveryRefused, match="recover one of n2, n3"):
        survey("n1", Membership(journal, THREE), journal)


def test_it_is_refused_where_those_that_answer_are_a_majority() -> None:
    there = RecallResponse(spoken=["n1", "n3"])
    assert may_do_without("n1", THREE, {"n2": there}, 0) == ["n2"]
    assert may_do_without("n1", THREE, {}, 0) == []
    for without in (
        RecallResponse(spoken=["n1"], fresh=True),
        RecallResponse(spoken=["n3"]),
        RecallResponse(spoken=["n1"], cluster_incarnation=9),
    ):
        assert may_do_without("n1", THREE, {"n2": without}, 0) == []
    five = {**THREE, "n4": "d:1", "n5": "e:1"}
    assert may_do_without("n1", five, {"n2": there}, 0) == []
    assert may_do_without("n1", five, {"n2": there, "n4": there}, 0) == ["n2", "n4"]


def test_members_that_refuse_to_say_what_they_have_are_there() -> None:
    there = RecallResponse(spoken=["n1", "n3"])
    assert may_do_without("n1", THREE, {}, 0, ["n3"]) == ["n3"]
    five = {**THREE, "n4": "d:1", "n5": "e:1"}
    assert may_do_without("n1", five, {}, 0, ["n3"]) == []
    assert may_do_without("n1", five, {"n2": there}, 0, ["n3"]) == ["n2", "n3"]


def test_a_node_without_a_journal_and_one_that_rejoins_are_refused(tmp_path: Path) -> None:
    config = NodeConfig(node="n1", data=tmp_path, listen="127.0.0.1:1", members={"n1": "127.0.0.1:1"})
    with pytest.raises(RecoveryRefused, match="has no journal"):
        recover_alone(config, lambda _: True, 171, SystemClock())
    (tmp_path / "rejoining").write_text("leaving")
    with pytest.raises(RecoveryRefused, match="set aside"):
        recover_alone(config, lambda _: True, 171, SystemClock())


def test_the_word_of_one_that_lost_its_power_does_not_count() -> None:
    there = RecallResponse(spoken=["n1", "n3"])
    assert may_do_without("n1", THREE, {"n2": there}, 0, own=0) == []
    assert may_do_without("n1", THREE, {"n2": there, "n3": there}, 0, own=0) == ["n2", "n3"]


def without_power(tmp_path: Path, members: dict[str, str]) -> NodeConfig:
    """A journal of 6 entries, the last of which was not flushed under an earlier boot id."""
    log = WriteAheadLog(tmp_path / "journal", boot="before")
    journal = Journal(log, incarnation=7)
    journal.set_members(MemberList(addresses=members))
    journal.set_term(3, "n1")
    fill(journal, 5, term=3)
    sync(journal)
    fill(journal, 6, term=3)
    batch = journal.stage(defer=True)
    assert batch is not None
    assert batch.deferred
    journal.write(batch)
    journal.close()
    return NodeConfig(node="n1", data=tmp_path, listen="127.0.0.1:1", members=members)


def test_one_that_lost_its_power_goes_on_with_what_is_left_once_it_is_told_to(tmp_path: Path) -> None:
    config = without_power(tmp_path, {"n1": "127.0.0.1:1"})
    found = recover_alone(config, lambda _: False, 171, SystemClock())
    assert found is None
    assert is_lost(tmp_path / "journal", boot_id())
    told: list[Survey] = []
    recover_alone(config, lambda survey: not told.append(survey), 171, SystemClock())
    assert [(one.others, one.last_index, one.lost_power) for one in told] == [((), 6, True)]
    assert not is_lost(tmp_path / "journal", boot_id())
    again = Journal(WriteAheadLog(tmp_path / "journal", boot=boot_id()), incarnation=8)
    assert (again.cluster_incarnation, again.last_index) == (171, 7)
    again.close()


async def opened(config: NodeConfig) -> None:
    """Open a node's data as a start does."""
    settings = ReplicationSettings()
    transport = PeerTransport(settings=settings, rng=random.Random())
    with closing(Journal(open_log(config.data / "journal", boot=boot_id()), incarnation=1)) as journal:
        Core(config, SystemClock(), journal, transport, settings).machine.close()


def test_a_node_whose_recovery_was_not_finished_is_marked_no_more_once_it_starts_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger would say that it went on alone, and reconciling give up what its cluster has."""
    members = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:9"}
    config = NodeConfig(node="n1", data=tmp_path, listen="127.0.0.1:1", members=members)
    with closing(Journal(open_log(tmp_path / "journal", boot=boot_id()), incarnation=7)) as journal:
        journal.set_members(MemberList(addresses=config.members))
        journal.set_term(3, "n1")
        fill(journal, 5, term=3)
        sync(journal)

    def killed(*_: object) -> None:
        raise InterruptedError

    for breaks_off in (True, False):
        with monkeypatch.context() as patched:
            if breaks_off:
                patched.setattr("tarry.node.recovery.recover_alone.go_alone", killed)
            with nullcontext() if not breaks_off else pytest.raises(InterruptedError):
                recover_alone(config, lambda _: True, 171, SystemClock())
        assert (tmp_path / RECOVERED).exists()
        asyncio.run(opened(config))
        assert (tmp_path / RECOVERED).exists() is not breaks_off


def test_a_node_that_stands_alone_says_that_it_lost_its_power(tmp_path: Path) -> None:
    config = without_power(tmp_path, {"n1": "127.0.0.1:1"})
    with pytest.raises(DataDamaged, match="lost its power before all of"):
        serve(config)


async def test_data_is_set_aside_only_once_the_others_have_let_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = without_power(tmp_path, {"n1": "127.0.0.1:1", "n2": "127.0.0.1:9"})
    asked: list[bool] = []

    async def ask(_: Rejoining, method: str, address: str, raw: bytes, timeout_s: float) -> Any:
        asked.append((tmp_path / "journal").exists() and phase(tmp_path) is None)
        assert LeaveRequest.FromString(raw).incarnation == 7
        return (None, None) if len(asked) == 2 else ("UNAVAILABLE: nobody leads", None)

    monkeypatch.setattr(Rejoining, "_ask", ask)
    monkeypatch.setattr("tarry.node.recovery.rejoin.RETRY_S", 0)
    forwarder = Forwarder(None, [], {})
    await Rejoining(config, forwarder).leave_without_power()
    await forwarder.close()
    assert asked == [True, True]
    assert phase(tmp_path) is Phase.JOINING
    assert [path.name for path in (tmp_path / "damaged-1").iterdir()] == ["journal"]
