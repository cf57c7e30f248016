"""Files that rot on one node: found, mended, decided by nothing, and given to nobody."""

from __future__ import annotations

import asyncio

import pytest

from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import UNIT_BYTES
from tests.replication.commands import trim
from tests.simulation import whole_world
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.rot import FAR_RECORDS, INDICES, READY, RECORDS, rot_once, rotten, turn_bit_of_some
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import HOUR_MS, SCRUBBED_S, WholeWorld


def followers(world: WholeWorld, leader: WholeNode) -> list[WholeNode]:
    return [node for node in world.whole if node is not leader]


def test_a_new_leader_whose_ready_queues_have_rotted_has_them_mended_and_delivers() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        world.rotting = followers(world, leader)[0]
        await producer.schedule("a", soon(world, 200, 1_000))
        await asyncio.sleep(0.7)
        for path in sorted(world.rotting.data.glob(f"state-*/{READY}")):
            turn_bit_of_some(world, world.rotting, f"ready/{path.parent.name}/*.ready")
        await leader.driver.transfer(world.rotting.name, 2_000)
        await asyncio.sleep(1)
        assert world.rotting.core.damage.queues.repaired > 0

    assert scenario(play).checker.sometimes["set aside"] == 0


def test_a_consumer_comes_back_to_a_leader_whose_ready_queue_has_rotted_once_it_is_mended() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = world.rotting = await world.until_served()
        consumer = ModelConsumer(world, "slow", "a", "g1", thinks_s=4.0)
        task = asyncio.ensure_future(consumer.run())
        await producer.schedule("a", soon(world, 50, 300))
        await asyncio.sleep(0.5)
        assert consumer.unsettled.holding()
        queue = leader.core.machine.queues.of("a").queue
        assert turn_bit_of_some(world, leader, f"ready/{queue}/*.ready")
        for stream in list(leader.streams):
            stream.cancel()
        await asyncio.sleep(0.5)
        assert leader.core.damage.queues.repaired == 1
        assert world.leader() is leader
        await asyncio.sleep(5)
        task.cancel()

    assert scenario(play, consumers=False).checker.sometimes["set aside"] == 0


def test_an_index_that_rots_while_its_node_is_stopped_is_mended() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        world.rotting = followers(world, leader)[0]
        await producer.schedule("a", soon(world, 200, 4_000))
        await asyncio.sleep(0.2)
        world.rotting.take_checkpoint()
        await asyncio.sleep(0.2)
        world.rotting.crash()
        await asyncio.sleep(0.1)
        for _ in range(20):
            turn_bit_of_some(world, world.rotting, INDICES)
        world.rotting.start(world.members)
        await asyncio.sleep(2)
        assert world.rotting.core.damage.indices.repaired == 1

    assert scenario(play).checker.sometimes["set aside"] == 0


def test_a_node_that_sets_rotten_data_aside_and_rejoins_has_the_same_history_every_time() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        world.rotting = followers(world, leader)[0]
        await producer.schedule("a", soon(world, 200, 4_000))
        await asyncio.sleep(0.2)
        world.rotting.take_checkpoint()
        await asyncio.sleep(0.2)
        world.rotting.crash()
        await asyncio.sleep(0.1)
        path = turn_bit_of_some(world, world.rotting, RECORDS)
        assert path is not None
        path.unlink()  # what says so tells the path
        world.rotting.start(world.members)
        await asyncio.sleep(2)

    worlds = [scenario(play) for _ in range(2)]
    assert worlds[0].checker.sometimes["rejoined"] == worlds[0].checker.sometimes["set aside"] == 1
    assert worlds[0].history == worlds[1].history
    assert worlds[0].network.frames == worlds[1].network.frames


def test_nothing_rots_at_a_stopped_node_that_is_the_only_member_for_nobody_else_has_it() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = world.rotting = await world.until_served()
        (other,) = followers(world, leader)
        await leader.driver.remove(other.name)
        await producer.schedule("a", soon(world, 50, 1_000))
        leader.take_checkpoint()
        await asyncio.sleep(0.2)
        leader.crash()
        rot_once(world, FAR_RECORDS)
        assert world.counts["rotten"] == 0
        await world.mend()
        await asyncio.sleep(0.5)
        leader.crash()
        rot_once(world, FAR_RECORDS)
        assert world.counts["rotten"] == 1

    scenario(play, names=2)


def test_a_leader_whose_index_has_rotted_gives_its_state_only_once_it_is_mended() -> None:
    give_a_state(INDICES, others=True)


def test_a_leader_whose_ready_queue_has_rotted_gives_its_state_only_once_it_is_mended() -> None:
    give_a_state(READY, others=True)


def test_a_leader_gives_its_state_once_what_it_has_trimmed_of_a_ready_queue_is_mended() -> None:
    give_a_state(READY, others=True, trimmed=True)


def test_a_rotten_index_of_the_leader_is_given_to_nobody_while_none_can_mend_it() -> None:
    give_a_state(INDICES, others=False)


def test_a_rotten_ready_queue_of_the_leader_is_given_to_nobody_while_none_can_mend_it() -> None:
    give_a_state(READY, others=False)


def give_a_state(kind: str, *, others: bool, trimmed: bool = False) -> None:
    """To a follower that lacks what the journals hold; ``others``: the giver reaches who can mend it."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        world.rotting = leader
        behind, third = followers(world, leader)
        behind.crash()
        await producer.schedule("a", soon(world, 50, 1_000))
        for _ in range(20):
            await producer.schedule("b", soon(world, 5, 10_000))
        await asyncio.sleep(1)
        queue = leader.core.machine.queues.of("a")
        if trimmed:
            await leader.driver.propose(trim([queue.queue], [queue.units]))
            await asyncio.sleep(0.2)
        for node in (leader, third):
            node.take_checkpoint()
        await asyncio.sleep(0.2)
        if not others:
            third.crash()
        of_queue = f"ready/{queue.queue}/*.ready" if kind == READY else kind
        assert turn_bit_of_some(
            world, leader, of_queue, UNIT_BYTES
        )  # what lies behind may be mended from memory
        behind.start(world.members)
        await asyncio.sleep(3)
        if not others:
            assert world.checker.sometimes["snapshot installed"] == 0
            leader.crash()
            third.start(world.members)
            await asyncio.sleep(3)
        assert world.checker.sometimes["snapshot installed"] == 1
        if not others:
            leader.start(world.members)
        await (await world.until_served()).driver.transfer(behind.name, 2_000)

    repaired = scenario(play).rotting.core.damage.repaired
    assert repaired == 1 or not others


def test_all_that_is_on_disks_is_looked_at_once_a_step_of_the_scrub_that_has_yet_to_come_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, finding = list[int](), rotten

    def look(machine: Machine) -> int:
        looks.append(finding(machine))
        return looks[-1]

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        world.rots, world.rotting = True, followers(world, leader)[0]
        await producer.schedule("a", [world.true_ms() + HOUR_MS * hour for hour in range(1, 25)])
        world.schedules_far = True  # and nothing of it is waited for
        await asyncio.sleep(0.5)
        for node in world.whole:
            node.take_checkpoint()
        await asyncio.sleep(0.5)
        monkeypatch.setattr(whole_world, "rotten", look)
        assert turn_bit_of_some(world, world.rotting, FAR_RECORDS) or turn_bit_of_some(
            world, world.rotting, RECORDS
        )

    world = scenario(play)
    assert world.rotting.core.damage.repaired
    assert 0 < sum(map(bool, looks)) <= world._scrubbed_s() / SCRUBBED_S
