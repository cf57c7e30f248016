"""Large batches over thousands of far hours, on real nodes."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster

YEAR_MS = 365 * 86_400_000
BATCH = 4_096
BATCHES = 16
AT_ONCE = 8


async def test_batches_over_a_year_are_all_answered_under_one_leader(cluster: LocalCluster) -> None:
    delays = np.random.default_rng(5).integers(86_400_000, YEAR_MS, (BATCHES, BATCH))
    async with connect(cluster.addresses) as client:
        producer, operator, left = client.producer(), client.operator(), iter(delays)
        before = await operator.status()
        count = 0

        async def schedule() -> None:
            nonlocal count
            for delay_ms in left:
                answers = await producer.schedule_batch("year", [b"x" * 100] * BATCH, delay_ms=delay_ms)
                count += len(answers)

        async def watch() -> None:
            while True:
                await operator.status(digest=True)
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(schedule() for _ in range(AT_ONCE)))
        watching.cancel()
        after = await operator.status(digest=True)
    assert count == BATCHES * BATCH
    assert after.pending == before.pending + count
    assert (after.term, after.leader) == (before.term, before.leader)
