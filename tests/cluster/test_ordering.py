"""Messages of one key keep their order between two consumers, retries and a leader that is killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict

from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster

KEYS, EACH = 30, 12


async def receive(client: Client, name: str, first: defaultdict[str, list[int]]) -> None:
    """Acknowledge after a moment, but send one of seven round again; note what comes for the first time."""
    async with client.consumer("ordered", "g", name=name) as consumer:
        async for message in consumer:
            number = int(message.body)
            if number not in first[message.ordering_key]:
                first[message.ordering_key].append(number)
            if message.attempt == 1 and number % 7 == 0:
                message.nack(delay_ms=30)
            else:
                asyncio.get_running_loop().call_later(random.uniform(0, 0.02), message.ack_soon)


async def test_a_key_keeps_its_order_though_the_leader_is_killed(cluster: LocalCluster) -> None:
    first: defaultdict[str, list[int]] = defaultdict(list)
    due_ms = [int(time.time() * 1_000) + random.randrange(2_000, 5_000) for _ in range(KEYS * EACH)]
    keys = [f"key-{number % KEYS}" for number in range(KEYS * EACH)]
    async with connect(cluster.addresses) as client:
        bodies = [b"%d" % number for number in range(KEYS * EACH)]
        await client.producer().schedule_batch("ordered", bodies, due_ms=due_ms, ordering_keys=keys)
        tasks = [asyncio.create_task(receive(client, name, first)) for name in "ab"]
        await asyncio.sleep(3)
        cluster.kill(cluster.wait_for_leader())
        async with asyncio.timeout(60):
            while sum(map(len, first.values())) < KEYS * EACH:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for key in set(keys):
        own = [number for number in range(KEYS * EACH) if keys[number] == key]
        assert first[key] == sorted(own, key=lambda number: (due_ms[number], number))
