"""Delays of groups in a world, which change while faults go on."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import GroupPolicy
from tarry.replication.errors import ProposalRefused
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.levels import LevelTooLow
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_world import WholeWorld

GROUPS = (("a", "g2"), ("b", "g1"), ("b", "red"))
DELAYS_MS = (0, 50, 400, 2_000)
SHARE = 0.5
"""Of the worlds that have any."""


async def delays(world: WholeWorld) -> None:
    """Give groups delays, and other ones, until cancelled; none is taken before the raise."""
    draw = random.Random(f"delays {world.rng.random()}")
    if draw.random() >= SHARE:
        return
    while True:
        await asyncio.sleep(draw.uniform(0, 1.0))
        topic, group = draw.choice(GROUPS)
        policy = GroupPolicy(delay_ms=draw.choice(DELAYS_MS))
        leader = cast(WholeNode | None, world.leader())
        if leader is None:
            continue
        now_ms = leader.core.time.now_ms()
        command = log_pb.GroupPolicyCommand(topic=topic, group=group, policy=policy, now_ms=now_ms)
        try:
            leader.core.machine.encode(command)
            await asyncio.wait_for(leader.driver.propose(encode(command)), 2.0)
        except (LevelTooLow, ProposalRefused, TimeoutError):
            continue
        world.counts["delays set"] += 1
