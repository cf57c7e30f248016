"""A schedule that recurs on a real cluster: its fires while leaders are killed and changed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc

from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_recurring_pb2_grpc import RecurringServiceStub
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.test_upgrade import level

PATIENCE_S = 30.0
ROUNDS = 3


async def put(cluster: LocalCluster, start_ms: int) -> pb.Recurring:
    spec = pb.RecurringSpec(topic="t", record=Record(body=b"x"), interval_ms=1_000, start_ms=start_ms)
    address = cluster.nodes[cluster.wait_until_serving()].address
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = RecurringServiceStub(channel)
        told = await stub.PutRecurring(pb.PutRecurringRequest(name="s", spec=spec), timeout=PATIENCE_S)
        again = await stub.PutRecurring(pb.PutRecurringRequest(name="s", spec=spec), timeout=PATIENCE_S)
        assert again.recurring.revision == told.recurring.revision == 1
    made: pb.Recurring = told.recurring
    return made


async def ended(cluster: LocalCluster) -> pb.Recurring:
    """Any node answers; the schedule is deleted."""
    addresses = [node.address for node in cluster.nodes.values()]
    async with grpc.aio.insecure_channel(addresses[0]) as channel:
        stub: Any = RecurringServiceStub(channel)
        told = await stub.GetRecurring(pb.GetRecurringRequest(name="s"), timeout=PATIENCE_S)
        await stub.DeleteRecurring(pb.DeleteRecurringRequest(name="s"), timeout=PATIENCE_S)
    found: pb.Recurring = told.recurring
    return found


async def test_no_fire_is_doubled_or_left_out_while_leaders_are_killed_and_changed(tmp_path: Path) -> None:
    settings: Any = {"consensus": STEADY}
    with Disposable(3, tmp_path, settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        await level(cluster, 2)
        start_ms = time.time_ns() // 1_000_000 // 1_000 * 1_000 + 2_000
        await put(cluster, start_ms)
        async with connect(cluster.addresses) as client:
            due: dict[str, int] = {}
            arrived = asyncio.Event()

            async def consume() -> None:
                async with client.consumer("t", "g", start="earliest") as consumer:
                    async for message in consumer:
                        due[message.id] = message.due_ms
                        arrived.set()
                        await message.ack()

            consuming = asyncio.create_task(consume())
            for _ in range(ROUNDS):
                await asyncio.sleep(1.3)
                leader = cluster.wait_until_serving()
                cluster.kill(leader)
                cluster.wait_until_serving()
                cluster.start(leader)
                await asyncio.sleep(1.3)
                cluster.wait_until_serving()
                await client.operator().transfer()
            cluster.wait_until_serving()
            told = await ended(cluster)
            async with asyncio.timeout(PATIENCE_S):
                while len(due) < told.fired - 1:
                    arrived.clear()
                    await arrived.wait()
            consuming.cancel()
        every = list(range(start_ms, told.next_ms, 1_000))
        assert (told.fired, told.missed, told.skipped) == (len(every), 0, 0)
        assert len(every) >= 3 * ROUNDS
        # the last was cancelled as the schedule was deleted, or not; one that no leader was there for is late
        assert told.fired - 1 <= len(due) <= told.fired
        assert all(due_ms >= fire_ms for due_ms, fire_ms in zip(sorted(due.values()), every, strict=False))
