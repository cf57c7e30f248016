"""The ledgers of a real cluster say what its clients saw, through the death of a leader."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import psutil
import pyarrow.parquet as pq
import pytest

from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.ledger.schema import REPLICATED, Kind, Manifest
from tarry.proto.ledger.segment import closed
from tarry.proto.message_id import MessageId

pytestmark = pytest.mark.beside

PATIENCE_S = 60
COUNT = 300
KILL_AFTER = 100  # messages
CREDIT = 50
Row = dict[str, Any]


def read(folder: Path) -> tuple[list[Manifest], list[Row]]:
    """A node's segments in order and their rows; every manifest is held to its file."""
    manifests, rows = [], []
    for path, manifest in closed(folder):
        data = path.read_bytes()
        found = pq.read_table(path).to_pylist()
        assert (manifest["bytes"], manifest["crc32c"]) == (len(data), google_crc32c.value(data))
        assert manifest["kinds"] == Counter(row["kind"] for row in found)
        assert path.parent.name.startswith("date=")
        manifests.append(manifest)
        rows += found
    return manifests, rows


def replicated(rows: list[Row]) -> dict[tuple[int, ...], Row]:
    """Replicated rows by identity; one that is told twice is told alike."""
    found: dict[tuple[int, ...], Row] = {}
    for row in rows:
        if row["kind"] in REPLICATED:
            content = {name: value for name, value in row.items() if name not in {"source", "run"}}
            key = (row["shard"], row["term"], row["index"], row["position"])
            assert found.setdefault(key, content) == content
    return found


async def traffic(client: Client, cluster: LocalCluster) -> dict[str, Any]:
    """Schedule, cancel, deliver, nack until dead, kill the leader; return what was seen."""
    producer = client.producer()
    kept = await producer.schedule_batch("life", [b"x"] * COUNT, delay_ms=1_500)
    dropped = await producer.schedule_batch("life", [b"y"] * 20, delay_ms=60_000)
    await producer.cancel_many(dropped.ids[:5])
    delivered: Counter[str] = Counter()
    nacked: list[str] = []
    letters: list[str] = []
    killed = False
    async with client.consumer("life", "g", credit=CREDIT) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            async for message in consumer:
                delivered[message.id] += 1
                if message.id in kept.ids[:3]:
                    nacked.append(message.id)
                    await message.nack(delay_ms=10)
                else:
                    await message.ack()
                if not killed and len(delivered) >= KILL_AFTER:
                    killed = True
                    found = cluster.wait_for_leader()
                    cluster.kill(found)
                    cluster.restart(found)
                if len(delivered) == COUNT and max(delivered[one] for one in kept.ids[:3]) >= 3:
                    break
    async with client.consumer("dlq.g.life", "g") as consumer, asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            letters.append(message.id)
            await message.ack()
            if len(letters) == 3:
                break
    return {"kept": kept.ids, "dropped": dropped.ids, "delivered": delivered, "nacked": nacked}


async def told_all(client: Client) -> bool:
    """Whether every node has applied, the same."""
    answers = (await client.operator().status_of_all()).values()
    applied = {answer.applied_index for answer in answers if isinstance(answer, ClusterStatus)}
    return len(applied) == 1 and all(isinstance(answer, ClusterStatus) for answer in answers)


