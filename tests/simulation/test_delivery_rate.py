"""A group's delivery rate in whole nodes: leaders die, clocks differ, and no more is given than it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.node.delivery.batch import DeliveryBatch
from tarry.node.delivery.delivery_rate import BURST_MS
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import GroupPolicy
from tarry.replication.state_machine.commands import encode
from tests.simulation.model_producer import ModelProducer
from tests.simulation.test_levels import begin, levels_of, until
from tests.simulation.whole_node import RATE_ERROR
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

PER_S = 40


def watch(world: WholeWorld, topic: str, group: str) -> list[tuple[float, int]]:
    """Return what will be the group's deliveries: when, by true time, and how many."""
    given: list[tuple[float, int]] = []
    told: Callable[..., Any] = world.rows.delivered

    def delivered(machine: Any, batch: DeliveryBatch, of: str, to: str) -> None:
        if (of, to) == (topic, group):
            given.append((asyncio.get_running_loop().time() * 1_000, len(batch.units)))
        told(machine, batch, of, to)

    setattr(world.rows, "delivered", delivered)  # noqa: B010 - a method of one object
    return given


async def set_policy(world: WholeWorld, topic: str, group: str, **policy: Any) -> None:
    leader = await world.until_served()
    command = log_pb.GroupPolicyCommand(
        topic=topic, group=group, policy=GroupPolicy(**policy), now_ms=leader.core.time.now_ms()
    )
    await leader.driver.propose(encode(command))


def test_over_leaders_that_die_a_group_is_given_its_rate_and_no_burst_more_and_others_do_not_wait() -> None:
    found: dict[str, list[tuple[float, int]]] = {}

    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await until(world, lambda: levels_of(world) == [2, 2, 2])
        await set_policy(world, "a", "g1", delivery_per_s_max=PER_S)
        for group in ("g1", "g2"):
            found[group] = watch(world, "a", group)
        await producer.schedule("a", [world.true_ms() + 100] * 200)
        for _ in range(3):
            await asyncio.sleep(1.2)
            leader = await world.until_served()
            leader.crash()
            await world.mend()

    scenario(play, begin=begin("auto"))
    held, free = found["g1"], found["g2"]
    assert sum(count for _, count in held) >= 200
    for first in range(len(held)):
        for last in range(first, len(held)):
            ms = held[last][0] - held[first][0]
            most = PER_S * ms * (1 + 2 * RATE_ERROR) / 1_000 + PER_S * BURST_MS / 1_000
            clocks = PER_S * 10 / 1_000  # a new leader's clock may be some ms ahead
            assert sum(count for _, count in held[first : last + 1]) <= most + clocks + 1
    assert held[-1][0] - held[0][0] >= 1_000 * (200 / PER_S) - 2 * BURST_MS
    in_a_second = [count for at_ms, count in free if at_ms < free[0][0] + 1_000]
    assert sum(in_a_second) >= 20  # as much as its consumers have credit for
