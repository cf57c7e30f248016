"""Scenarios of whole nodes: what once went wrong, or might."""

from __future__ import annotations

import asyncio
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.replication.state_machine.checkpoint import CheckpointStore
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tests.simulation.disk import DiskFailed
from tests.simulation.edge import StreamEnded
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.network import Weather
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import MEASURING_MS, WholeWorld


def frontier(node: WholeNode) -> int:
    return node.core.machine.frontier_ms


async def led_by_a_wrong_clock(world: WholeWorld, ahead_ms: int) -> WholeNode:
    """A node whose clock goes wrong, and that is then given leadership."""
    old = await world.until_served()
    heir = next(node for node in world.whole if node is not old)
    heir.wall.ahead_ms = ahead_ms
    await asyncio.sleep(1)
    await old.driver.transfer(heir.name, 2_000)
    assert await world.until_served() is heir
    return heir


def test_what_a_crashed_leader_released_and_had_not_delivered_is_delivered_once() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        due_ms = world.true_ms() + 500
        await producer.schedule("a", [due_ms] * 50)
        await asyncio.sleep(0.46)
        assert sum(queue.units for queue in leader.core.machine.queues) == 50
        assert world.true_ms() < due_ms
        leader.crash()

    world = scenario(play)
    assert world.ledger.counts == {"deliveries": 100}


def test_a_call_ends_with_its_node_and_reads_nothing_of_its_torn_files() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader, went_on = await world.until_served(), []

        async def slow(raw: bytes, context: object) -> bytes:
            await asyncio.sleep(0.3)
            went_on.append(raw)
            return raw

        asked = asyncio.ensure_future(leader.edge._answer("Slow", b"x", slow))
        await asyncio.sleep(0.1)
        leader.crash()
        with pytest.raises(StreamEnded):
            await asked
        await asyncio.sleep(1)
        assert went_on == []

    scenario(play)


@pytest.mark.parametrize("ahead_ms", [-5_000, 5_000])
def test_a_new_leader_whose_clock_is_wrong_is_neither_early_nor_repeats_a_release(ahead_ms: int) -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 100, 6_000))
        heir = await led_by_a_wrong_clock(world, ahead_ms)
        before = frontier(heir)
        await asyncio.sleep(1)
        assert before <= frontier(heir) <= world.true_ms() + 150

    scenario(play)


@pytest.mark.parametrize("ahead_ms", [-5_000, 5_000])
def test_a_leader_whose_clock_is_wrong_counts_no_delay_from_too_early(ahead_ms: int) -> None:
    """It goes by what heartbeats told, which lies behind by their travel; the next leader knows better."""

    async def play(world: WholeWorld, _: ModelProducer) -> None:
        heir = await led_by_a_wrong_clock(world, ahead_ms)
        behind_ms = []
        for _ in range(200):
            await asyncio.sleep(0.005)
            behind_ms.append(world.true_ms() - heir.core.time.now_ms())
            assert heir.core.time.latest_ms() >= world.true_ms()
        assert max(behind_ms) > 0

    scenario(play)


def test_a_leader_whose_clock_is_wrong_does_not_follow_it_once_the_network_is_too_slow_to_tell() -> None:
    async def play(world: WholeWorld, _: ModelProducer) -> None:
        heir = await led_by_a_wrong_clock(world, 30)
        await asyncio.sleep(0.5)
        world.network.weather = Weather(delay_max=0.06)
        for _ in range(600):
            await asyncio.sleep(0.005)
            assert heir.core.time.now_ms() <= world.true_ms() + MEASURING_MS

    scenario(play, consumers=False)


