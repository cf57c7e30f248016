"""Bits that flip in the delay logs of real nodes: found, mended from a peer, counted, and nothing stops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from tarry.client.aio import Client, Consumer, connect
from tarry.client.errors import Damaged
from tarry.client.local.cluster import LocalCluster
from tarry.client.results import CancelOutcome
from tarry.proto.message_id import MessageId
from tarry.wheel.delay_log import UNIT
from tarry.wheel.far_segment import segment_name
from tarry.wheel.hour_partition import folder_name
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

TOPIC = "damage"
PATIENCE_S = 60
BODIES = [b"message %d, " % number * 20 for number in range(300)]


def hour_folder(cluster: LocalCluster, node: str, hour: int) -> Path:
    (folder,) = cluster.nodes[node].folder.glob(f"state-*/hours/{folder_name(hour)}")
    return folder


def flip(cluster: LocalCluster, node: str, ids: Iterable[str]) -> None:
    """Turn a bit of each record on a node's disk, as decay would; turned again, it is as it was."""
    for found in map(MessageId.parse, ids):
        folder = hour_folder(cluster, node, found.hour)
        unit = np.frombuffer((folder / "delay.index").read_bytes(), UNIT)[found.global_index]
        place = int(unit["offset"]) + int(unit["size"]) // 2
        with (folder / "delay.log").open("r+b") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 0x10]))


