"""Policies in whole nodes of two versions: refused before the raise, then kept alike, over power losses."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import ClusterSettings, GroupPolicy, TopicSettings
from tarry.replication.errors import ProposalRefused, Unknown
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.model_producer import ModelProducer
from tests.simulation.test_levels import begin, exchange, levels_of, until
from tests.simulation.whole_node import DELIVERY
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld


async def propose(world: WholeWorld, command: Message) -> object:
    while True:
        leader = await world.until_served()
        command.now_ms = leader.core.time.now_ms()  # type: ignore[attr-defined]
        try:
            return await asyncio.wait_for(leader.driver.propose(encode(command)), 2.0)
        except (ProposalRefused, Unknown, TimeoutError):  # it dies, or another leads by now
            await asyncio.sleep(0.05)


def changes() -> list[Message]:
    policy = GroupPolicy(
        dead_letter_topic="dlq.shared", dead_letter_retention_ms=10**9, delivery_per_s_max=500
    )
    return [
        log_pb.GroupPolicyCommand(topic="a", group="g1", policy=policy, unset=["lease_ms"]),
        log_pb.GroupPolicyCommand(topic="a", group="g2", policy=GroupPolicy(attempts_max=9)),
        log_pb.TopicCommand(topic="b", settings=TopicSettings(group_policy=GroupPolicy(lease_ms=2_000))),
        log_pb.ClusterSettingsCommand(settings=ClusterSettings(group_expiry_ms=0), unset=["retention_ms"]),
    ]


@pytest.mark.parametrize("whose", ["leader", "all"])
def test_policies_are_kept_alike_from_the_raise_on_and_over_power_losses(whose: str) -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 40, 3_000))
        for command in changes():
            leader = await world.until_served()
            with pytest.raises(LevelTooLow):
                leader.core.machine.encode(command)
        for node in world.whole:
            await exchange(node, 2)
            await world.until_served()
        await until(world, lambda: levels_of(world) == [2, 2, 2])
        await until(world, lambda: all(node.core.machine.queues.defaults.seeded for node in world.whole))
        for command in changes():
            assert not isinstance(await propose(world, command), Refusal)
        for node in [await world.until_served()] if whose == "leader" else world.whole:
            node.crash()
        await world.mend()
        await producer.schedule("b", soon(world, 40, 1_000))
        await asyncio.sleep(1.5)
        for node in world.whole:
            defaults = node.core.machine.queues.defaults
            assert defaults.seeded
            assert defaults.settings.group_policy.attempts_max == DELIVERY.attempts_max
            assert (defaults.settings.HasField("retention_ms"), defaults.settings.group_expiry_ms) == (
                False,
                0,
            )
            own = node.core.machine.queues.of("a", "g1").policy
            assert own is not None
            assert own.dead_letter_topic == "dlq.shared"

    scenario(play, begin=begin("auto", 0, 1, 2))
