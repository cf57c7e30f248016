"""Whether a member without a journal may begin, by what the others say."""

from __future__ import annotations

import pytest

from tarry.proto.tarry_peer_pb2 import RecallResponse
from tarry.replication.driver.first_start import JournalLost, may_begin

THREE = {"n1", "n2", "n3"}
FIVE = THREE | {"n4", "n5"}
FRESH = RecallResponse(fresh=True, members=sorted(THREE))


def knows(*spoken: str, members: set[str] = FIVE) -> RecallResponse:
    return RecallResponse(spoken=spoken, members=sorted(members))


def test_a_node_alone_begins_and_so_does_a_majority_that_is_new() -> None:
    assert may_begin("n1", {"n1"}, {})
    assert not may_begin("n1", THREE, {})
    assert may_begin("n1", THREE, {"n2": FRESH})
    assert not may_begin("n1", FIVE, {"n2": FRESH})
    assert may_begin("n1", FIVE, {"n2": FRESH, "n3": FRESH})


@pytest.mark.parametrize("others", [{}, {"n2": FRESH}])
def test_whose_name_has_spoken_before_has_lost_its_journal_whatever_others_say(
    others: dict[str, RecallResponse],
) -> None:
    with pytest.raises(JournalLost, match="n3"):
        may_begin("n1", THREE, {**others, "n3": knows("n1", "n2")})


def test_who_comes_late_begins_once_nobody_is_left_who_may_have_heard_it() -> None:
    assert not may_begin("n3", THREE, {"n1": knows("n2")})
    assert may_begin("n3", THREE, {"n1": knows("n2"), "n2": knows("n1")})
    three = {"n1": knows("n2", "n3"), "n2": knows("n1", "n3"), "n3": knows("n1", "n2")}
    assert may_begin("n4", FIVE, three)
    assert not may_begin("n4", FIVE, {"n1": knows("n2"), "n2": knows("n1")})  # others may have led
    three["n1"] = knows("n2", "n3", "n5")  # which may have led, and counted its answers
    assert not may_begin("n4", FIVE, three)
    assert not may_begin("n4", FIVE, {**three, "n5": FRESH})
    assert may_begin("n4", FIVE, {**three, "n5": knows("n1")})


def test_one_of_two_begins_anew_for_the_other_has_all_and_elects_nobody_alone() -> None:
    two = {"n1", "n2"}
    assert may_begin("n2", two, {"n1": knows("n2", members=two)})
    with pytest.raises(JournalLost):
        may_begin("n2", two, {"n1": knows("n2", members=THREE)})


def test_no_founder_begins_beside_a_cluster_that_went_on_from_a_backup_or_alone() -> None:
    went_on = RecallResponse(members=["n1"], cluster_incarnation=7)
    with pytest.raises(JournalLost, match="n1 went on from a backup, or alone: n2 is no founder"):
        may_begin("n2", THREE, {"n1": went_on, "n3": FRESH})