async def stopped(cluster: LocalCluster, node: str) -> None:
    """Stop a node, in order, so that its checkpoint holds everything that the others have applied."""
    async with asyncio.timeout(PATIENCE_S):
        while len({status.applied_index for status in cluster.statuses()}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.to_thread(cluster.stop, node)


async def damaged(cluster: LocalCluster, node: str, ids: Iterable[str]) -> None:
    """Stop a node that has everything; damage it; start it again."""
    await stopped(cluster, node)
    flip(cluster, node, ids)
    cluster.start(node)
    await asyncio.to_thread(cluster.wait_until_serving)


def follower(cluster: LocalCluster) -> str:
    leader = cluster.wait_for_leader()
    return next(name for name in cluster.nodes if name != leader)


def told(cluster: LocalCluster, node: str) -> tuple[int, int, int]:
    """Found, repaired, left."""
    status = cluster.status(node, timeout_s=5)
    if status is None:
        return -1, -1, -1  # not there yet
    return status.damaged_found, status.damaged_repaired, status.damaged_left


def digests(cluster: LocalCluster) -> set[bytes]:
    return {status.state_digest for status in cluster.statuses(digest=True)}


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def receive(consumer: Consumer, count: int) -> list[tuple[str, bytes]]:
    got = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            got.append((message.id, message.body))
            message.ack_soon()
            if len(got) == count:
                break
    return got


async def schedule(client: Client, delay_ms: int) -> list[str]:
    return list((await client.producer().schedule_batch(TOPIC, BODIES, delay_ms=delay_ms)).ids)


async def test_a_leader_whose_every_record_is_damaged_delivers_all_of_them_unchanged_and_once(
    cluster: LocalCluster,
) -> None:
    async with connect(cluster.addresses, deadline_ms=30_000) as client:
        ids = await schedule(client, delay_ms=20_000)
        due_s = time.monotonic() + 20
        target = follower(cluster)
        await damaged(cluster, target, ids)
        assert (await client.operator().transfer(target)).leader == target
        assert (await client.producer().get(ids[7])).body == BODIES[7]
        assert told(cluster, target) == (1, 1, 0)
        assert time.monotonic() < due_s
        async with client.consumer(TOPIC, "g", credit=1_000) as consumer:
            got = await receive(consumer, len(ids))
            await asyncio.sleep(0.5)  # in which a second delivery would come
            assert consumer.in_hand == 0
        assert Counter(got) == Counter(zip(ids, BODIES, strict=True))
        assert told(cluster, target) == (len(ids), len(ids), 0)
        assert await asyncio.to_thread(cluster.wait_for_leader) == target


async def test_a_nacked_message_whose_record_decayed_in_the_meantime_comes_again(
    cluster: LocalCluster,
) -> None:
    async with connect(cluster.addresses, deadline_ms=30_000) as client:
        scheduled = await client.producer().schedule(TOPIC, b"once more", delay_ms=100)
        async with client.consumer(TOPIC, "g") as consumer, asyncio.timeout(PATIENCE_S):
            first = await anext(consumer)
            leader = cluster.wait_for_leader()
            flip(cluster, leader, [scheduled.id])
            await first.nack(delay_ms=100)
            again = await anext(consumer)
            assert (again.id, again.body, again.attempt) == (scheduled.id, b"once more", 2)
        assert told(cluster, leader) == (1, 1, 0)


async def test_the_scrub_alone_finds_and_mends_what_decays_on_a_follower(tmp_path: Path) -> None:
    settings = {"dispatch": {"scrub_step_ms_max": 100}}
    with Disposable(3, tmp_path, settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses, deadline_ms=30_000) as client:
            ids = await schedule(client, delay_ms=3_600_000)
            node = follower(cluster)
            await damaged(cluster, node, ids[::50])
            await asyncio.to_thread(wait_until, lambda: told(cluster, node) == (6, 6, 0))
        hour = MessageId.parse(ids[0]).hour
        logs = {(hour_folder(cluster, name, hour) / "delay.log").read_bytes() for name in cluster.nodes}
        assert len(logs) == 1


async def test_an_index_that_decays_on_a_follower_is_found_by_the_scrub_and_taken_from_a_peer(
    tmp_path: Path,
) -> None:
    settings = {"dispatch": {"scrub_step_ms_max": 100}}
    with Disposable(3, tmp_path, settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses, deadline_ms=30_000) as client:
            ids = await schedule(client, delay_ms=7_200_000)
            node = follower(cluster)
            hour = MessageId.parse(ids[0]).hour
            await stopped(cluster, node)
            index = hour_folder(cluster, node, hour) / "delay.index"
            units = bytearray(index.read_bytes())
            units[8::40] = bytes(byte ^ 1 for byte in units[8::40])  # every unit's size
            index.write_bytes(units)
            cluster.start(node)
            await asyncio.to_thread(wait_until, lambda: told(cluster, node) == (1, 1, 0))
            assert (await client.producer().get(ids[7])).body == BODIES[7]
        indices = {(hour_folder(cluster, name, hour) / "delay.index").read_bytes() for name in cluster.nodes}
        assert len(indices) == 1


@pytest.mark.parametrize("place", ["the first unit", "a sector", "the end"])
async def test_a_far_index_that_decays_while_a_node_is_down_is_mended_by_its_start(
    cluster: LocalCluster, place: str
) -> None:
    delays_ms = [86_400_000 + 3_600_000 * (number % 100) for number in range(len(BODIES))]
    async with connect(cluster.addresses, deadline_ms=30_000) as client:
        ids = list((await client.producer().schedule_batch(TOPIC, BODIES, delay_ms=delays_ms)).ids)
        node = follower(cluster)
        await stopped(cluster, node)
        (index,) = cluster.nodes[node].folder.glob(f"state-*/hours/{segment_name(0)}/delay.index")
        units = index.read_bytes()
        start, end = {"the first unit": (40, 41), "a sector": (4_096, 8_192), "the end": (-100, None)}[place]
        decayed = bytearray(units)
        decayed[start:end] = bytes(byte ^ 0x10 for byte in decayed[start:end])
        index.write_bytes(decayed if place != "the end" else decayed[:-100])
        cluster.start(node)
        await asyncio.to_thread(wait_until, lambda: told(cluster, node) == (1, 1, 0))
        assert index.read_bytes()[: len(units)] == units
        await asyncio.to_thread(cluster.wait_until_serving)
        assert (await client.operator().transfer(node)).leader == node
        assert (await client.producer().get(ids[7])).body == BODIES[7]
        assert set(await client.producer().cancel_many(ids)) == {CancelOutcome.CANCELLED}
        await asyncio.to_thread(wait_until, lambda: len(digests(cluster)) == 1)


@pytest.mark.parametrize("role", ["follower", "leader"])
async def test_damage_that_applying_must_read_is_mended_with_a_state_of_a_peer_and_the_journal_stays(
    cluster: LocalCluster, role: str
) -> None:
    leader = cluster.wait_for_leader()
    node = leader if role == "leader" else follower(cluster)
    async with connect(cluster.addresses, deadline_ms=30_000) as client:
        ids = await schedule(client, delay_ms=0)
        async with client.consumer(TOPIC, "g", credit=1_000) as consumer:
            assert len(await receive(consumer, len(ids))) == len(ids)
        (ready,) = cluster.nodes[node].folder.glob("state-*/ready/0/*.ready")
        units = bytearray(ready.read_bytes())
        assert len(units) >= 32 * 200
        ready.write_bytes(bytes(byte ^ 0x10 for byte in units))
        folder = cluster.nodes[node].folder
        async with client.consumer(TOPIC, "later", start=time.time_ns() // 1_000_000):  # reads units
            await asyncio.to_thread(wait_until, (folder / "damaged-1").exists)
            await asyncio.to_thread(wait_until, lambda: told(cluster, node) == (0, 0, 0))
            await asyncio.to_thread(wait_until, lambda: len(digests(cluster)) == 1)
        assert [path.name for path in (folder / "damaged-1").iterdir()] == ["state-1"]
        assert not (folder / "rejoining").exists()
        assert not (folder / "state-damaged").exists()
        assert "left the cluster" not in cluster.nodes[node].log_tail(1_000)
        await stopped(cluster, node)
        cluster.start(node)
        await asyncio.to_thread(cluster.wait_until_serving)
        assert (await client.operator().transfer(node)).leader == node
        assert (await client.producer().get(ids[7])).body == BODIES[7]


async def test_a_record_that_no_node_has_whole_is_counted_holds_up_nothing_and_comes_once_one_has_it(
    cluster: LocalCluster,
) -> None:
    async with connect(cluster.addresses, deadline_ms=30_000) as client:
        ids = await schedule(client, delay_ms=100)
        for name in cluster.nodes:
            await stopped(cluster, name)
            flip(cluster, name, ids[5:6])
        cluster.start()
        leader = await asyncio.to_thread(cluster.wait_until_serving)
        async with client.consumer(TOPIC, "g", credit=1_000) as consumer:
            got = await receive(consumer, len(ids) - 1)
            assert Counter(got) == Counter(set(zip(ids, BODIES, strict=True)) - {(ids[5], BODIES[5])})
            with pytest.raises(Damaged):
                await client.producer().get(ids[5])
            assert told(cluster, leader) == (1, 0, 1)
            await damaged(cluster, follower(cluster), ids[5:6])  # a bit turned twice
            assert await receive(consumer, 1) == [(ids[5], BODIES[5])]
            assert told(cluster, leader) == (1, 1, 0)
