"""Who the members are and where they listen: by the log, and by the configuration for founders alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import membership_payload
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.raft.membership import Membership, Origin, counts
from tests.replication.journals import fill, sync

FOUNDERS = {"n1": "old1:1", "n2": "old2:1", "n3": "old3:1"}
CONFIGURED = {"n1": "new1:1", "n2": "new2:1", "n3": "new3:1"}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(WriteAheadLog(tmp_path / "journal", segment_bytes=1 << 20), incarnation=7)


def change(journal: Journal, node: str, address: str = "") -> None:
    payload = membership_payload(MembershipChange(node=node, address=address, remove=not address))
    journal.append(payload, journal.last_index + 1, 1)


def test_the_configuration_says_where_founders_listen(journal: Journal) -> None:
    Membership(journal, FOUNDERS)
    assert Membership(journal, CONFIGURED).current() == CONFIGURED


def test_a_member_added_again_under_its_name_listens_where_the_log_says(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    change(journal, "n2")
    assert members.current() == {"n1": "new1:1", "n3": "new3:1"}
    assert members.named()["n2"] == "new2:1"  # it may yet lead, and must be answered
    change(journal, "n2", "moved:1")
    assert members.current()["n2"] == members.named()["n2"] == "moved:1"


def test_what_the_log_said_of_addresses_outlives_its_entries(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    fill(journal, 2)
    change(journal, "n2")
    change(journal, "n2", "moved:1")
    fill(journal, 9)
    sync(journal)
    journal.set_commit_index(9)
    journal.compact(7, members.at(7))
    assert journal.membership_changes == []
    assert Membership(journal, CONFIGURED).current() == {**CONFIGURED, "n2": "moved:1"}


def test_a_member_that_was_removed_has_no_journal_until_it_is_added_with_one(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    known = []
    for incarnation in (7, 0, 8):
        added = MembershipChange(node="n4", address="new4:1", incarnation=incarnation)
        journal.append(membership_payload(added), journal.last_index + 1, 1)
        known.append(members.incarnations())
        change(journal, "n4")
        known.append(members.incarnations())
    assert known == [{"n4": 7}, {}, {}, {}, {"n4": 8}, {}]


def leave(journal: Journal, node: str) -> None:
    payload = membership_payload(MembershipChange(node=node, remove=True, returns=True))
    journal.append(payload, journal.last_index + 1, 1)


def test_peers_are_those_named_those_configured_and_those_who_have_left_to_come_back(
    journal: Journal,
) -> None:
    members = Membership(journal, {**CONFIGURED, "n9": "nine:1"})
    fill(journal, 2)
    change(journal, "n4", "four:1")
    change(journal, "n5", "five:1")
    change(journal, "n6", "six:1")
    change(journal, "n4")
    leave(journal, "n5")
    leave(journal, "n6")
    change(journal, "n6")  # by an operator, for good
    fill(journal, 12)
    assert members.peers() == {"n1", "n2", "n3", "n4", "n5", "n6", "n9"}  # one of them may yet lead
    sync(journal)
    journal.set_commit_index(12)
    journal.compact(11, members.at(11))
    assert journal.membership_changes == []
    assert members.peers() == {"n1", "n2", "n3", "n5", "n9"}
    change(journal, "n5", "five:2")
    change(journal, "n5")
    journal.set_commit_index(14)
    fill(journal, 16)
    sync(journal)
    journal.set_commit_index(16)
    journal.compact(15, members.at(15))
    assert members.peers() == {"n1", "n2", "n3", "n9"}


def test_a_change_cut_from_the_log_gives_the_address_back(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    fill(journal, 2)
    change(journal, "n2", "moved:1")
    assert members.current()["n2"] == "moved:1"
    journal.delete_from(3)
    assert members.current() == CONFIGURED


def test_where_a_node_says_that_it_listens_counts_until_the_log_is_as_good_as_its_own(
    journal: Journal,
) -> None:
    members = Membership(journal, CONFIGURED)
    fill(journal, 4)
    change(journal, "n2")
    for address, end in (("worse:1", (0, 9)), ("equal:1", (1, 5)), ("", (3, 9))):
        members.hear_from("n2", address, end)
        assert members.named()["n2"] == "new2:1"
    members.hear_from("n2", "moved:1", (1, 7))
    members.hear_from("n2", "before:1", (1, 6))  # by a process that was removed and runs on
    members.hear_of({"n2": "third:1"})
    assert members.named() == {**CONFIGURED, "n2": "moved:1"}
    assert "n2" not in members.voters()  # an address makes no member
    change(journal, "n2", "moved:1")
    change(journal, "n2")
    change(journal, "n2", "again:1")
    assert members.current()["n2"] == members.named()["n2"] == "again:1"


def test_an_address_that_was_heard_gives_way_to_one_of_a_better_log(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    members.hear_from("n4", "stranger:1", (3, 9))
    assert members.named() == CONFIGURED
    members.hear_of({"n4": "heard:1"})
    assert members.named()["n4"] == "heard:1"
    for term, address in ((1, "four:1"), (2, "four:2")):
        members.hear_from("n4", address, (term, 9))
        assert members.named()["n4"] == address
    assert members.current() == CONFIGURED


def test_who_was_added_has_its_address_from_the_log_and_a_founder_has_none(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    assert [members.added_at(node) for node in ("n2", "n4")] == ["", ""]
    change(journal, "n2")
    change(journal, "n2", "moved:1")
    assert members.added_at("n2") == "moved:1"
    change(journal, "n2")
    assert members.added_at("n2") == ""


def test_who_was_added_counts_with_the_journal_that_it_was_taught_into(journal: Journal) -> None:
    members = Membership(journal, CONFIGURED)
    fill(journal, 2)
    for node, incarnation in (("n4", 44), ("n5", 55), ("n2", 0)):
        added = MembershipChange(node=node, address=node, incarnation=incarnation)
        journal.append(membership_payload(added), journal.last_index + 1, 1)
    change(journal, "n5")
    assert members.voters() == {"n1": 0, "n2": 0, "n3": 0, "n4": 44}
    assert members.votes("n1")
    assert not members.votes("n4")  # this journal is another
    assert not members.votes("n5")
    fill(journal, 9)
    sync(journal)
    journal.set_commit_index(9)
    journal.compact(8, members.at(8))
    assert journal.membership_changes == []
    assert members.voters() == {"n1": 0, "n2": 0, "n3": 0, "n4": 44}


def test_a_founder_counts_with_any_journal_but_a_newcomers(journal: Journal) -> None:
    assert counts(Origin(7), 0)
    assert not counts(Origin(7, joined=True), 0)
    assert counts(Origin(7, joined=True), 7)
    assert not counts(Origin(7), 8)
    members = Membership(journal, FOUNDERS)
    journal.join()
    assert not members.votes("n1")
