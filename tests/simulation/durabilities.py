"""An operator who changes the cluster's durability, back and forth, while faults go on."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC, DURABILITY_SYNC, Durability
from tarry.proto.tarry_operator_pb2 import ClusterSettings
from tarry.replication.errors import ProposalRefused
from tests.simulation.seeds import ASYNC_S, FLUSH_MS, SYNC_S
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_world import WholeWorld

FIRST_LEVEL = 2


async def change_durability(world: WholeWorld, until: float) -> None:
    """Let the cluster be async most of the time, as soon as its level allows it."""
    loop, rng = asyncio.get_running_loop(), random.Random(f"durability {world.draws.random()}")
    while loop.time() < until:
        if await set_durability(world, DURABILITY_ASYNC, rng.choice(FLUSH_MS)):
            world.counts["async"] += 1
            await asyncio.sleep(rng.uniform(0, ASYNC_S))
            if await set_durability(world, DURABILITY_SYNC, 0):
                await asyncio.sleep(rng.uniform(0, SYNC_S))
        await asyncio.sleep(0.1)


async def set_durability(world: WholeWorld, durability: Durability, flush_ms: int) -> bool:
    """As `node.services.cluster_settings` does; return whether it was answered."""
    leader = cast(WholeNode | None, world.leader())
    if leader is None or leader.core.machine.level < FIRST_LEVEL:
        return False
    settings = ClusterSettings(durability=durability, flush_ms=flush_ms or None)
    command = log_pb.ClusterSettingsCommand(settings=settings, now_ms=leader.core.time.now_ms())
    try:
        payload = leader.core.machine.encode(command)
        await asyncio.wait_for(leader.driver.propose(payload, flushed=True), 2.0)
    except (ProposalRefused, TimeoutError):
        return False
    world.note(f"flush_ms is {flush_ms}")
    return True
