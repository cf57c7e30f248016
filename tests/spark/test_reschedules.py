"""Ledgers of a real cluster whose messages and retries were rescheduled break no promise."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tarry.client.aio import ChangeOutcome, connect
from tarry.client.local.cluster import LocalCluster
from tarry.spark.reconcile import Options, Reconciliation
from tests.cluster.disposable import Disposable

PATIENCE_S = 120
HOUR_MS = 3_600_000
COUNT = 20


async def live(cluster: LocalCluster, receipts: Path) -> None:
    """Move half of the messages to sooner, half to later, and a retry to at once; get all of them."""
    async with asyncio.timeout(PATIENCE_S), connect(cluster.addresses, receipts=receipts) as client:
        await client.operator().finish_upgrade()
        await client.operator().create_group("t", "g")
        producer, now_ms = client.producer(), time.time_ns() // 1_000_000
        later = await producer.schedule_batch("t", [b"later"] * COUNT, due_ms=now_ms + 4_000)
        sooner = await producer.schedule_batch("t", [b"sooner"] * COUNT, due_ms=now_ms + 9 * HOUR_MS)
        ids = [*later.ids, *sooner.ids]
        for due_ms in (now_ms + 2 * HOUR_MS, now_ms + 6_000):
            changes = await producer.reschedule_many(ids, due_ms=due_ms)
            assert {change.outcome for change in changes} == {ChangeOutcome.CHANGED}
        seen = []
        async with client.consumer("t", "g", name="c") as consumer:
            async for message in consumer:
                if message.id == ids[0] and message.attempt == 1:
                    await message.nack(delay_ms=HOUR_MS)
                    retry = await producer.reschedule(ids[0], delay_ms=100, group="g")
                    assert retry.outcome is ChangeOutcome.CHANGED
                    continue
                await message.ack()
                seen.append(message.id)
                if len(seen) == len(ids):
                    break
        assert sorted(seen) == sorted(ids)


@pytest.mark.cluster
def test_rescheduled_messages_and_retries_are_where_their_ledger_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        asyncio.run(live(cluster, tmp_path / "receipts"))
        cluster.stop("n1")
        folders = [str(tmp_path / "n1" / "ledger"), *map(str, (tmp_path / "receipts").iterdir())]
        job = Reconciliation(spark, Options(folders, str(tmp_path / "out"), settle_ms=0))
        summary = job.run()
        assert job.violations.where("promise").collect() == []
        assert (summary["missing"], summary["scheduled"]) == (0, 2 * COUNT)
