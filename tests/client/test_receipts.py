"""Receipts: what a producer and a consumer saw, and nothing that they did not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tarry.client.aio import connect
from tarry.client.receipts import Receipts, finish
from tarry.proto.ledger.schema import COLUMNS, REPEATED, Kind
from tarry.proto.ledger.segment import closed
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_producer_pb2 import ScheduleBatchResponse
from tests.client.stand_in import ClusterStandIn, GroupStandIn, take

Row = dict[str, Any]


def rows(folder: Path) -> list[Row]:
    found: list[Row] = []
    for one in sorted(folder.iterdir()):
        for path, manifest in closed(one):
            found += pq.read_table(path).to_pylist()
            assert manifest["source"].replace(":", "_") == one.name
    return found


async def test_a_producer_keeps_what_it_has_the_ok_for(cluster: ClusterStandIn, tmp_path: Path) -> None:
    async with connect(cluster.addresses, receipts=tmp_path) as client:
        producer = client.producer()
        batch = await producer.schedule_batch("orders", [b"a", b"b"], due_ms=1_900_000_000_000)
        single = await producer.schedule("mail", b"c", due_ms=1_900_000_000_007)
    told = rows(tmp_path)
    assert list(told[0]) == list(COLUMNS)
    ids = [str(MessageId(0, row["hour"], row["global_index"])) for row in told]
    assert ids == [*batch.ids, single.id]
    assert [(row["kind"], row["topic"], row["position"]) for row in told] == [
        (Kind.PRODUCED, "orders", 0),
        (Kind.PRODUCED, "orders", 1),
        (Kind.PRODUCED, "mail", 2),
    ]
    assert {row["source"] for row in told} == {f"producer:{producer.id}"}
    assert {(row["index"], row["term"], row["offset"]) for row in told} == {(-1, -1, None)}


async def test_a_consumer_keeps_what_it_was_given_and_the_acks_that_counted(
    cluster: ClusterStandIn, group: GroupStandIn, tmp_path: Path
) -> None:
    group.stale = {1}
    async with (
        connect(cluster.addresses, receipts=str(tmp_path)) as client,
        client.consumer("orders", "g", name="c1") as consumer,
    ):
        await group.deliver(range(4), attempt=[1, 1, 3, 1], maybe_duplicate=[2])
        taken = await take(consumer, 3)  # the fourth waits in the client: the application never had it
        for message in taken[:2]:
            await message.ack()
        await taken[2].nack()
    told = rows(tmp_path)
    assert [(row["kind"], row["offset"], row["attempt"], row["maybe_duplicate"]) for row in told] == [
        (Kind.RECEIVED, 0, 1, False),
        (Kind.RECEIVED, 1, 1, False),
        (Kind.RECEIVED, 2, 3, True),
        (Kind.ACK_ANSWERED, 0, 1, False),
    ]
    assert {(row["source"], row["group"], row["consumer"]) for row in told} == {("consumer:c1", "g", "c1")}
    assert told[0]["term"] == 2
    assert (told[0]["hour"], told[0]["global_index"]) == (told[3]["hour"], told[3]["global_index"])


async def test_what_a_killed_process_wrote_is_not_lost(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path, "producer:p1")
    done = ScheduleBatchResponse(hour=[5, 5], global_index=[6, 2], due_ms=[7, 7], repeats=[1])
    receipts.produced(["t"], None, done)
    await receipts._write()  # then it is killed
    assert rows(tmp_path) == []
    assert finish(tmp_path) == 2
    told, again = rows(tmp_path)
    assert (told["detail"], again["detail"], again["global_index"]) == (None, REPEATED, 2)
    assert (told["source"], told["hour"], told["global_index"]) == ("producer:p1", 5, 6)
    assert receipts._task is not None
    receipts._task.cancel()


async def test_a_folder_that_cannot_be_written_stops_nothing(cluster: ClusterStandIn, tmp_path: Path) -> None:
    obstacle = tmp_path / "receipts"
    obstacle.touch()
    async with connect(cluster.addresses, receipts=obstacle) as client:
        producer = client.producer()
        assert (await producer.schedule_batch("orders", [b"a"], delay_ms=5)).ids


def test_a_client_without_receipts_does_not_load_arrow() -> None:
    loaded = "import tarry.client.aio, tarry.client.sync, tarry.client.cli.main, sys"
    code = f"{loaded}; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
