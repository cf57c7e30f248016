"""Ledgers of a real cluster prove the order of each ordering key, or say where it was broken."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster
from tarry.proto.message_id import MessageId
from tarry.spark.reconcile import Options, Reconciliation
from tests.cluster.disposable import Disposable

KEYS, EACH = 20, 10
LEASE_MS = 1_000
SETTINGS = {"consensus": {"election_min_ms": 1_000, "election_max_ms": 2_000, "fallback_ms": 900}}
LAST_FIRST = """
from tarry.node.delivery.ordering import Lanes
first = Lanes.take
Lanes.take = lambda self, queue, units, *behind: first(self, queue, units[::-1], *behind)[::-1]
"""
"""Of what is due together, the last message of a lane is delivered first. Python runs it at its start."""


async def schedule(client: Client, due_ms: int) -> dict[str, list[str]]:
    """Schedule messages of some keys for the same time; return each key's ids in order."""
    keys = [f"key-{number % KEYS}" for number in range(KEYS * EACH)]
    done = await client.producer().schedule_batch(
        "ordered", [b"x"] * len(keys), due_ms=[due_ms] * len(keys), ordering_keys=keys
    )
    ids = defaultdict(list)
    for key, message_id in zip(keys, done.ids, strict=True):
        ids[key].append(message_id)
    return ids


async def receive(client: Client, name: str, came: dict[str, list[str]], *, careless: bool) -> None:
    """Note each key's messages as they first come; nack some, and let the leases of some others end."""
    async with client.consumer("ordered", "g", name=name, lease_ms=LEASE_MS) as consumer:
        async for message in consumer:
            ids = came[message.ordering_key]
            if message.id not in ids:
                ids.append(message.id)
            place = len(ids) if message.attempt == 1 else 0
            if careless and place == 3:
                await message.nack(delay_ms=30)
            elif not (careless and place == 6):
                message.ack_soon()


async def until_all_came(came: dict[str, list[str]]) -> None:
    async with asyncio.timeout(60):
        while sum(map(len, came.values())) < KEYS * EACH:  # noqa: ASYNC110  others' processes
            await asyncio.sleep(0.05)


async def reconciled(spark: SparkSession, cluster: LocalCluster, folder: Path) -> Reconciliation:
    """Take every ledger out, and have Spark reconcile them."""
    command = [sys.executable, "-m", "tarry.node", "ledger", "export", "--server", cluster.addresses]
    await asyncio.to_thread(
        subprocess.run, [*command, "--to", str(folder / "ledgers")], check=True, timeout=60
    )
    options = Options([str(folder / "ledgers")], str(folder / "out"), settle_ms=0)
    job = Reconciliation(spark, options)
    await asyncio.to_thread(job.run)
    assert job.order_keys >= KEYS  # a killed leader's last rows are lost
    return job


def found(job: Reconciliation) -> set[str]:
    rows: list[Any] = job.violations.where("check = 'out_of_order'").collect()
    return {str(MessageId(0, row["hour"], row["global_index"])) for row in rows}


@pytest.mark.cluster
async def test_a_leader_that_breaks_the_order_of_keys_is_found_in_its_ledger(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LAST_FIRST)
    with Disposable(3, tmp_path / "cluster", SETTINGS) as cluster:
        cluster.nodes["n2"].environment["PYTHONPATH"] = f"{tmp_path}:{':'.join(filter(None, sys.path))}"
        cluster.start()
        cluster.wait_until_serving()
        came: dict[str, list[str]] = defaultdict(list)
        async with connect(cluster.addresses) as client:
            if cluster.leader() != "n2":
                await client.operator().transfer("n2")
            ids = await schedule(client, int(time.time() * 1_000) + 1_500)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(receive(client, "a", came, careless=False))
                await until_all_came(came)
                task.cancel()
        overtaken = {
            one
            for key, right in ids.items()
            for number, one in enumerate(came[key])
            if any(right.index(before) > right.index(one) for before in came[key][:number])
        }
        assert overtaken
        assert found(await reconciled(spark, cluster, tmp_path)) == overtaken


@pytest.mark.cluster
async def test_retries_and_a_leader_s_death_are_not_taken_for_a_broken_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Disposable(3, tmp_path / "cluster") as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        came: dict[str, list[str]] = defaultdict(list)
        async with connect(cluster.addresses) as client:
            ids = await schedule(client, int(time.time() * 1_000) + 1_500)
            async with asyncio.TaskGroup() as tasks:
                receiving = [
                    tasks.create_task(receive(client, name, came, careless=True)) for name in ("a", "b")
                ]
                while sum(map(len, came.values())) < KEYS * EACH // 2:  # noqa: ASYNC110  others' processes
                    await asyncio.sleep(0.01)
                cluster.kill(leader)
                cluster.start(leader)
                await until_all_came(came)
                for task in receiving:
                    task.cancel()
        cluster.wait_until_serving()
        assert came == ids
        assert found(await reconciled(spark, cluster, tmp_path)) == set()
