"""Replicas that say different things, and are right: one went on alone, one cannot read a record any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.node.ledger.ledger import RECOVERED
from tarry.spark import ledger
from tarry.spark.checks import replicas, segments
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, ack, release, schedule, subscribe

KEPT = [schedule([NOW_MS + 1, NOW_MS + 2]), subscribe(), release(NOW_MS + 5, now_ms=NOW_MS + 2)]
FORGOTTEN = [schedule([NOW_MS + 3, NOW_MS + 4]), ack([0])]
LATER_MS = 1_000
AFTERWARDS = [schedule([NOW_MS + LATER_MS + 50], now_ms=NOW_MS + LATER_MS + 10 + one) for one in range(3)]


async def played(folder: Path, node: str, *parts: tuple[Sequence[bytes], int, int]) -> None:
    """Write a replica's ledger, of one run: commands with their term, from a time on."""
    replica = Replica(folder / node, node=node)
    for commands, term, at_ms in parts:
        for number, command in enumerate(commands):
            replica.now_ms = NOW_MS + at_ms + number
            replica.apply(command, term=term)
            await replica.ledger.write()
    await replica.ledger.close()
    replica.machine.close()


async def test_what_was_given_up_where_a_node_went_on_alone_is_no_disagreement(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One replica has entries that the other, which went on alone, never had."""
    await played(tmp_path, "n1", (KEPT, 1, 0), (FORGOTTEN, 1, 10))
    await played(tmp_path, "n2", (KEPT, 1, 0))
    for node in ("n1", "n2"):
        shutil.rmtree(tmp_path / node / "state")  # each plays all of the new history, as after `--rejoin`
    (tmp_path / "n2" / RECOVERED).write_bytes(b"%d" % len(KEPT))
    for node in ("n2", "n1"):
        await played(tmp_path, node, (KEPT, 1, LATER_MS), (AFTERWARDS, 2, LATER_MS + 10))

    every = ledger.closed(spark, [str(tmp_path)])
    assert replicas.differing(ledger.rows(spark, every), replicas.coverage(every)).count() > 0
    forks = segments.forks(ledger.node_events(spark, every))
    assert {fork.index for fork in forks} == {len(KEPT)}
    left = ledger.without_forgotten(spark, every, forks)
    rows = ledger.rows(spark, left)
    assert replicas.differing(rows, replicas.coverage(left)).count() == 0
    scheduled = rows.where((F.col("kind") == "scheduled") & ledger.counted())
    assert scheduled.count() == 5  # and not what was given up


def of_n2(rows: DataFrame, **columns: Column) -> DataFrame:
    """Return the rows, of which the second replica's say something else of acknowledgements."""
    its = (F.col("source") == "n2") & (F.col("kind") == "acked")
    return rows.withColumns(
        {name: F.when(its, value).otherwise(F.col(name)) for name, value in columns.items()}
    )


async def test_a_replica_that_cannot_name_a_message_does_not_disagree(
    spark: SparkSession, tmp_path: Path
) -> None:
    for node in ("n1", "n2"):
        await played(tmp_path, node, (KEPT, 1, 0), (FORGOTTEN, 1, 10))
    every = ledger.closed(spark, [str(tmp_path)])
    rows, covered = ledger.rows(spark, every), replicas.coverage(every)
    unread = {"hour": F.lit(None), "global_index": F.lit(None), "attempt": F.lit(0)}
    assert replicas.differing(of_n2(rows, **unread), covered).count() == 0
    assert replicas.differing(of_n2(rows, attempt=F.lit(7)), covered).count() == 1
    assert replicas.differing(of_n2(rows, **unread, offset=F.lit(7)), covered).count() == 1