async def test_ledgers_agree_with_one_another_and_with_the_clients(tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path, settings={"delivery": {"attempts_max": 3, "lease_ms": 3_000}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses) as client:
            seen = await traffic(client, cluster)
            async with asyncio.timeout(PATIENCE_S):
                while not await told_all(client):  # noqa: ASYNC110  others' processes
                    await asyncio.sleep(0.1)
        for name in cluster.nodes:
            await asyncio.to_thread(cluster.stop, name)
    ledgers = {name: read(tmp_path / name / "ledger") for name in cluster.nodes}

    told = {name: replicated(rows) for name, (_, rows) in ledgers.items()}
    last = min(max(manifest["last_index"] for manifest in manifests) for manifests, _ in ledgers.values())
    upto = {
        name: {key: row for key, row in rows.items() if row["index"] <= last} for name, rows in told.items()
    }
    first, *others = upto.values()
    assert all(other == first for other in others)
    for manifests, _ in ledgers.values():
        covered = 0
        for manifest in manifests:
            assert manifest["first_index"] <= covered
            covered = max(covered, manifest["last_index"])
    own = [row for _, every in ledgers.values() for row in every]
    gaps = [row["detail"] for row in own if row["kind"] == Kind.GAP]
    assert all(gap.endswith(" KILLED") for gap in gaps)

    def ids(kind: Kind, rows: list[Row], topic: str = "life") -> Counter[str]:
        chosen = [row for row in rows if row["kind"] == kind and row["topic"] == topic]
        return Counter(str(MessageId(0, row["hour"], row["global_index"])) for row in chosen)

    rows = list(first.values())
    assert ids(Kind.SCHEDULED, rows) == Counter([*seen["kept"], *seen["dropped"]])
    assert ids(Kind.CANCELLED, rows) == Counter(seen["dropped"][:5])
    assert set(ids(Kind.ACKED, rows)) == set(seen["kept"][3:])
    assert ids(Kind.DEAD, rows) == Counter(seen["kept"][:3])
    assert len(ids(Kind.SCHEDULED, rows, "dlq.g.life")) == 3
    delivered = ids(Kind.DELIVERED, own)
    assert set(list(seen["delivered"])[KILL_AFTER + CREDIT :]) <= set(delivered)  # none of these is in a gap
    assert {row["detail"] for row in own if row["kind"] == Kind.LEADERSHIP} >= {"leader"}
    assert set(ids(Kind.NACKED, own)) <= set(seen["kept"][:3])


async def test_an_operator_takes_every_ledger_out(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    async with connect(shared_cluster.addresses) as client:
        done = await client.producer().schedule_batch("export", [b"x"] * 9, delay_ms=3_600_000)
    command = [sys.executable, "-m", "tarry.node", "ledger", "export", "--to", str(tmp_path), "-o", "json"]
    ran = await asyncio.create_subprocess_exec(
        *command, "--server", shared_cluster.addresses, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await ran.communicate()
    assert ran.returncode == 0
    told = {row["node"]: row for row in json.loads(output)}
    assert set(told) == set(shared_cluster.nodes)
    for name, row in told.items():
        manifests, rows = read(tmp_path / name)
        assert sum(manifest["rows"] for manifest in manifests) == row["rows"] == len(rows)
    _, rows = read(tmp_path / await asyncio.to_thread(shared_cluster.wait_for_leader))
    own = {str(MessageId(0, row["hour"], row["global_index"])) for row in rows if row["topic"] == "export"}
    assert own == set(done.ids)


async def test_a_node_that_does_not_answer_is_named_and_the_others_ledgers_are_taken_out(
    tmp_path: Path,
) -> None:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        cluster.stop("n3")
        cluster.wait_until_serving()
        command = [
            sys.executable,
            "-m",
            "tarry.node",
            "ledger",
            "export",
            "--to",
            str(tmp_path),
            "-o",
            "json",
        ]
        ran = await asyncio.create_subprocess_exec(
            *command, "--server", cluster.addresses, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await ran.communicate()
    assert ran.returncode == 3
    assert sorted("error" if "error" in row else row["node"] for row in json.loads(output)) == [
        "error", "n1", "n2",
    ]  # fmt: skip


async def test_the_process_that_closes_segments_ends_with_its_killed_node_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    with LocalCluster(1, tmp_path, settings={"ledger": {"segment_rows_max": 1, "flush_ms": 10}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        node = cluster.nodes["n1"].process
        assert node is not None
        async with connect(cluster.addresses) as client, asyncio.timeout(PATIENCE_S):
            done = await client.producer().schedule_batch("life", [b"x"] * 9, delay_ms=3_600_000)
            while not (closers := psutil.Process(node.pid).children()):
                await client.producer().schedule("life", b"x", delay_ms=3_600_000)
            closers[0].suspend()  # so that it is not ready before the node is killed
        cluster.kill("n1")
        closers[0].resume()
        await asyncio.to_thread(closers[0].wait, PATIENCE_S)
        cluster.start("n1")
        cluster.wait_until_serving()
        await asyncio.to_thread(cluster.stop, "n1")
    _, rows = read(tmp_path / "n1" / "ledger")
    told = [str(MessageId(0, row["hour"], row["global_index"])) for row in rows if row["topic"] == "life"]
    assert set(done.ids) <= set(told)
    assert list((tmp_path / "n1" / "ledger" / "open").iterdir()) == []


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for 256 KiB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this process may not mount a file system, so none can be full")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


async def test_a_full_disk_of_the_ledger_stops_no_delivery_and_leaves_a_gap(
    little_disk: Path, tmp_path: Path
) -> None:
    ledger: dict[str, Setting] = {
        "folder": str(little_disk),
        "disk_free_bytes_min": 1,
        "buffer_bytes_max": 100_000,
    }
    filler = little_disk / "filler"
    with LocalCluster(1, tmp_path, settings={"ledger": ledger}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        filler.write_bytes(bytes(192 << 10))
        async with (
            asyncio.timeout(2 * PATIENCE_S),
            connect(cluster.addresses) as client,
            client.consumer("full", "g") as consumer,
        ):

            async def delivered(count: int = 500) -> None:
                await client.producer().schedule_batch("full", [b"x"] * count, delay_ms=1)
                async for batch in consumer.batches():
                    batch.ack_soon()
                    count -= len(batch)
                    if not count:
                        return

            while (told := cluster.status("n1")) is None or not told.ledger.failure:
                await delivered()
            assert "[Errno 28]" in told.ledger.failure  # of a write, or of the look at what is free before it
            while (told := cluster.status("n1")) is None or not told.ledger.dropped:
                await delivered()
            await delivered()
            filler.unlink()
            while (told := cluster.status("n1")) is None or told.ledger.failure:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await asyncio.to_thread(cluster.stop, "n1")
    _, rows = read(little_disk)
    gaps = [row["detail"] for row in rows if row["kind"] == Kind.GAP]
    assert any(gap.endswith(" WRITE_FAILED") for gap in gaps)
