"""Named scenarios: each made pysyncobj lose, double, or stand still; none may here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tarry.proto.tarry_peer_pb2 import PeerFrame
from tarry.replication.errors import TransferRefused
from tarry.replication.raft.guard.transfer import Phase
from tarry.replication.status import Role
from tests.simulation.network import Weather
from tests.simulation.playing import EVERY_COMMAND_AN_ENTRY, elections, followers, isolate, scenario, write
from tests.simulation.world import SETTINGS, World


def test_a1_late_duplicates_and_a_crash_of_the_leader_lose_nothing() -> None:
    async def play(world: World) -> None:
        world.network.weather = Weather(duplicate=0.5, duplicate_delay=1.0, overtake=0.2)
        await write(world, 100)
        (await world.until_led()).crash()
        await write(world, 20)

    scenario(play)


def test_a2_lost_messages_on_a_long_way_and_a_crash_of_the_leader_lose_nothing() -> None:
    async def play(world: World) -> None:
        world.network.weather = Weather(delay_min=0.03, delay_max=0.03, loss=0.02)
        for _ in range(5):
            work = [world.propose(await world.until_led()) for _ in range(10)]
            await asyncio.gather(*work)
        (await world.until_led()).crash()
        await write(world, 5)

    scenario(play)


@pytest.mark.parametrize("noticed", [True, False])
def test_b_a_follower_that_comes_back_from_isolation_does_not_depose_the_leader(noticed: bool) -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        isolate(world, followers(world, leader)[0], noticed=noticed)
        await asyncio.sleep(5)
        world.network.heal()
        await asyncio.sleep(1)
        assert await world.until_led() is leader

    assert elections(scenario(play)) == 1


def test_b_a_follower_that_hears_nothing_but_is_heard_does_not_depose_the_leader() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        world.network.cut(leader.name, followers(world, leader)[0].name, noticed=False)
        await asyncio.sleep(5)
        await write(world, 5)

    assert elections(scenario(play)) == 1


@pytest.mark.parametrize("noticed", [True, False])
def test_c_an_isolated_leader_stops_serving_before_another_begins(noticed: bool) -> None:
    async def play(world: World) -> None:
        old = await world.until_led()
        isolate(world, old, noticed=noticed)
        loop, cut_at = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        while old.driver.may_serve():
            world.checker.check_leases(world.nodes)
            await asyncio.sleep(0.001)
        assert loop.time() - cut_at < 0.3
        new = await world.until_led(but=old.name)
        assert loop.time() - cut_at < 1.5
        assert await world.propose(new)
        assert not await world.propose(old)

    scenario(play)


def test_c_a_paused_leader_does_not_serve_when_it_wakes() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        leader.running.clear()
        await world.until_led(but=leader.name)
        await write(world, 5)
        assert not leader.driver.may_serve()
        leader.running.set()
        assert not leader.driver.may_serve()

    scenario(play)


def test_d_transfers_under_load_succeed_each_time_and_are_short() -> None:
    async def play(world: World) -> None:
        loop = asyncio.get_running_loop()
        load = [asyncio.ensure_future(world.client(loop.time() + 6)) for _ in range(8)]
        for _ in range(20):
            leader = await world.until_led()
            done = await leader.driver.transfer(None, 1000)
            assert done.leader != leader.name
            assert done.pause_ms < 100
            await asyncio.sleep(0.1)
        await asyncio.gather(*load)

    assert scenario(play).checker.sometimes["unknown"] == 0


def test_d_a_transfer_waits_for_what_is_under_way() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        target, third = followers(world, leader)
        third.crash()
        world.network.cut(leader.name, target.name, noticed=False)
        work = [asyncio.ensure_future(world.propose(leader)) for _ in range(8)]
        await asyncio.sleep(0.002)
        world.network.mend(leader.name, target.name)
        await leader.driver.transfer(target.name, 2000)
        assert all(await asyncio.gather(*work))

    scenario(play)


def test_d_the_pause_of_a_transfer_begins_when_no_more_proposals_are_taken() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        target = followers(world, leader)[0]
        world.network.cut(leader.name, target.name, noticed=False)
        await write(world, SETTINGS.transfer_lag_max + 1)
        transfer = asyncio.ensure_future(leader.driver.transfer(target.name, 60_000))
        await asyncio.sleep(1)
        assert await world.propose(leader)
        world.network.mend(leader.name, target.name)
        assert (await transfer).pause_ms < 500

    scenario(play)


def test_d_a_transfer_whose_messages_are_lost_is_given_up_and_the_leader_goes_on() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        target = followers(world, leader)[0]
        world.network.cut(leader.name, target.name, noticed=False)
        with pytest.raises(TransferRefused):
            await leader.driver.transfer(target.name, 400)
        assert await world.propose(await world.until_led())
        assert await world.until_led() is leader

    assert elections(scenario(play)) == 1


def test_d2_a_leader_that_transfers_does_not_answer_for_its_successor() -> None:
    """The third answers its heartbeats, and promises nothing against the election that it asked for."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        target, third = followers(world, leader)
        world.network.hold(target.name, third.name)
        transfer = asyncio.ensure_future(leader.driver.transfer(target.name, 3_000))
        while target.driver.status().role is not Role.CANDIDATE:
            if leader.driver.consensus.transfer.phase is Phase.CAMPAIGNING:
                world.network.cut(target.name, leader.name, noticed=False)
            await asyncio.sleep(0.0001)
        await asyncio.sleep(2 * SETTINGS.heartbeat_ms / 1000)
        world.network.cut(third.name, leader.name, noticed=False)
        world.network.let_go(target.name, third.name)
        assert await world.until_led(0.1) is target
        for _ in range(4):
            assert await world.propose(target)
        assert leader.driver.status().role is Role.LEADER
        assert not leader.driver.may_serve()
        await world.read(leader)
        await asyncio.gather(transfer, return_exceptions=True)

    scenario(play)


