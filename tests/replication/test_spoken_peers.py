"""Who has spoken to a node is noted on its disk before it counts, and told to who has no journal."""

from __future__ import annotations

from tarry.proto.tarry_peer_pb2 import MemberList
from tarry.replication.blocking import in_thread
from tarry.replication.raft.membership import Membership
from tarry.replication.replica import Replica
from tarry.replication.spoken_peers import SpokenPeers
from tests.replication.journals import fill, sync
from tests.replication.lone_consensus import Lone


def spoken_peers(lone: Lone) -> SpokenPeers:
    membership = Membership(lone.journal, lone.members)
    parts = lone.journal, membership, lone.consensus, lone.clock, lone.settings
    return SpokenPeers(Replica("n1", *parts, run_blocking=in_thread, applied=0))


async def test_who_speaks_is_noted_once_that_is_on_disk() -> None:
    lone = Lone()
    sync(lone.journal)
    own = spoken_peers(lone)
    own.note("n2")
    assert list(own.recall().spoken) == ["n2"]
    assert not own.noted("n2")
    sync(lone.journal)
    assert own.noted("n2")
    lone.start()
    assert spoken_peers(lone).noted("n2")
    assert not spoken_peers(lone).noted("n3")


async def test_a_node_is_new_as_long_as_it_has_neither_voted_nor_got_an_entry_and_is_a_member() -> None:
    lone = Lone()
    own = spoken_peers(lone)
    assert own.recall().fresh
    lone.journal.set_term(1, "n2")
    assert not own.recall().fresh
    other = Lone()
    fill(other.journal, 2, term=0)
    assert not spoken_peers(other).recall().fresh
    newcomer = Lone()
    newcomer.members = {"n2": "n2:1", "n3": "n3:1"}
    newcomer.journal.set_members(MemberList(addresses=newcomer.members))
    assert not spoken_peers(newcomer).recall().fresh


async def test_by_a_journal_from_before_that_was_noted_all_founders_may_have_spoken() -> None:
    lone = Lone()
    sync(lone.journal)  # with nobody noted: as it was written then
    assert list(spoken_peers(lone).recall().spoken) == []
    lone.start()
    assert list(spoken_peers(lone).recall().spoken) == ["n1", "n2", "n3"]


async def test_a_newcomer_belongs_to_the_first_incarnation_that_takes_it_in_and_others_to_their_own() -> None:
    newcomer = Lone()
    newcomer.journal.join()
    own = spoken_peers(newcomer)
    assert own.cluster == "tarry"
    assert not own.adopts("tarry")
    assert not own.adopts("other#00000000000000ab")
    assert not own.adopts("tarry#ab")  # that is not how it is written
    assert own.adopts("tarry#00000000000000ab")
    assert own.cluster == "tarry#00000000000000ab"
    assert own.is_former("tarry")
    assert not own.is_former("other")
    fill(newcomer.journal, 2)
    assert not own.adopts("tarry#00000000000000cd")
    taught = Lone()
    taught.journal.join()
    fill(taught.journal, 2)
    assert not spoken_peers(taught).adopts("tarry#00000000000000ab")
    founder = spoken_peers(Lone())
    assert not founder.adopts("tarry#00000000000000ab")
    assert founder.is_former("tarry#00000000000000ab")
