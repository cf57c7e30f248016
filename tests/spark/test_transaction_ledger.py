"""Ledgers of a real cluster whose transactions ended while its leaders died, reconciled by Spark."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from tarry.client.aio import Half, TransactionEnd, connect
from tarry.client.errors import OutcomeUnknown, Overloaded, Unavailable
from tarry.client.local.cluster import LocalCluster
from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionEvent, transaction_in
from tarry.spark.checks import messages
from tarry.spark.checks.messages import CHECKS
from tarry.spark.checks.transactions import UNRESOLVED, wrong_transactions
from tarry.spark.facts import events, facts, with_pairs
from tarry.spark.reconcile import Options, Reconciliation
from tarry.spark.schema import NUMBERS
from tests.cluster.disposable import Disposable

KILLS = 2
EACH = 6
"""Transactions before each kill of the leader: a third is committed, rolled back, left."""
PLACED = frozenset(("placed", "left-placed"))
SETTINGS = {
    "transactions": {
        "check_after_ms": 500,
        "check_pauses_ms": [500],
        "checks_max": 200,
        "groups": {"gone": {"check_after_ms": 500, "check_pauses_ms": [500], "checks_max": 2}},
    }
}


async def check(half: Half) -> TransactionEnd:
    return TransactionEnd.COMMIT if half.name.rsplit("-", 2)[0] in PLACED else TransactionEnd.ROLLBACK


async def trade(cluster: LocalCluster) -> set[str]:
    """Prepare and end transactions through kills of the leader; return the ids of the messages that came."""
    came: set[str] = set()
    receipts = cluster.folder / "receipts"
    async with asyncio.timeout(300), connect(cluster.addresses, receipts=receipts) as client:
        await client.operator().finish_upgrade()
        await client.operator().create_topic("orders")
        await client.operator().create_group("orders", "g")
        transactions = client.transactions()
        async with client.producer(group="shop", check=check) as producer:
            for kill in range(KILLS):
                for number in range(EACH):
                    fate = ("placed", "refused", "left-placed")[number % 3]
                    name = f"{fate}-{kill}-{number}"
                    if fate == "placed":
                        async with producer.transaction("orders", b"x", name=name, delay_ms=200):
                            pass
                        continue
                    await transactions.prepare("shop", "orders", b"x", name=name, delay_ms=200)
                    if fate == "refused":
                        await transactions.rollback("shop", name)
                await transactions.prepare("gone", "orders", b"x", name=f"{kill}", delay_ms=0)
                leader = (await client.operator().status()).leader
                cluster.kill(leader)
                cluster.start(leader)
                await asyncio.to_thread(cluster.wait_until_serving)
            while True:
                try:
                    if not (await transactions.list_page(size=1)).open:
                        break
                except (Unavailable, OutcomeUnknown, Overloaded):
                    pass
                await asyncio.sleep(0.1)
            ids = {one.id async for one in transactions.list(ended=True) if one.id}
            async with client.consumer("orders", "g", name="c") as consumer:
                async for message in consumer:
                    came.add(message.id)
                    await message.ack()
                    if came >= ids:
                        break
    assert came == ids
    return came


@pytest.mark.cluster
def test_transactions_of_a_cluster_whose_leaders_die_are_each_in_its_ledgers_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Disposable(3, tmp_path / "cluster", SETTINGS) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        came = asyncio.run(trade(cluster))
        for name in cluster.nodes:
            cluster.stop(name)
        folders = [str(node.folder / "ledger") for node in cluster.nodes.values()]
        folders += map(str, (cluster.folder / "receipts").glob("producer_*"))
        job = Reconciliation(spark, Options(folders, str(tmp_path / "out"), settle_ms=0))
        job.run()
    assert job.violations.where("promise and check not like 'gap%'").collect() == []
    unresolved = job.violations.where(F.col("check") == UNRESOLVED).collect()
    assert len(unresolved) == KILLS
    of_transactions = job.rows.where(
        "kind in ('prepared', 'scheduled', 'rolled_back') and detail is not null"
    )
    rows = of_transactions.dropDuplicates(["index", "position", "kind"]).collect()
    told = Counter(one.event for one in (transaction_in(row["detail"]) for row in rows) if one is not None)
    assert told == {
        TransactionEvent.HALF: KILLS * EACH + KILLS,
        TransactionEvent.COMMITTED: len(came),
        TransactionEvent.ROLLED_BACK: KILLS * EACH - len(came),
        TransactionEvent.UNRESOLVED: KILLS,
    }
    commits = job.rows.where("kind = 'scheduled' and detail like 'COMMITTED %'")
    twice = job.rows.unionByName(commits.withColumn("position", F.col("position") + 1_000))
    assert "committed_twice" in {one["check"] for one in wrong_transactions(twice, job.span).collect()}
    ended = commits.withColumn("detail", F.regexp_replace("detail", "COMMITTED", "ROLLED_BACK"))
    planted = ended.withColumn("kind", F.lit("rolled_back"))
    both = job.rows.unionByName(planted.withColumn("number", F.lit(NUMBERS[Kind.ROLLED_BACK])))
    assert "rolled_back_delivered" in {one["check"] for one in wrong_transactions(both, job.span).collect()}
    first = job.rows.where("kind = 'released' and topic = 'orders'").orderBy("offset").first()
    assert first is not None
    assert wrong_without(job, first, ["delivered", "acked"]) == {"never_delivered"}
    assert wrong_without(job, first, ["released", "delivered", "acked"]) == {"never_released"}
    of_nodes = ["scheduled", "released", "delivered", "acked"]
    assert wrong_without(job, first, of_nodes) == {"never_scheduled"}  # its commit was acknowledged


def wrong_without(job: Reconciliation, message: Row, kinds: list[str]) -> set[str]:
    """Return the checks that find a committed message without what its ledgers tell of these kinds."""
    own = (F.col("hour") == message["hour"]) & (F.col("global_index") == message["global_index"])
    rows = job.rows.where(~(own & F.col("kind").isin(*kinds)) | ~F.coalesce(own, F.lit(False)))
    every = with_pairs(facts(events(rows, job.pairs), 2), job.pairs)
    suspicious = messages.suspicious(every, job.span)
    found = messages.violations(suspicious, list(CHECKS), job.span).where("promise").collect()
    assert {(one["hour"], one["global_index"]) for one in found} == {
        (message["hour"], message["global_index"])
    }
    return {one["check"] for one in found}