@pytest.mark.parametrize("ahead_ms", [-60_000, 60_000])
@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_a_clock_that_jumps_while_one_follower_alone_is_in_reach_stops_nothing(
    whose: str, ahead_ms: int
) -> None:
    """Of two clocks nobody can say which is wrong; but the leader knows what time it was before. Nor does
    the next leader forget, to which one whose clock stays wrong transfers leadership."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        follower, third = (node for node in world.whole if node is not leader)
        third.crash()
        await asyncio.sleep(0.5)
        {"leader": leader, "follower": follower}[whose].wall.ahead_ms = ahead_ms
        for heir in (follower, leader):
            begun = world.true_ms()
            await producer.schedule("a", soon(world, 100, 500))
            while world.ledger.missing():
                await asyncio.sleep(0.05)
                assert world.true_ms() - begun < 3_000
            await (await world.until_served()).driver.transfer(heir.name, 2_000)
            assert await world.until_served() is heir

    scenario(play)


@pytest.mark.parametrize("readings", range(6))
def test_a_leaders_clock_that_jumps_between_two_of_its_readings_brings_nothing_early(readings: int) -> None:
    async def play(world: WholeWorld, _: ModelProducer) -> None:
        leader = await world.until_served()
        await asyncio.sleep(0.5)
        leader.wall.jump(60_000, readings)
        for _ in range(100):
            await asyncio.sleep(0.005)
            assert leader.core.time.now_ms() <= world.true_ms() + MEASURING_MS

    scenario(play, consumers=False)


def test_messages_wait_no_longer_once_a_leader_with_a_wrong_clock_can_put_it_right() -> None:
    """Of two clocks in reach nobody can say which is wrong; the third settles it."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        old = await world.until_served()
        heir, third = (node for node in world.whole if node is not old)
        third.crash()
        heir.wall.ahead_ms = -60_000
        await asyncio.sleep(0.5)
        await old.driver.transfer(heir.name, 2_000)
        await world.until_served()
        await producer.schedule("a", soon(world, 100, 500))
        third.start(world.members)
        begun = world.true_ms()
        while world.ledger.missing():
            await asyncio.sleep(0.05)
            assert world.true_ms() - begun < 3_000

    scenario(play)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_of_two_clocks_that_differ_a_first_leader_takes_neither_if_a_third_comes(
    ahead_ms: int,
) -> None:
    async def begin(world: WholeWorld) -> None:
        wrong, right, late = world.whole
        wrong.wall.ahead_ms = ahead_ms
        for node in (wrong, right):
            node.start(world.members)
        await asyncio.sleep(1.5)  # one of the two is elected, and waits
        assert world.leader() is not None
        late.start(world.members)

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        assert abs(leader.core.time.now_ms() - world.true_ms()) < 50
        await producer.schedule("a", soon(world, 100, 500))

    scenario(play, begin=begin)


def test_a_backlog_of_hours_is_flushed_when_the_cluster_wakes_up() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 100, 3_600_000))
        world.asleep_ms += 2 * 3_600_000
        begun = world.true_ms()
        while world.ledger.missing():
            await asyncio.sleep(0.05)
            assert world.true_ms() - begun < 5_000

    scenario(play)


def test_a_planned_transfer_in_the_middle_of_deliveries_repeats_nothing() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 120, 4_000))
        for _ in range(4):
            await asyncio.sleep(0.7)
            leader = await world.until_served()
            in_flight.append(len(world.ledger.given.keys() - world.ledger.settled))
            await leader.driver.transfer(None, 2_000)

    in_flight: list[int] = []
    world = scenario(play)
    assert max(in_flight) > 0, "nothing was in flight at any of the transfers"
    assert world.ledger.counts == {"deliveries": 240}
    assert world.ledger.settled


def test_a_follower_far_behind_takes_the_whole_state_and_can_lead_with_it() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        behind = next(node for node in world.whole if node is not leader)
        behind.crash()
        for _ in range(20):
            await producer.schedule("b", soon(world, 5, 5_000))
        for node in world.whole:
            node.take_checkpoint()
        await asyncio.sleep(0.2)
        behind.start(world.members)
        await asyncio.sleep(2)
        assert world.checker.sometimes["snapshot installed"] == 1
        await leader.driver.transfer(behind.name, 2_000)

    scenario(play)


def test_a_state_whose_retries_have_been_trimmed_can_be_taken_and_goes_on() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        behind = next(node for node in world.whole if node is not leader)
        behind.crash()
        nacking = asyncio.ensure_future(ModelConsumer(world, "nacks", "a", "g1", nacks=1.0).run())
        for _ in range(30):
            await producer.schedule("a", soon(world, 10, 300))
        await asyncio.sleep(2)
        nacking.cancel()
        queues = leader.core.machine.queues
        for _ in range(100):
            if trimmed := any(queue.group and queue.first == queue.units > 0 for queue in queues):
                break
            await asyncio.sleep(0.1)
        assert trimmed, "no retry queue has been trimmed to its end"
        for node in world.whole:
            node.take_checkpoint()
        await asyncio.sleep(0.1)
        behind.start(world.members)
        await asyncio.sleep(3)
        assert world.checker.sometimes["snapshot installed"] == 1
        nacking = asyncio.ensure_future(ModelConsumer(world, "nacks", "a", "g1", nacks=1.0).run())
        await producer.schedule("a", soon(world, 10, 300))
        await asyncio.sleep(2)
        nacking.cancel()

    scenario(play)


def test_a_power_loss_of_all_right_after_an_acknowledgement_loses_nothing() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        for _ in range(5):
            await world.until_served()
            await producer.schedule("b", soon(world, 20, 1_000))
            world.crash_all()
            await asyncio.sleep(0.1)
            for node in world.nodes:
                node.start(world.members)

    scenario(play)


