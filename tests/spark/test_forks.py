"""Replicas that say different things, and are right: one went on alone, one cannot read a record any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.node.delivery.batch import DeliveryBatch
from tarry.node.delivery.waiting_messages import WAITING
from tarry.node.ledger.went_alone import WentAlone, mark
from tarry.spark import ledger
from tarry.spark.checks import replicas, segments
from tarry.spark.ledger import Segment
from tarry.spark.reconcile import Options, Reconciliation
from tarry.wheel.state import HOUR_MS
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, ack, release, schedule, subscribe

KEPT = [schedule([NOW_MS + 1, NOW_MS + 2]), subscribe(), release(NOW_MS + 5, now_ms=NOW_MS + 2)]
FORGOTTEN = [schedule([NOW_MS + 3, NOW_MS + 4]), ack([0])]
LATER_MS = 1_000
AFTERWARDS = [schedule([NOW_MS + LATER_MS + 50], now_ms=NOW_MS + LATER_MS + 10 + one) for one in range(3)]


def deliver(replica: Replica, *places: int) -> None:
    """Have the replica deliver messages, by their places in the hour, to the group."""
    units = np.zeros(len(places), dtype=WAITING)
    units["due_ms"], units["offset"] = replica.now_ms, places
    hour = np.full(len(places), NOW_MS // HOUR_MS, np.uint32)
    index = np.array(places, np.uint32)
    records = [b""] * len(places)
    batch = DeliveryBatch(0, 0, units, hour, index, np.ones_like(index), None, records, index, units[:0], 0)
    replica.ledger.delivered(batch, "t", "g", "c", 1)


async def played(
    folder: Path, node: str, *parts: tuple[Sequence[bytes | int], int, int], **settings: Any
) -> None:
    """Write a replica's ledger, of one run: commands, or which message it delivers, with the term, from a
    time on.
    """
    replica = Replica(folder / node, node=node, **settings)
    for commands, term, at_ms in parts:
        for number, command in enumerate(commands):
            replica.now_ms = NOW_MS + at_ms + number
            if isinstance(command, int):
                deliver(replica, command)
            else:
                replica.apply(command, term=term)
            await replica.ledger.write()
    await replica.ledger.close()
    replica.machine.close()


def anew(folder: Path) -> None:
    """Have all replicas begin without a state: they apply all of the new history, as after `--rejoin`."""
    for node in ("n1", "n2"):
        shutil.rmtree(folder / node / "state")


async def test_what_was_given_up_where_a_node_went_on_alone_is_no_disagreement(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One replica has entries that the other, which went on alone, never had."""
    await played(tmp_path, "n1", (KEPT, 1, 0), (FORGOTTEN, 1, 10))
    await played(tmp_path, "n2", (KEPT, 1, 0))
    anew(tmp_path)
    mark(tmp_path / "n2", WentAlone(len(KEPT), NOW_MS + 900, 0))
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


def due(at_ms: int) -> list[bytes]:
    """Schedule a message, and release it when it is due."""
    now_ms = NOW_MS + at_ms
    return [schedule([now_ms + 1], now_ms=now_ms), release(now_ms + 5, now_ms=now_ms + 2)]


LOST = [*due(20), 2, *due(30), subscribe(group="lost"), ack([2]), *due(40), 3]
FOUND = [*due(LATER_MS + 20), *due(LATER_MS + 30)]
EACH = {"segment_rows_max": 1}
"""A segment for each entry, so that a dead node has begun some behind the fork."""


async def went_on_alone(folder: Path, found: Sequence[bytes], delivered: Sequence[int]) -> None:
    """Write the ledgers of a node that dies with what the other never had, and of what both have then."""
    await played(folder, "n1", (KEPT, 1, 0), ([0, 1], 1, 5), (LOST, 1, 50), **EACH)
    await played(folder, "n2", (KEPT, 1, 0))
    anew(folder)
    mark(folder / "n2", WentAlone(len(KEPT), NOW_MS + 900, 0))
    await played(folder, "n2", (KEPT, 1, LATER_MS), ([*found, *delivered], 2, LATER_MS + 50))
    await played(folder, "n1", (KEPT, 1, LATER_MS), (found, 2, LATER_MS + 50))


async def test_nothing_counts_of_segments_that_a_dead_node_began_behind_the_fork(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The message at the place of one that was given up is lost, and the older delivery is none of it."""
    await went_on_alone(tmp_path, FOUND, [3])
    job = Reconciliation(spark, Options([str(tmp_path)], str(tmp_path / "out"), settle_ms=0))
    summary = job.run()
    assert summary["violations"] == {"never_delivered": 1}
    assert summary["remarks"] == {"gap_declared": 1, "never_settled": 2}
    assert (summary["scheduled"], summary["whole"]) == (4, True)
    assert "lost" not in {event["group"] for event in job.events}
    [of_n1] = [one for one in replicas.coverage(job.sound) if one.source == "n1"]
    assert (of_n1.first_index, of_n1.last_index) == (0, len(KEPT) + len(FOUND))


async def test_the_last_event_is_none_that_was_given_up(spark: SparkSession, tmp_path: Path) -> None:
    await went_on_alone(tmp_path, [], [])
    every = ledger.closed(spark, [str(tmp_path)])
    left = ledger.without_forgotten(spark, every, segments.forks(ledger.node_events(spark, every)))
    assert ledger.last_ms(spark, every) > NOW_MS + 20
    assert ledger.last_ms(spark, left) == NOW_MS + 2
    assert ledger.begin(left) == 0


def test_a_replica_that_lacks_what_came_before_what_was_given_up_is_compared_from_its_beginning() -> None:
    """Of the dead node's old files only one is left, that began behind the fork at 10."""
    parts = [(1, 10, 10), (2, 0, 40)]
    some = [
        Segment(f"n1-{number}", "n1", "r", number, first, last, 0, 0, 1, 1, 1, {})
        for number, first, last in parts
    ]
    assert [(one.number, one.fresh_from) for one in ledger.chosen(some)] == [(2, 0), (1, 10)]


def of_n2(rows: DataFrame, kind: str = "acked", **columns: Column) -> DataFrame:
    """Return the rows, of which the second replica's say something else where they are of a kind."""
    its = (F.col("source") == "n2") & (F.col("kind") == kind)
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
    # what is told of a message without reading a retry's record has its name
    assert replicas.differing(of_n2(rows, "scheduled", **unread), covered).count() == 4
    assert replicas.differing(of_n2(rows, "released", **unread), covered).count() == 4
    both = rows.withColumn("group", F.when(F.col("kind") == "released", "g").otherwise(F.col("group")))
    assert replicas.differing(of_n2(both, "released", **unread), covered).count() == 0
