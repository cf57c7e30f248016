"""Scenarios of messages that come twice, late, or too early: what each may count for."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tarry.proto.tarry_peer_pb2 import Append, Heartbeat, PeerMessage, TermNotice, VoteRequest
from tarry.replication.errors import TransferRefused
from tarry.replication.raft.guard.transfer import Phase
from tarry.replication.status import Dropped, Role
from tarry.replication.transport.envelope import Identity, Outbound
from tests.simulation.network import Weather
from tests.simulation.playing import EVERY_COMMAND_AN_ENTRY, elections, followers, isolate, scenario, write
from tests.simulation.world import SimNode, World


def cut(world: World, one: SimNode, others: list[SimNode]) -> None:
    for other in others:
        world.network.cut(one.name, other.name, noticed=False)
        world.network.cut(other.name, one.name, noticed=False)


def mend(world: World, one: SimNode, others: list[SimNode]) -> None:
    for other in others:
        world.network.mend(one.name, other.name)
        world.network.mend(other.name, one.name)


def test_i_a_vote_that_arrives_twice_elects_nobody() -> None:
    """Two of five stand for election, each with one vote besides its own."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        one, other, ones, others = followers(world, leader)
        leader.crash()
        await asyncio.sleep(0.31)  # until a vote may be given again
        world.network.weather = Weather(duplicate=1.0, duplicate_delay=0.01)
        cut(world, one, [other, others])
        cut(world, other, [ones])
        for candidate in (one, other):
            candidate.driver._replica.consensus.elections.campaign(None)
            candidate.driver._replica.wake.set()
        await asyncio.sleep(0.1)
        assert world.leader() is None

    scenario(play, names=5)


@pytest.mark.parametrize("at_once", [0.0, 1.0])
def test_a_candidate_whose_votes_come_when_its_term_is_over_leads_that_and_disturbs_nobody(
    at_once: float,
) -> None:
    """It lacks what has been committed since, and can commit nothing."""

    async def play(world: World) -> None:
        world.at_once = at_once  # by chance, a voter's message of the next term comes before the other's vote
        leader = await world.until_led()
        late, other, *voters = followers(world, leader)
        leader.crash()
        await asyncio.sleep(0.31)  # until a vote may be given again
        cut(world, late, [other])
        for voter in voters:
            world.network.hold(voter.name, late.name)
        for candidate in (late, other, other):  # the other's first is for the same term, and is refused
            candidate.driver._replica.consensus.elections.campaign(None)
            candidate.driver._replica.wake.set()
            await asyncio.sleep(0.02)
        assert await world.until_led() is other
        await write(world, 5)
        for voter in voters:
            world.network.let_go(voter.name, late.name)
        led_late = False
        for _ in range(50):
            await asyncio.sleep(0.001)
            state, others = late.driver.consensus.state, other.driver.consensus.state
            led_late |= state.role is Role.LEADER and state.term < others.term
            assert not late.driver.may_serve()
        assert led_late
        assert other.driver.may_serve()
        mend(world, late, [other])

    scenario(play, names=5)


