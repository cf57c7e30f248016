"""Scenarios of snapshots and of members that come and go."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tarry.proto.tarry_peer_pb2 import Appended, HeartbeatReply, PeerMessage, VoteRequest
from tarry.replication.driver.serve_snapshot import serve
from tarry.replication.errors import MembershipRefused, NotLeader
from tarry.replication.raft.membership import Origin
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.status import Dropped
from tests.simulation import virtual_loop
from tests.simulation.checker import Checker
from tests.simulation.playing import elections, followers, isolate, scenario, write
from tests.simulation.world import SETTINGS, SimNode, World


def test_e1_a_deposed_leaders_own_entries_are_neither_applied_nor_acknowledged() -> None:
    async def play(world: World) -> None:
        old = await world.until_led()
        isolate(world, old, noticed=False)
        lost = [asyncio.ensure_future(world.propose(old)) for _ in range(10)]
        await asyncio.sleep(0.02)
        assert old.driver.status().last_index > old.driver.status().commit_index
        await world.until_led(but=old.name)
        await write(world, 60)
        for node in followers(world, old):
            node.take_checkpoint()
        await asyncio.sleep(0.1)
        world.network.heal()
        assert not any(await asyncio.gather(*lost))

    world = scenario(play)
    assert world.checker.sometimes["snapshot installed"] == 1


def test_e3_a_snapshot_that_arrives_damaged_is_refused_and_fetched_again() -> None:
    async def play(world: World) -> None:
        world.network.chunks_to_damage = 1
        await leave_behind(world)

    world = scenario(play)
    assert world.network.chunks_to_damage == 0
    assert world.checker.sometimes["snapshot installed"] == 1


def test_e2_a_snapshot_that_arrives_after_the_entries_it_stands_for_is_dropped() -> None:
    async def play(world: World) -> None:
        world.network.chunk_s = 0.2
        away = await leave_behind(world)
        leader = await world.until_led()
        third = next(node for node in followers(world, leader) if node is not away)
        await asyncio.sleep(0.3)  # the snapshot is under way
        await leader.driver.transfer(third.name, 1_000)  # which still has all entries
        await write(world, 5)
        await asyncio.sleep(0.2)
        assert away.machine.applied_index >= world.checker.most_acknowledged - 1
        await asyncio.sleep(2)
        await write(world, 5)

    assert scenario(play).checker.sometimes["snapshot installed"] == 0


def test_e4_a_leader_stays_leader_while_its_only_follower_takes_a_snapshot() -> None:
    async def play(world: World) -> None:
        away = await leave_behind(world)
        leader = await world.until_led()
        third = next(node for node in followers(world, leader) if node is not away)
        await asyncio.sleep(0.1)
        third.crash()
        await write(world, 5)
        assert await world.until_led() is leader

    assert elections(scenario(play)) == 1


def test_a_replica_that_takes_a_snapshot_still_knows_whom_it_has_promised_what() -> None:
    async def play(world: World) -> None:
        away = await leave_behind(world)
        leader, before = await world.until_led(), away.driver.consensus
        for _ in range(50_000):
            await asyncio.sleep(0.0001)
            promised = replace(before.elections.contact)
            if away.driver.consensus is not before:
                break
        assert away.driver.consensus is not before
        assert away.driver.consensus.elections.contact == promised
        assert promised.leader == leader.name

    scenario(play)


def test_a_state_whose_stream_breaks_off_goes_on_where_it_stopped() -> None:
    async def play(world: World) -> None:
        world.network.chunk_s = 0.2
        away = await leave_behind(world)
        while world.network.chunks == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        isolate(world, away, noticed=True)
        await asyncio.sleep(1)
        assert world.checker.sometimes["snapshot installed"] == 0
        world.network.heal()
        await asyncio.sleep(3)
        assert world.network.chunks == 3  # 1 MiB and a little

    assert scenario(play).checker.sometimes["snapshot installed"] == 1


def test_u_a_removed_member_does_not_disturb_the_others() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        removed = followers(world, leader)[0]
        await leader.driver.remove(removed.name)
        await asyncio.sleep(5)
        await write(world, 5)
        await leader.driver.add(removed.name, "again", 2000)

    assert elections(scenario(play)) == 1


def test_only_a_leader_knows_that_a_node_has_left() -> None:
    """Another one may not know that it was added again since."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        other, gone = followers(world, leader)
        await leader.driver.remove(gone.name)
        await write(world, 5)
        assert gone.name not in other.driver.status().members
        with pytest.raises(NotLeader):
            await other.driver.leave(gone.name)
        await leader.driver.leave(gone.name)
        await leader.driver.add(gone.name, "again", 2000)

    scenario(play)


