"""Real nodes with wrong wall clocks: none of them makes a message early."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tarry.chaos.checks import deliveries, stuck
from tarry.chaos.cluster.cluster import Cluster
from tarry.chaos.faults.clocks import NoFakeTime, give_clock, library, set_clock
from tarry.chaos.history import History
from tarry.chaos.traffic.traffic import Traffic, Workload, plan
from tarry.client.aio import connect
from tests.cluster.disposable import DisposableRun

LOAD = Workload(messages=1_000, topics=("orders",), spread_ms=3_500, delay_ms_max=2_500)
HOUR_MS = 3_600_000
GROUP = "clocks"


@pytest.fixture(autouse=True)
def _fake_time() -> None:
    try:
        library()
    except NoFakeTime as reason:
        pytest.skip(str(reason))


async def seen_under_load(cluster: Cluster, load: Workload, *faults: asyncio.Task[None]) -> History:
    traffic = Traffic(connect(cluster.addresses), load.body_bytes)
    async with traffic.client, traffic.consuming(load.topics, GROUP):
        await traffic.produce(plan(load))
        await asyncio.gather(*faults)
        await traffic.drained(patience_s=15)
    return traffic.history


def promises_kept(history: History) -> None:
    assert deliveries.early(history) == ()
    assert deliveries.lost(history, [(topic, GROUP) for topic in LOAD.topics]) == ()


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
async def test_a_cluster_whose_first_leader_has_a_wrong_clock(tmp_path: Path, ahead_ms: int) -> None:
    cluster = DisposableRun(3, tmp_path)
    for name, node in cluster.local.nodes.items():
        give_clock(node, ahead_ms if name == "n1" else 0)
    async with cluster, connect(cluster.addresses) as client:
        if await cluster.leader() != "n1":
            await client.operator().transfer("n1")
        history = await seen_under_load(cluster, LOAD)
    promises_kept(history)
    assert stuck.stuck(history, {GROUP}, patience_ms=10_000) == ()


async def test_a_node_that_wakes_up_in_the_future_and_leads_at_once(tmp_path: Path) -> None:
    """Its own clock is all that it has seen of time when it is elected."""
    cluster = DisposableRun(3, tmp_path)
    for node in cluster.local.nodes.values():
        give_clock(node)
    give_clock(cluster.local.nodes["n1"], HOUR_MS)
    cluster.start("n1")
    for _ in range(5):  # somebody asks it how it is, before it has heard of anybody
        await asyncio.sleep(0.5)
        await asyncio.to_thread(cluster.local.status, "n1")
    async with cluster, connect(cluster.addresses) as client:
        if await cluster.leader() != "n1":
            await client.operator().transfer("n1")
        history = await seen_under_load(cluster, LOAD)
    promises_kept(history)
    assert stuck.stuck(history, {GROUP}, patience_ms=10_000) == ()


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
async def test_a_leader_s_clock_that_jumps_under_load(tmp_path: Path, jump_ms: int) -> None:
    cluster = DisposableRun(3, tmp_path)
    for node in cluster.local.nodes.values():
        give_clock(node)
    async with cluster:

        async def jump() -> None:
            await asyncio.sleep(2)
            leader = await cluster.leader()
            set_clock(cluster.local.nodes[leader], jump_ms)

        load = replace(LOAD, seed=2)
        history = await seen_under_load(cluster, load, asyncio.create_task(jump()))
    promises_kept(history)
    assert stuck.stuck(history, {GROUP}, patience_ms=10_000) == ()


async def test_a_leader_with_a_clock_from_the_future_dies(tmp_path: Path) -> None:
    """What it released is the next leader's past: nothing may come early, nothing wait for that hour."""
    cluster = DisposableRun(3, tmp_path)
    for node in cluster.local.nodes.values():
        give_clock(node)
    async with cluster:

        async def jump_and_die() -> None:
            await asyncio.sleep(1.5)
            leader = await cluster.leader()
            set_clock(cluster.local.nodes[leader], HOUR_MS)
            await asyncio.sleep(1)
            cluster.kill(leader)

        history = await seen_under_load(cluster, LOAD, asyncio.create_task(jump_and_die()))
    promises_kept(history)