def test_what_a_stranger_says_counts_for_nothing() -> None:
    """It has a place on the network, and a name that is no node's."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        shop = Outbound(Identity("tarry", "shop", 1, 1), leader.name, itertools.count(1))
        forged = (
            PeerMessage(term_notice=TermNotice(term=9)),
            PeerMessage(heartbeat=Heartbeat(term=9, sent=1.0)),
            PeerMessage(append=Append(term=9, prev_index=1)),
            PeerMessage(vote_request=VoteRequest(term=9, last_index=99, last_term=8)),
        )
        shop.begin()
        world.network.ends[leader.name].arrive(shop.seal([said.SerializeToString() for said in forged]))
        await write(world, 3)
        assert leader.driver.may_serve()
        assert leader.driver.dropped == {("shop", Dropped.STRANGER): len(forged)}

    assert elections(scenario(play)) == 1


def test_j_an_answer_to_an_earlier_leadership_does_not_count_for_a_later_one() -> None:
    """What it speaks of has been replaced meanwhile, where it comes from."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        witness, *rest = followers(world, leader)
        world.network.hold(witness.name, leader.name)
        cut(world, leader, rest)
        cut(world, witness, rest)
        lost = [asyncio.ensure_future(world.propose(leader)) for _ in range(30)]
        await asyncio.sleep(0.05)
        assert witness.journal.last_index == leader.journal.last_index  # as the held answers say
        spoken_of = witness.journal.last_index
        await world.until_led(but=leader.name)
        mend(world, leader, rest)
        mend(world, witness, rest)
        for _ in range(100):
            between = await world.until_led()
            await write(world, 1)
            if witness.journal.last_term == leader.journal.last_term == between.driver.status().term:
                break
        await between.driver.transfer(leader.name, 2_000)
        await world.until_led(but=between.name)
        world.network.cut(leader.name, witness.name, noticed=False)
        cut(world, leader, rest[1:])
        later = [asyncio.ensure_future(world.propose(leader)) for _ in range(40)]
        await asyncio.sleep(0.05)
        assert leader.journal.last_index >= spoken_of > witness.journal.last_index
        world.network.let_go(witness.name, leader.name)
        await asyncio.gather(*lost, *later)

    scenario(play, names=5, settings=EVERY_COMMAND_AN_ENTRY)


def test_answers_that_were_long_under_way_do_not_prolong_the_lease() -> None:
    """They are worth what they say of the moment in which the leader asked."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        rest = followers(world, leader)
        for node in rest:
            world.network.hold(node.name, leader.name)
        await asyncio.sleep(0.06)  # so that an answer is among what is held
        for node in rest:
            world.network.cut(leader.name, node.name, noticed=False)
        await asyncio.sleep(0.17)
        for node in rest:
            world.network.let_go(node.name, leader.name)
        await asyncio.sleep(0.01)
        isolate(world, leader, noticed=False)
        for _ in range(600):
            for node in rest:
                node.driver._replica.consensus._engine.retry_election_at(0.0)
                node.driver._replica.wake.set()
            world.checker.check_leases(world.nodes)
            await asyncio.sleep(0.001)
        assert world.leader() in rest

    scenario(play)


def test_an_answer_waits_until_the_disk_has_what_it_speaks_of() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        for node in followers(world, leader):
            node.sync_s = 0.1
        began = asyncio.get_running_loop().time()
        assert await world.propose(leader)
        assert asyncio.get_running_loop().time() - began > 0.05

    scenario(play)


def test_a_commit_takes_two_turns_and_the_answers_after_it_take_none() -> None:
    async def play(world: World) -> None:
        leader, loop = await world.until_led(), asyncio.get_running_loop()
        checked, turns = leader.driver.after_turn, list[float]()

        def counted() -> None:
            checked()
            turns.append(loop.time())

        leader.driver.after_turn = counted
        took = list[int]()
        for _ in range(40):
            await asyncio.sleep(0.033)
            turns.clear()
            assert await world.propose(leader)
            await asyncio.sleep(0.005)  # all have answered
            took.append(len(turns))
        assert sorted(took)[20] == 2  # in others heartbeats or notices of commits were due

    scenario(play)


def test_a_commit_waits_for_no_slower_follower() -> None:
    async def play(world: World) -> None:
        leader, loop = await world.until_led(), asyncio.get_running_loop()
        followers(world, leader)[0].sync_s = 0.1
        for _ in range(10):
            began = loop.time()
            assert await world.propose(leader)
            assert loop.time() - began < 0.005
            await asyncio.sleep(0.3)

    scenario(play)


def test_a_leader_rests_once_all_have_answered() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        await asyncio.sleep(0.3)
        sequences = [progress.flow.sequence for progress in leader.driver.consensus.progress.values()]
        await asyncio.sleep(1)
        assert sequences == [progress.flow.sequence for progress in leader.driver.consensus.progress.values()]

    scenario(play)


def test_heartbeats_of_a_dead_leader_that_come_again_do_not_hold_up_the_election() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        said: list[tuple[str, bytes]] = []
        carry = world.network.carry

        def keep(sender: str, receiver: str, frame: bytes) -> None:
            if sender == leader.name:
                said.append((receiver, frame))
            carry(sender, receiver, frame)

        world.network.carry = keep  # type: ignore[method-assign]
        await asyncio.sleep(0.2)
        leader.crash()
        for _ in range(20):
            await asyncio.sleep(0.1)
            for receiver, frame in said:
                world.network.ends[receiver].arrive(frame)
        assert world.leader() is not None

    scenario(play)


def test_a_follower_that_has_just_started_elects_nobody_while_its_leader_may_still_serve() -> None:
    """It may have promised so before, and does not remember."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        rest = followers(world, leader)
        await asyncio.sleep(0.1)
        isolate(world, leader, noticed=False)
        for node in rest:
            node.crash()
            node.start(world.members)
        for _ in range(400):
            for node in rest:
                node.driver._replica.consensus._engine.retry_election_at(0.0)
                node.driver._replica.wake.set()
            world.checker.check_leases(world.nodes)
            await asyncio.sleep(0.001)

    scenario(play)


