"""Replicas behind links that are slow: real streams and journals, pipes of few bytes a second."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

from tests.cluster.paced import PacedLink
from tests.replication.cluster_in_process import Cluster

STEADY: dict[str, Any] = {"election_min_ms": 1_200, "election_max_ms": 2_400, "fallback_ms": 1_000}
"""Four times the defaults, for a busy machine; the links are as much slower."""


class PacedCluster(Cluster):
    """Each replica reaches each other one through a link of its own."""

    bytes_per_s = 1_500_000

    async def link(self) -> None:
        self.links = contextlib.AsyncExitStack()
        for one, other in itertools.permutations(self.replicas.values(), 2):
            address = f"127.0.0.1:{other.transport.port}"
            link = await self.links.enter_async_context(PacedLink(address, self.bytes_per_s))
            one.dial[address] = link.address

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self.links.aclose()


async def test_a_follower_that_is_far_behind_a_slow_link_catches_up_with_each_byte_sent_once(
    tmp_path: Path,
) -> None:
    behind_bytes, entry = 4_000_000, bytes(40_000)
    cluster = Cluster(
        tmp_path, retained_bytes_max=64 << 20, peer_ping_ms=300, peer_silence_ms=1_000, **STEADY
    )
    async with cluster:
        leader = await cluster.leader()
        late = next(name for name in sorted(cluster.running) if name != leader.name)
        await cluster.stop(late)
        await asyncio.gather(*(leader.driver.propose(entry) for _ in range(behind_bytes // len(entry))))
        replica = cluster.replicas[late]
        await replica.listen()
        async with PacedLink(f"127.0.0.1:{replica.transport.port}", 1_000_000) as link:
            leader.dial[f"127.0.0.1:{replica.transport.port}"] = link.address
            replica.machine = type(replica.machine)()
            replica.start(cluster.members)
            cluster.running.add(late)
            async with asyncio.timeout(30):
                await cluster.until_equal()
            assert link.carried_bytes["there"] < 1.25 * behind_bytes
            assert link.connections <= 2
            assert leader.driver.may_serve()


async def test_bulk_writing_over_slow_links_keeps_its_leader(tmp_path: Path) -> None:
    async with PacedCluster(tmp_path, retained_bytes_max=64 << 20, **STEADY) as cluster:
        leader = await cluster.leader()
        term = leader.driver.status().term
        turn = asyncio.Semaphore(4)

        async def propose() -> None:
            async with turn:
                await leader.driver.propose(bytes(500_000))

        await asyncio.gather(*(propose() for _ in range(20)))
        assert leader.driver.status().term == term


async def test_a_state_comes_over_a_slow_link_at_the_first_time_of_asking_and_the_leader_stays(
    tmp_path: Path,
) -> None:
    """It goes by gRPC; the follower's heartbeats go by streams over the same link."""
    async with Cluster(tmp_path, peer_ping_ms=300, peer_silence_ms=1_000, **STEADY) as cluster:
        leader = await cluster.leader()
        late = cluster.replicas[next(name for name in sorted(cluster.running) if name != leader.name)]
        await cluster.stop(late.name)
        await asyncio.gather(*(leader.driver.propose(bytes(100_000)) for _ in range(40)))
        leader.driver.compact(leader.machine.applied_index)
        await leader.driver.propose(b"after the state")
        async with PacedLink(leader.address, 1_000_000) as link:
            late.dial[leader.address] = link.address
            await cluster.restart(late.name)
            async with asyncio.timeout(30):
                await cluster.until_equal()
            assert late.snapshots.installed == 1
            assert link.carried_bytes["back"] < 1.25 * 4_000_000
            assert leader.driver.may_serve()