def test_a_leader_that_knows_nothing_of_the_one_before_marks_what_it_gives_out_again() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", [world.true_ms()] * 50)
        while len(world.ledger.given) < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        world.crash_all()

    world = scenario(play)
    assert world.ledger.counts["marked"] > 0


def test_what_a_leader_delivers_while_nobody_hears_it_is_marked_when_it_comes_again() -> None:
    """It goes on for as long as its lease, but no further than the others know that it may have gone."""

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        consumers = [ModelConsumer(world, f"lost-{name}", "a", name) for name in ("g1", "g2")]
        tasks = [asyncio.ensure_future(consumer.run()) for consumer in consumers]
        await producer.schedule("a", [world.true_ms() + 500] * 50)
        await asyncio.sleep(0.46)
        for other in world.nodes:
            if other is not leader:
                world.network.cut(leader.name, other.name, noticed=False)
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        assert 0 < len(world.ledger.given) < 100
        assert await world.until_led(but=leader.name)
        world.network.heal()

    world = scenario(play, consumers=False)
    assert world.ledger.counts["marked"] > 0


def test_crowds_that_come_due_while_nobody_leads_are_delivered_whole_by_replicas_that_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replicas have read them ahead, and one of them has crashed since."""
    costs = {"release._AT_ONCE_COST": 40, "release._AHEAD_COST": 256, "release._TAKE_COST": 8}
    for name, value in {**costs, "hour_wheel._LARGE_UNITS": 0}.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        crowds = [world.true_ms() + 30_000] * 300 + [world.true_ms() + 45_000] * 600
        await producer.schedule("a", crowds + soon(world, 100, 40_000))
        await asyncio.sleep(2)
        for node, other in combinations(world.nodes, 2):
            world.network.cut(node.name, other.name, noticed=False)
        await asyncio.sleep(30)
        leader.crash()
        await asyncio.sleep(30)
        world.network.heal()
        leader.start(world.members)
        await world.until_served()

    scenario(play)


@pytest.mark.parametrize("before", [True, False])
def test_a_checkpoint_that_a_crash_interrupts_leaves_the_one_before_or_itself(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = CheckpointStore.save

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        node = await world.until_served()
        await producer.schedule("b", soon(world, 100, 3_000))

        def interrupted(store: CheckpointStore, checkpoint: bytes) -> None:
            if not before:
                save(store, checkpoint)
            monkeypatch.undo()
            node.crash()
            raise asyncio.CancelledError

        monkeypatch.setattr(CheckpointStore, "save", interrupted)
        node.take_checkpoint()
        await asyncio.sleep(0.1)
        assert not node.alive

    scenario(play)


def test_a_checkpoint_under_way_while_a_snapshot_is_swapped_in_does_not_replace_it() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        behind = next(node for node in world.whole if node is not leader)
        for other in world.nodes:
            if other is not behind:
                world.network.cut(behind.name, other.name, noticed=True)
                world.network.cut(other.name, behind.name, noticed=True)
        for _ in range(20):
            await producer.schedule("b", soon(world, 5, 5_000))
        for node in world.whole:
            if node is not behind:
                node.take_checkpoint()
        await asyncio.sleep(0.2)
        world.network.heal()
        behind.write_s = 0.3
        while world.checker.sometimes["snapshot installed"] == 0:
            if behind.writing is None or behind.writing.done():
                behind.take_checkpoint()
            await asyncio.sleep(0.01)
        assert behind.writing is not None
        await behind.writing
        behind.crash()
        behind.write_s = 0.002
        behind.start(world.members)
        await asyncio.sleep(1)
        assert behind.alive

    scenario(play)


def test_an_entry_that_a_full_disk_cuts_short_is_whole_after_the_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cut has moved on and one of two queues has its messages when the disk is full."""
    append = ReadyQueue.append

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        leader = await world.until_served()
        full = next(node for node in world.whole if node is not leader)

        def fails(queue: ReadyQueue, units: NDArray[np.void]) -> int:
            ((path, _),) = queue.files(0, 1)
            if queue.topic == "b" and path.is_relative_to(full.data):
                raise DiskFailed("ENOSPC")
            return append(queue, units)

        monkeypatch.setattr(ReadyQueue, "append", fails)
        due_ms = world.true_ms() + 300
        for topic in ("a", "b"):
            await producer.schedule(topic, [due_ms] * 20)
        await asyncio.sleep(1)
        assert not full.alive
        monkeypatch.undo()
        full.start(world.members)
        await asyncio.sleep(1)

    scenario(play)
