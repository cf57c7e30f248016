"""Ledgers of a real cluster whose schedules fired while its leaders died, reconciled by Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tarry.client.aio import Client, Interval, connect
from tarry.client.local.cluster import LocalCluster
from tarry.spark.checks.fires import wrong_fires
from tarry.spark.reconcile import Options, Reconciliation
from tests.cluster.disposable import Disposable

KILLS = 2


@asynccontextmanager
async def consumed(client: Client, came: list[str]) -> AsyncIterator[None]:
    async def consume() -> None:
        async with client.consumer("fires", "g", name="c") as consumer:
            async for message in consumer:
                came.append(message.id)
                message.ack_soon()

    consuming = asyncio.create_task(consume())
    yield
    consuming.cancel()


async def fire(cluster: LocalCluster) -> int:
    """Fire each second through kills of the leader, a pause, a trigger and a resume; return how often."""
    came: list[str] = []
    async with asyncio.timeout(120), connect(cluster.addresses) as client:
        await client.operator().finish_upgrade()
        await client.operator().create_topic("fires")
        await client.operator().create_group("fires", "g")
        recurring, start_ms = client.recurring(), time.time_ns() // 1_000_000 + 1_000
        async with consumed(client, came):
            await recurring.put("s", "fires", b"x", timing=Interval(1_000), start_ms=start_ms)
            for _ in range(KILLS):
                before = len(came)
                while len(came) < before + 2:  # noqa: ASYNC110  of other processes
                    await asyncio.sleep(0.05)
                leader = (await client.operator().status()).leader
                cluster.kill(leader)
                cluster.start(leader)
                await asyncio.to_thread(cluster.wait_until_serving)
            await recurring.pause("s")
            await recurring.trigger("s")
            await recurring.resume("s")
            fired = (await recurring.get("s")).fired
            while (await recurring.get("s")).fired < fired + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            paused = await recurring.pause("s")
            while len({*came}) < paused.fired + paused.triggered:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    return paused.fired


@pytest.mark.cluster
def test_fires_of_a_cluster_whose_leaders_die_are_each_in_its_ledgers_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Disposable(3, tmp_path / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        fired = asyncio.run(fire(cluster))
        for name in cluster.nodes:
            cluster.stop(name)
        folders = [str(tmp_path / "cluster" / name / "ledger") for name in cluster.nodes]
        job = Reconciliation(spark, Options(folders, str(tmp_path / "out"), settle_ms=0))
        job.run()
    assert job.fires >= fired
    of_fires = F.col("check").isin("fired_twice", "fire_left_out")
    assert job.violations.where(of_fires).collect() == []
    assert job.violations.where("promise and check not like 'gap%'").collect() == []
    fires = job.rows.where("kind = 'scheduled' and detail like 'RECURRING %'")
    index = fires.agg(F.min("index")).collect()[0][0]
    without = job.rows.where(F.col("index") != index)
    [left_out] = wrong_fires(without, job.span).collect()
    assert left_out["check"] == "fire_left_out"
    planted = fires.where(F.col("index") == index).withColumn("global_index", F.lit(10**6).cast("long"))
    again = job.rows.unionByName(planted)
    assert {one["check"] for one in wrong_fires(again, job.span).collect()} == {"fired_twice"}