def test_nobody_is_told_to_have_left_before_it_is_committed() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        others = followers(world, leader)
        for other in others:
            world.network.hold(other.name, leader.name)
        gone = others[0].name
        asked = [asyncio.ensure_future(leader.driver.leave(gone)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert gone not in leader.driver.status().members
        assert not any(one.done() for one in asked)
        again = asyncio.ensure_future(leader.driver.leave(gone))
        await asyncio.sleep(0.05)
        assert not again.done()
        for other in others:
            world.network.let_go(other.name, leader.name)
        await asyncio.gather(again, *asked, return_exceptions=True)
        assert not again.exception()
        await leader.driver.add(gone, "again", 2000)

    scenario(play)


def test_k_an_isolated_leader_cannot_remove_its_peers_until_it_is_its_own_majority() -> None:
    async def play(world: World) -> None:
        old = await world.until_led()
        isolate(world, old, noticed=True)
        work = [asyncio.ensure_future(old.driver.remove(node.name)) for node in followers(world, old)]
        results = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(result, Exception) for result in results)
        assert not await world.propose(old)
        await world.until_led(but=old.name)

    scenario(play)


def test_every_member_is_replaced_one_by_one_and_nothing_is_lost() -> None:
    async def play(world: World) -> None:
        for number in range(4, 7):
            leader = await world.until_led()
            newcomer = SimNode(world, f"n{number}")
            world.nodes.append(newcomer)
            newcomer.start(dict(leader.driver.status().members))
            await leader.driver.add(newcomer.name, "new", 3000)
            world.members[newcomer.name] = "new"
            if leader.name == f"n{number - 3}":
                await leader.driver.transfer(newcomer.name, 2000)
                leader = await world.until_led()
            await leader.driver.remove(f"n{number - 3}")
            gone = world.node(f"n{number - 3}")
            gone.crash()
            world.nodes.remove(gone)
            del world.members[gone.name]
            await write(world, 10)
        assert set((await world.until_led()).driver.status().members) == {"n4", "n5", "n6"}

    scenario(play)


def test_a_voter_with_an_emptied_disk_does_not_vote_and_comes_back_as_a_newcomer() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        victim, behind = followers(world, leader)
        isolate(world, behind, noticed=True)
        await write(world, 20)
        for node in (leader, victim):
            node.crash()
        victim.lose_disk()
        world.network.heal()
        victim.start(world.members)
        await asyncio.sleep(3)
        assert world.leader() is None
        leader.start(world.members)
        await asyncio.sleep(1)
        await write(world, 5)

    world = scenario(play)
    assert world.checker.sometimes["start refused"] == world.checker.sometimes["rejoined"] == 1


def test_a_voter_whom_only_the_one_that_is_away_has_heard_waits_for_its_word() -> None:
    async def whole() -> None:
        world = World(seed=1)
        n1, n2, n3 = world.nodes
        world.network.hold(n2.name, n3.name)

        async def run() -> None:
            world.start()
            await write(world, 5)
            world.network._held.clear()
            for node in (n1, n2):
                node.crash()
            n2.lose_disk()
            n2.start(world.members)
            await asyncio.sleep(3)
            assert n2.alive
            assert world.leader() is None
            assert list(n2.driver.waits_for) == ["n1"]
            n1.start(world.members)
            await asyncio.sleep(1)
            assert world.checker.sometimes["start refused"] == 1
            await write(world, 5)

        await world.during(run())

    virtual_loop.run(whole())


def test_what_a_node_says_first_is_heeded_once_it_is_on_disk_that_it_has_spoken() -> None:
    async def whole() -> None:
        world = World(seed=1)
        _, late, hearer = world.nodes
        world.network.hold(late.name, hearer.name)

        async def run() -> None:
            world.start()
            await write(world, 5)
            assert late.name not in hearer.journal.spoken
            request = PeerMessage(vote_request=VoteRequest(term=1))
            hearer.driver._receive(late.name, [request], Origin(late.journal.incarnation))
            assert late.name in hearer.journal.spoken
            assert late.name not in hearer.journal.durable_spoken
            assert late.name not in {peer for peer, *_ in hearer.driver._inbound}
            await asyncio.sleep(0.1)
            assert late.name in hearer.journal.durable_spoken
            world.network.let_go(late.name, hearer.name)
            await write(world, 5)

        await world.during(run())

    virtual_loop.run(whole())


def test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts() -> None:
    begin_anew_as_a_newcomer(added=True)


def test_a_founder_with_an_emptied_disk_that_is_started_as_a_newcomer_does_not_count() -> None:
    begin_anew_as_a_newcomer(added=False)


def begin_anew_as_a_newcomer(*, added: bool) -> None:
    """Empty the disk of a member that has acknowledged what the others in reach lack."""

    async def play(world: World) -> None:
        founders, leader = dict(world.members), await world.until_led()
        victim, behind, gone = SimNode(world, "n4"), *followers(world, leader)
        if added:
            world.nodes.append(victim)
            victim.start(founders)
            await leader.driver.add(victim.name, "new", 3000)
            world.members[victim.name] = "new"
            await leader.driver.remove(gone.name)
            gone.crash()
            world.nodes.remove(gone)
            del world.members[gone.name]
            await asyncio.sleep(1)
        else:
            victim = gone
        isolate(world, behind, noticed=True)
        await write(world, 20)
        leader.crash()
        victim.lose_disk()
        world.network.heal()
        others = {name: at for name, at in founders.items() if name != victim.name}
        victim.start(others)
        await asyncio.sleep(5)
        assert world.leader() is None
        leader.start(founders)
        await write(world, 5)
        await asyncio.sleep(1)
        assert (await world.until_led()).driver.dropped[victim.name, Dropped.JOURNAL]
        victim.crash()
        world.rejoin(victim)
        await asyncio.sleep(3)
        assert victim.phase is None
        await write(world, 5)

    scenario(play)


def test_what_comes_late_of_a_replaced_disk_leaves_its_successor_heard() -> None:
    """Found by seed 1509: who began anew, and heard the old disk last, was deaf to the new one for good."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        replaced, third = followers(world, leader)
        world.network.hold(replaced.name, leader.name)
        await write(world, 5)
        late = world.network.take(replaced.name, leader.name)
        assert late
        replaced.lose_disk()
        world.rejoin(replaced)
        await asyncio.sleep(3)
        assert replaced.phase is None
        await leader.driver.transfer(replaced.name, 1_000)
        leader.crash()
        leader.start(world.members)
        await asyncio.sleep(1)
        for frame in late:
            world.network.carry(replaced.name, leader.name, frame)
        await asyncio.sleep(0.1)
        third.crash()
        await write(world, 5)

    scenario(play)


@pytest.mark.parametrize("terms_ago", [0, 1])
def test_a_newcomer_is_not_taken_for_the_journal_that_answered_before_it_was_added(terms_ago: int) -> None:
    async def play(world: World) -> None:
        leader, newcomer = await world.until_led(), SimNode(world, "n4")
        consensus = leader.driver._replica.consensus
        consensus.progress[newcomer.name].flow.sequence = 3  # it was a member in this term
        term, end = consensus.state.term, leader.journal.last_index + 1
        adding = asyncio.ensure_future(leader.driver.add(newcomer.name, "new", 3000))
        await asyncio.sleep(0.1)
        sequence = 3 if terms_ago == 0 else 1_000  # of another leader, which may have sent it more
        late = Appended(term=term - terms_ago, sequence=sequence, next_index=end, success=True)
        leader.driver._spoken_peers.note(newcomer.name)
        leader.driver._receive(newcomer.name, [PeerMessage(appended=late)], Origin(9, joined=True))
        await asyncio.sleep(0.1)
        assert consensus.state.match_index(newcomer.name) == 0
        world.nodes.append(newcomer)
        newcomer.start(dict(world.members))
        await adding
        world.members[newcomer.name] = "new"
        await write(world, 5)

    scenario(play)


def test_no_heartbeat_is_answered_by_another_journal_than_the_members() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        member = followers(world, leader)[0].name
        reply = PeerMessage(heartbeat_reply=HeartbeatReply(term=leader.driver._replica.consensus.state.term))
        leader.driver._receive(member, [reply], Origin(9, joined=True))
        await asyncio.sleep(0.1)
        assert leader.driver.dropped[member, Dropped.JOURNAL] == 1

    scenario(play)


def test_a_change_of_members_that_cannot_be_made_is_refused_and_changes_nothing() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        other, change = followers(world, leader)[0].name, leader.driver
        with pytest.raises(MembershipRefused, match=f"{other} is a member"):
            await change.add(other, "elsewhere", 3000)
        with pytest.raises(MembershipRefused, match="cannot remove itself"):
            await change.remove(leader.name)
        with pytest.raises(MembershipRefused, match="n9 is no member"):
            await change.remove("n9")
        adding = asyncio.ensure_future(change.add("n9", "nowhere", 1000))
        await asyncio.sleep(0.1)
        with pytest.raises(MembershipRefused, match="another change of members is running"):
            await change.remove(other)
        with pytest.raises(MembershipRefused, match="caught up"):
            await adding
        assert set(change.status().members) == {"n1", "n2", "n3"}

    scenario(play)


def test_a_newcomer_whose_disk_is_emptied_while_it_learns_is_not_added_for_what_it_had() -> None:
    async def play(world: World) -> None:
        founders, leader = dict(world.members), await world.until_led()
        newcomer = SimNode(world, "n4")
        world.nodes.append(newcomer)
        newcomer.start(founders)
        adding = asyncio.ensure_future(leader.driver.add(newcomer.name, "new", 3000))
        await asyncio.sleep(1)
        newcomer.lose_disk()
        newcomer.start(founders)
        with pytest.raises(MembershipRefused, match="caught up"):
            await adding
        assert leader.driver.dropped[newcomer.name, Dropped.JOURNAL]
        newcomer.crash()
        world.nodes.remove(newcomer)

    scenario(play, replace(SETTINGS, learner_lag_max=-1))  # it learns for as long as it may


@pytest.mark.parametrize("names", [1, 2, 3, 5])
def test_a_new_cluster_begins_with_a_majority_and_the_others_whenever_they_come(names: int) -> None:
    async def whole() -> None:
        world = World(seed=1, names=names)

        async def run() -> None:
            for node in world.nodes[: names // 2 + 1]:
                await asyncio.sleep(0.5)
                node.start(world.members)
            begun = asyncio.get_running_loop().time()
            await write(world, 5)
            assert asyncio.get_running_loop().time() - begun < 3
            for node in world.nodes[names // 2 + 1 :]:
                node.start(world.members)
            await write(world, 5)
            for node in world.nodes:
                node.lose_disk()
            world.checker = Checker()  # all that was promised is gone
            world.network._watch = world.checker.on_said
            for node in world.nodes:
                node.start(world.members)
            await world.until_led()

        await world.during(run())

    virtual_loop.run(whole())


@pytest.mark.parametrize("configured", [False, True])
def test_a_member_that_was_away_when_the_leader_was_added_follows_it(configured: bool) -> None:
    async def play(world: World) -> None:
        led = await world.until_led()
        away = followers(world, led)[0]
        newcomer, added = await with_newcomer(world, led, away)
        away.crash()
        await led.driver.transfer(newcomer.name, 2000)
        world.network.heal()
        away.start({**world.members, **(added if configured else {})})
        await write(world, 5)

    scenario(play)


def test_a_member_that_was_away_when_another_was_added_helps_to_elect_it() -> None:
    async def play(world: World) -> None:
        led = await world.until_led()
        away, other = followers(world, led)
        newcomer, _ = await with_newcomer(world, led, away)
        await asyncio.sleep(0.3)
        for one, another in ((led, other), (other, led)):
            world.network.cut(one.name, another.name, noticed=True)
        proposed = asyncio.ensure_future(world.propose(led))
        await asyncio.sleep(0.06)
        assert newcomer.journal.last_index > other.journal.last_index > away.journal.last_index
        led.crash()
        await proposed
        world.network.heal()
        assert await world.until_led(but=led.name) is newcomer  # no other can win: it has most

    scenario(play)


def test_a_member_added_again_elsewhere_is_elected_by_one_that_was_away_then() -> None:
    async def play(world: World) -> None:
        led, moved, _ = await with_moved(world)
        led.crash()
        world.network.heal()
        assert await world.until_led(but=led.name) is moved
        await write(world, 5)

    scenario(play)


def test_a_member_added_again_elsewhere_is_followed_by_one_that_was_away_then() -> None:
    async def play(world: World) -> None:
        founders = dict(world.members)
        led, moved, away = await with_moved(world)
        away.crash()
        await led.driver.transfer(moved.name, 2000)
        world.network.heal()
        await write(world, 20)
        away.start(founders)
        await asyncio.sleep(1)
        assert await world.until_led() is moved
        assert away.driver.status().applied_index == moved.driver.status().applied_index

    scenario(play)


async def with_moved(world: World) -> tuple[SimNode, SimNode, SimNode]:
    """Remove a member and add it elsewhere while another is away; return the leader, both of them."""
    leader = await world.until_led()
    moved, away = followers(world, leader)
    await leader.driver.remove(moved.name)
    moved.lose_disk()
    world.network.addresses[moved.name] = "elsewhere:1"
    moved.start({node: at for node, at in world.members.items() if node != moved.name})
    await asyncio.sleep(0.1)
    isolate(world, away, noticed=False)
    await leader.driver.add(moved.name, "elsewhere:1", 200)
    world.members[moved.name] = "elsewhere:1"
    assert moved.name not in away.driver.status().members
    return leader, moved, away


async def with_newcomer(world: World, leader: SimNode, away: SimNode) -> tuple[SimNode, dict[str, str]]:
    """Add a node while another is away; return it, and where it is."""
    newcomer = SimNode(world, "n4")
    world.nodes.append(newcomer)
    newcomer.start(world.members)
    isolate(world, away, noticed=True)
    await leader.driver.add(newcomer.name, "new", 3000)
    return newcomer, {newcomer.name: "new"}


def test_a_replica_without_a_source_refuses_to_serve_a_snapshot() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        with pytest.raises(SnapshotFailed):
            async for _ in serve(leader.driver._replica, None):
                pass

    scenario(play)


async def leave_behind(world: World) -> SimNode:
    """A follower comes back for which the leader's journal no longer reaches back."""
    leader = await world.until_led()
    away = followers(world, leader)[0]
    away.crash()
    await write(world, 60)
    leader.take_checkpoint()
    await write(world, 1)
    away.start(world.members)
    return away
