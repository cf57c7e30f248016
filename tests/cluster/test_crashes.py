"""Nodes killed in the middle of a load: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tarry.chaos.checks import deliveries, duplicates
from tarry.chaos.cluster.cluster import Cluster
from tarry.chaos.history import History
from tarry.chaos.traffic.traffic import Traffic, Workload, plan
from tarry.client.aio import connect
from tests.cluster.disposable import DisposableRun
from tests.cluster.steady import STEADY

LOAD = Workload(
    messages=3_000, topics=("orders", "payments"), spread_ms=6_000, delay_ms_max=4_000, cancel_share=0.1
)
ONE_FAULT = replace(LOAD, messages=2_000, spread_ms=4_000, delay_ms_max=2_500)
"""As many messages a second, for as long as a single fault takes."""
GROUP = "crashes"


async def under_load(cluster: Cluster, load: Workload, *faults: asyncio.Task[None]) -> History:
    """Send and consume a whole load while the faults happen; return what was seen."""
    traffic = Traffic(connect(cluster.addresses), load.body_bytes)
    async with traffic.client, traffic.consuming(load.topics, GROUP):
        await traffic.produce(plan(load))
        await asyncio.gather(*faults)
        await traffic.drained(patience_s=20)
    return traffic.history


def promises_kept(history: History, load: Workload) -> None:
    assert sum(1 for _ in history.acknowledged()) == load.messages
    assert deliveries.lost(history, [(topic, GROUP) for topic in load.topics]) == ()
    assert deliveries.early(history) == ()
    assert history.cancelled
    assert deliveries.delivered_after_cancel(history) == ()
    assert deliveries.unexpected(history) == ()
    assert deliveries.ids_given_twice(history) == ()
    assert duplicates.unmarked(history) == ()


@pytest.mark.beside
@pytest.mark.parametrize("seed", [1, 2])
async def test_nodes_killed_at_random_moments_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with DisposableRun(3, tmp_path) as cluster:

        async def crashes() -> None:
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0.3, 1.5))
                victim = chance.choice(cluster.names)
                cluster.kill(victim)
                await asyncio.sleep(chance.uniform(0.0, 1.0))
                cluster.start(victim)
                await cluster.serving()

        load = replace(LOAD, seed=seed)
        promises_kept(await under_load(cluster, load, asyncio.create_task(crashes())), load)


@pytest.mark.beside
async def test_a_whole_cluster_killed_at_once_loses_nothing(tmp_path: Path) -> None:
    async with DisposableRun(3, tmp_path) as cluster:

        async def crash() -> None:
            await asyncio.sleep(2)
            for name in cluster.names:
                cluster.kill(name)
            cluster.start()
            await cluster.serving()

        promises_kept(await under_load(cluster, ONE_FAULT, asyncio.create_task(crash())), ONE_FAULT)


async def test_a_leader_that_froze_does_not_deliver_for_the_next_one(tmp_path: Path) -> None:
    async with DisposableRun(3, tmp_path) as cluster:

        async def freeze() -> None:
            await asyncio.sleep(1.5)
            frozen = await cluster.leader()
            cluster.pause(frozen)
            assert await cluster.leader() != frozen
            await asyncio.sleep(1)
            cluster.resume(frozen)
            await cluster.serving()

        promises_kept(await under_load(cluster, ONE_FAULT, asyncio.create_task(freeze())), ONE_FAULT)


async def test_a_planned_transfer_under_load_repeats_nothing(tmp_path: Path) -> None:
    async with DisposableRun(3, tmp_path, consensus=STEADY) as cluster:

        async def transfers() -> None:
            async with connect(cluster.addresses) as client:
                for _ in range(3):
                    await asyncio.sleep(1)
                    before = await cluster.leader()
                    assert (await client.operator().transfer()).leader != before
                    await cluster.serving()

        history = await under_load(cluster, LOAD, asyncio.create_task(transfers()))
        promises_kept(history, LOAD)
        assert history.later_deliveries() == ()


async def test_a_cluster_restarted_node_by_node_repeats_nothing(tmp_path: Path) -> None:
    async with DisposableRun(3, tmp_path, consensus=STEADY) as cluster:

        async def restarts() -> None:
            for name in cluster.names:
                await asyncio.sleep(0.5)
                assert await cluster.stop(name) == 0
                cluster.start(name)
                await cluster.serving()

        history = await under_load(cluster, LOAD, asyncio.create_task(restarts()))
        promises_kept(history, LOAD)
        assert history.later_deliveries() == ()


async def test_replicas_agree_after_a_crash(tmp_path: Path) -> None:
    async with DisposableRun(3, tmp_path) as cluster:

        async def crash() -> None:
            await asyncio.sleep(2)
            victim = await cluster.leader()
            cluster.kill(victim)
            await asyncio.sleep(1)
            cluster.start(victim)
            await cluster.serving()

        await under_load(cluster, ONE_FAULT, asyncio.create_task(crash()))
        for _ in range(100):
            statuses = await asyncio.to_thread(lambda: list(cluster.local.statuses(digest=True)))
            if len({status.applied_index for status in statuses}) == 1 and len(statuses) == 3:
                break
            await asyncio.sleep(0.1)
        assert len({status.applied_index for status in statuses}) == 1
        (digest,) = {status.state_digest for status in statuses}
        assert digest
