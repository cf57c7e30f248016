"""A delivery that never came is found in the ledgers and made up for, once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tarry.client.aio import connect
from tarry.client.cli.redrive import REDRIVEN_FROM, Fate, missing, redrive
from tarry.client.local.cluster import LocalCluster
from tarry.proto.ledger.arrow import SCHEMA
from tarry.proto.ledger.segment import closed
from tarry.proto.message_id import MessageId
from tarry.spark.generate import write
from tarry.spark.reconcile import Options, Reconciliation
from tests.cluster.disposable import Disposable

PATIENCE_S = 300
BODIES = [b"%d" % number for number in range(20)]


def without(message_id: str, ledger: Path, copy: Path) -> None:
    """Copy a ledger, but for the rows that say that a message was delivered, received or acknowledged."""
    name = MessageId.parse(message_id)
    for path, manifest in closed(ledger):
        rows = pq.read_table(path).cast(SCHEMA)
        mine = pc.and_(
            pc.equal(rows["hour"], name.hour), pc.equal(rows["global_index"], name.global_index)
        ).fill_null(False)
        rows = rows.filter(pc.invert(pc.and_(mine, pc.is_valid(rows["group"]))))
        where = manifest["first_index"], manifest["last_index"], manifest["segment"]
        write(copy, rows, manifest["source"], manifest["run"], *where)


async def live(cluster: LocalCluster, receipts: Path) -> list[str]:
    """Schedule and get some messages; return their ids."""
    async with asyncio.timeout(PATIENCE_S), connect(cluster.addresses, receipts=receipts) as client:
        sent = await client.producer().schedule_batch("orders", BODIES, delay_ms=1)
        async with client.consumer("orders", "g", name="c") as consumer:
            for _ in BODIES:
                await (await anext(consumer)).ack()
        return list(sent.ids)


async def made_up_for(cluster: LocalCluster, out: Path) -> list[tuple[bytes, str]]:
    """Redrive, twice, and return what the group gets of it."""
    async with asyncio.timeout(PATIENCE_S), connect(cluster.addresses) as client:
        for dry_run, wanted in ((True, Fate.REDRIVEN), (False, Fate.REDRIVEN), (False, Fate.DONE_BEFORE)):
            (done,) = [one async for one in redrive(client, out, dry_run=dry_run)]
            assert (done.fate, bool(done.copy)) == (wanted, not dry_run and wanted is Fate.REDRIVEN)
        await client.producer().schedule("orders", b"the last", delay_ms=100)
        got = []
        async with client.consumer("orders", "g") as consumer:
            async for message in consumer:
                await message.ack()
                if message.body == b"the last":
                    return got
                got.append((message.body, message.properties[REDRIVEN_FROM]))
    return got


@pytest.mark.cluster
def test_a_planted_missing_message_is_scheduled_again_once(spark: SparkSession, tmp_path: Path) -> None:
    ledgers, out = tmp_path / "ledgers", tmp_path / "out"
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        ids = asyncio.run(live(cluster, tmp_path / "receipts"))
        cluster.stop("n1")
        for folder in (tmp_path / "n1" / "ledger", *(tmp_path / "receipts").iterdir()):
            without(ids[7], folder, ledgers)
        summary = Reconciliation(spark, Options([str(ledgers)], str(out), settle_ms=0)).run()
        assert (summary["missing"], summary["delivered_once"]) == (1, len(BODIES) - 1)
        (lost,) = missing(out)
        assert (lost.id, lost.topic, lost.groups, lost.check) == (ids[7], "orders", ("g",), "never_delivered")
        cluster.start("n1")
        cluster.wait_until_serving()
        assert asyncio.run(made_up_for(cluster, out)) == [(BODIES[7], ids[7])]


def test_what_was_never_reconciled_is_not_redriven(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name LEDGER"):
        next(missing(tmp_path))
    shutil.rmtree(tmp_path)