def test_g4_a_commit_index_beyond_the_log_counts_only_as_far_as_the_log_goes() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        alone = followers(world, leader)[0]
        await asyncio.sleep(0.1)
        alone.crash()
        alone.start(world.members)
        isolate(world, alone, noticed=False)
        assert alone.journal.commit_index <= alone.journal.durable_index
        await asyncio.sleep(1)
        assert alone.driver.status().role is Role.FOLLOWER

    scenario(play)


def test_h_hundreds_of_divergent_entries_are_replaced_within_a_second() -> None:
    async def play(world: World) -> None:
        old = await world.until_led()
        isolate(world, old, noticed=False)
        lost = [asyncio.ensure_future(world.propose(old)) for _ in range(400)]
        await asyncio.sleep(0.1)
        assert old.driver.status().last_index - old.driver.status().commit_index > 300
        await world.until_led(but=old.name)
        for _ in range(40):
            await asyncio.gather(*[world.propose(await world.until_led(but=old.name)) for _ in range(10)])
        world.network.weather = Weather(delay_min=0.001, delay_max=0.04)
        world.network.heal()
        await asyncio.sleep(1)
        assert old.driver.status().applied_index >= world.checker.most_acknowledged
        await asyncio.gather(*lost)

    scenario(play, settings=EVERY_COMMAND_AN_ENTRY)


def test_l16_a_member_that_has_raised_its_term_alone_is_taken_back() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        alone = followers(world, leader)[0]
        isolate(world, alone, noticed=False)
        alone.driver._replica.consensus.elections.campaign(None)
        alone.driver._replica.wake.set()
        await asyncio.sleep(0.1)
        assert alone.driver.status().term == 2
        world.network.heal()
        await asyncio.sleep(2)
        await write(world, 1)

    scenario(play)


def test_an_election_that_a_given_up_transfer_causes_late_cannot_overlap_the_leaders_lease() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        target, third = followers(world, leader)
        world.network.hold(target.name, third.name)
        transfer = asyncio.ensure_future(leader.driver.transfer(target.name, 300))
        while target.driver.status().role is not Role.CANDIDATE:
            if leader.driver._replica.consensus.transfer.phase is Phase.CAMPAIGNING:
                world.network.hold(target.name, leader.name)
                break
            await asyncio.sleep(0.0001)
        with pytest.raises(TransferRefused):
            await transfer
        assert target.driver.status().role is Role.CANDIDATE
        assert await world.until_led() is leader
        world.network.cut(third.name, leader.name, noticed=False)
        world.network.let_go(target.name, third.name)
        for _ in range(300):
            await asyncio.sleep(0.001)
            world.checker.check_leases(world.nodes)

    scenario(play)


def test_p_a_follower_answers_at_once_that_it_does_not_lead() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        begun = asyncio.get_running_loop().time()
        assert not await world.propose(followers(world, leader)[0])
        assert asyncio.get_running_loop().time() == begun

    scenario(play)


def test_q_whoever_waits_for_an_answer_gets_one_when_leadership_is_lost() -> None:
    async def play(world: World) -> None:
        old = await world.until_led()
        isolate(world, old, noticed=True)
        waiting = asyncio.ensure_future(world.propose(old, timeout_s=60))
        await asyncio.sleep(1)
        assert waiting.done()

    scenario(play)


def test_r_a_power_loss_of_all_right_after_an_acknowledgement_loses_nothing() -> None:
    async def play(world: World) -> None:
        for _ in range(10):
            assert await world.propose(await world.until_led())
            for node in world.nodes:
                node.crash()
            for node in world.nodes:
                node.start(world.members)

    scenario(play)


def test_t_a_follower_that_stands_still_is_sent_no_more_than_a_window() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        still = followers(world, leader)[0]
        still.running.clear()
        await asyncio.gather(*[world.propose(leader) for _ in range(300)])
        waiting = sum(
            message.ByteSize() for *_, message in still.driver._inbound if message.HasField("append")
        )
        assert waiting < 2 * world.settings.window_bytes_max

    scenario(play, settings=replace(SETTINGS, window_bytes_max=8 << 10))


def test_a_stale_frame_that_says_the_opposite_changes_nothing() -> None:
    """Everything ever said is said again, out of order."""

    async def play(world: World) -> None:
        said: list[tuple[str, bytes]] = []
        carry = world.network.carry

        def keep(sender: str, receiver: str, frame: bytes) -> None:
            said.append((receiver, frame))
            carry(sender, receiver, frame)

        world.network.carry = keep  # type: ignore[method-assign]
        await write(world, 20)
        await (await world.until_led()).driver.transfer(None, 1000)
        await write(world, 20)
        world.rng.shuffle(said)
        before = {node.name: node.driver.status().commit_index for node in world.nodes}
        for receiver, frame in said:
            assert PeerFrame.FromString(frame).receiver == receiver
            world.network.ends[receiver].arrive(frame)
        await asyncio.sleep(0.5)
        assert all(node.driver.status().commit_index >= before[node.name] for node in world.nodes)

    assert elections(scenario(play)) == 2
