"""Processors that need time for what they do, and links that need time for what they carry."""

from __future__ import annotations

import asyncio

import pytest

from tarry.replication.errors import TransferRefused
from tests.simulation.playing import EVERY_COMMAND_AN_ENTRY, elections, followers, scenario, write
from tests.simulation.world import LARGE, QUICK_SYNC_S, SimNode, World


def test_a_backlog_to_apply_does_not_silence_a_new_leader() -> None:
    """1.2 s of it, four times the time after which another is elected."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        await asyncio.gather(*(world.propose(leader) for _ in range(400)))
        world.set_slowness(50)
        for node in world.nodes:
            node.crash()
        for node in world.nodes:
            node.start(world.members)
        before = elections(world)
        await world.until_led()
        await asyncio.sleep(2)
        assert elections(world) == before + 1

    scenario(play, EVERY_COMMAND_AN_ENTRY)


def test_a_node_that_is_busy_for_longer_than_its_lease_does_not_serve_when_it_is_done() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        leader.processor.slowness = 1.0
        leader.processor.charge(2e6)
        await asyncio.sleep(1)
        assert (await world.until_led(but=leader.name)) is not leader
        await write(world, 3)

    scenario(play)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def stall(world: World, leader: SimNode, stall_s: float) -> asyncio.Future[bool]:
    """Begin a write that takes so long on the leader's disk; the future tells whether it is acknowledged."""
    world.at_once = 0.0  # in a thread: on the event loop it silences the leader, and is rare (AdaptiveWrites)
    leader.sync_s, leader.sync_spread = stall_s, (1.0, 1.0)
    return asyncio.ensure_future(world.propose(leader, 60))


@pytest.mark.parametrize("stall_s", [0.3, 0.6, 0.98])
def test_a_leader_whose_disk_stalls_for_less_than_a_second_stays_the_leader(stall_s: float) -> None:
    """Heartbeats need no disk; once they waited for the write, and each stall cost an election."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        before, began_s = elections(world), now_s()
        written = stall(world, leader, stall_s)
        await asyncio.sleep(0.01)
        leader.sync_s = QUICK_SYNC_S
        waits = asyncio.ensure_future(leader.driver._replica.next_turn())  # as whoever changes the members
        while not written.done():
            await asyncio.sleep(0.005)
            assert leader.driver.may_serve()
        assert await written
        await waits
        assert now_s() - began_s == pytest.approx(stall_s, abs=0.03)
        assert elections(world) == before

    scenario(play)


def test_a_leader_whose_disk_does_not_come_back_is_replaced() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        began_s, stalls_s = now_s(), world.settings.write_stall_ms_max / 1000
        written = stall(world, leader, 60)
        heartbeats, beaten_s = leader.driver.consensus.heartbeats, 0.0
        while world.leader() in (None, leader) and now_s() < began_s + 5:
            beaten_s = max(beaten_s, heartbeats._beaten_at / leader.clock.rate)
            await asyncio.sleep(0.005)
        beat_s = 2 * world.settings.heartbeat_ms / 1000
        assert stalls_s - beat_s < beaten_s - began_s <= stalls_s + 0.01
        assert now_s() - began_s < stalls_s + 1.5
        leader.crash()
        leader.sync_s = QUICK_SYNC_S
        leader.start(world.members)
        assert not await written

    scenario(play)


def test_a_transfer_waits_for_a_target_whose_answers_do_not_arrive_yet() -> None:
    """Its connection to the leader may come back later than the leader's to it."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        target = followers(world, leader)[0]
        world.network.cut(target.name, leader.name, noticed=False)
        transfer = asyncio.ensure_future(leader.driver.transfer(target.name, 10_000))
        for _ in range(2 * world.settings.transfer_silence_ms // 10):
            await asyncio.sleep(0.01)
            assert await world.propose(leader)  # meanwhile it serves
        world.network.heal()
        assert (await transfer).leader == target.name

    scenario(play)


def test_a_transfer_that_waits_for_its_target_begins_no_second_beside_another() -> None:
    """The first may be beyond the lease, and the second would bring that back."""

    async def play(world: World) -> None:
        leader = await world.until_led()
        silent, other = followers(world, leader)
        world.network.cut(silent.name, leader.name, noticed=False)
        waits = asyncio.ensure_future(leader.driver.transfer(silent.name, 10_000))
        await asyncio.sleep(0.05)
        transfer = leader.driver.consensus.transfer
        transfer.begin(other.name, leader.clock.monotonic_s() + 10, leader.clock.monotonic_s())
        world.network.heal()
        with pytest.raises(TransferRefused, match=f"busy: already going to {other.name}"):
            await waits
        assert transfer.number == 1

    scenario(play)


def test_a_transfer_to_a_target_that_does_not_answer_is_refused() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        target = followers(world, leader)[0]
        world.network.cut(target.name, leader.name, noticed=False)
        with pytest.raises(TransferRefused, match=f"{target.name} does not answer"):
            await leader.driver.transfer(target.name, 2_000)
        assert leader.driver.may_serve()

    scenario(play)


def test_bulk_over_slow_links_keeps_its_leader() -> None:
    async def play(world: World) -> None:
        before = elections(world)
        world.network.bytes_per_s = 2e6
        leader = await world.until_led()

        async def client(name: int) -> None:
            for n in range(15):
                command = b"%d/%d" % (name, n) + bytes(500_000)
                assert await asyncio.wait_for(leader.driver.propose(command), 60)

        await asyncio.gather(*map(client, range(4)))
        assert elections(world) == before

    scenario(play, LARGE)


def test_a_removal_that_waits_for_a_lost_answer_to_a_large_append_is_committed_in_the_end() -> None:
    """The append is taken for lost only after the time that a slow link could need for it."""

    async def play(world: World) -> None:
        world.large = True
        leader = await world.until_led()
        lagging, removed = followers(world, leader)
        world.network.cut(lagging.name, leader.name, noticed=False)
        assert await leader.driver.propose(b"large" + bytes(500_000))
        world.network.heal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(leader.driver.remove(removed.name), 0.5)
        assert removed.name not in leader.driver.status().members

    scenario(play, LARGE)