def test_nobody_is_elected_while_a_quiet_leaders_lease_lasts() -> None:
    """It lasts longer than that of one with something to say, for the next heartbeat comes later."""

    async def play(world: World) -> None:
        for _ in range(5):
            await asyncio.sleep(2)
            leader = await world.until_led()
            beaten_at = leader.driver.consensus.heartbeats.confirmed_s
            for _ in range(400):
                await asyncio.sleep(0.001)
                if leader.driver.consensus.heartbeats.confirmed_s != beaten_at:
                    break
            isolate(world, leader, noticed=False)
            for _ in range(900):
                world.checker.check_leases(world.nodes)
                await asyncio.sleep(0.001)
            world.network.heal()
            await write(world, 1)

    scenario(play)


def test_one_lost_append_is_sent_again_once_though_every_later_one_is_refused() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        behind = followers(world, leader)[0]
        world.network.weather = Weather(delay_min=0.03, delay_max=0.03)
        world.network.cut(leader.name, behind.name, noticed=False)
        work = [asyncio.ensure_future(world.propose(leader))]
        await asyncio.sleep(0.002)
        world.network.mend(leader.name, behind.name)
        said, watch = [0], world.network._watch

        def count(sender: str, receiver: str, message: bytes) -> None:
            watch(sender, receiver, message)
            if receiver == behind.name:
                said[0] += len(PeerMessage.FromString(message).append.entries)

        world.network._watch = count
        for _ in range(50):
            work.append(asyncio.ensure_future(world.propose(leader)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*work)
        await asyncio.sleep(0.5)
        assert behind.journal.last_index == leader.journal.last_index
        assert said[0] < 3 * 51

    scenario(play, settings=EVERY_COMMAND_AN_ENTRY)


def test_a_new_leader_does_not_serve_before_its_own_first_entry_is_committed() -> None:
    """Until then it does not know which of the last leader's entries are."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        rest = followers(world, leader)
        assert await world.propose(leader)
        leader.crash()
        for node in rest:
            node.sync_s = 0.05
        await world.until_led()

    scenario(play)


def test_a_transfer_that_was_given_up_is_void_also_for_a_voter_that_has_been_restarted_since() -> None:
    """It has forgotten that it was told so, and the leader's lease still rests on it."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        target, third = followers(world, leader)
        world.network.weather = Weather(delay_min=0.005, delay_max=0.005)
        transfer = asyncio.ensure_future(leader.driver.transfer(target.name, 300))
        for _ in range(1_000):
            await asyncio.sleep(0.0001)
            if leader.driver.consensus.transfer.phase is Phase.TELLING:
                break
        await asyncio.sleep(0.007)
        world.network.hold(leader.name, target.name)  # which has heard of the transfer, and is to begin
        with pytest.raises(TransferRefused):
            await transfer
        await asyncio.sleep(0.1)
        assert leader.driver.may_serve()
        for sender, receiver in ((target, leader), (leader, third)):
            world.network.cut(sender.name, receiver.name, noticed=False)
        third.crash()
        third.start(world.members)
        await asyncio.sleep(0.02)
        world.network.let_go(leader.name, target.name)
        for _ in range(300):
            await asyncio.sleep(0.001)
            world.checker.check_leases(world.nodes)
        assert target.driver.status().term > leader.driver.status().term  # it did begin

    scenario(play)
