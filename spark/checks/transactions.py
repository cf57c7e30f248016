"""Check that transactions are prepared, then end once, and that what was rolled back is no message."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionEvent
from tarry.spark.checks.messages import Span, violation
from tarry.spark.ledger import counted
from tarry.spark.schema import is_kind

UNRESOLVED: Final = "transaction_unresolved"
"""A remark: no producer has ended it, and its message is a dead letter."""
OPEN: Final = "transaction_open"
"""A remark: it has no end yet. Its checks go on, for as long as the nodes' configuration says."""


def wrong_transactions(rows: DataFrame, span: Span) -> DataFrame:
    """Return VIOLATIONs and the remarks `transaction_unresolved` and `transaction_open`; from ledger.rows.

    `committed_twice`, `rolled_back_delivered`; `never_prepared`: an end without a half message before it,
    where the ledgers begin with the first entry of the log. That a committed message is delivered, the checks
    of messages tell: from its commit on it is one as any other. Of all rows those of transactions are
    shuffled.
    """
    same = Window.partitionBy("transaction", "producer_group", "name")  # numbers begin again in a new cluster
    before = same.orderBy("index", "position").rowsBetween(Window.unboundedPreceding, -1)
    of_half, of_commit, of_unresolved = (
        F.col("event") == event
        for event in (TransactionEvent.HALF, TransactionEvent.COMMITTED, TransactionEvent.UNRESOLVED)
    )
    seen = _events(rows).select(
        "*",
        F.coalesce(F.max(of_half).over(before), F.lit(False)).alias("prepared_before"),
        F.coalesce(F.max(of_commit).over(before), F.lit(False)).alias("committed_before"),
        F.max(~of_commit & ~of_half).over(same).alias("rolled_back"),
        F.max(~of_half).over(same).alias("ended"),
    )
    unprepared = F.lit(span.whole) & ~of_half & ~F.col("prepared_before")
    found = F.array(
        F.when(unprepared, F.lit("never_prepared")),
        F.when(of_commit & F.col("committed_before"), F.lit("committed_twice")),
        F.when(of_commit & F.col("rolled_back"), F.lit("rolled_back_delivered")),
        F.when(of_unresolved, F.lit(UNRESOLVED)),
        F.when(of_half & ~F.col("ended") & (F.col("at_ms") <= span.as_of_ms), F.lit(OPEN)),
    )
    text = F.concat(
        F.lit("transaction "), F.col("name"), F.lit(" of producer group "), F.col("producer_group")
    )
    told = seen.withColumn("check", F.explode(F.array_compact(found)))
    promise = ~F.col("check").isin(UNRESOLVED, OPEN)
    return told.select(*violation(F.col("check"), text, promise=promise))


def _events(rows: DataFrame) -> DataFrame:
    """Return the rows of half messages and of ends.

    With `event`, `producer_group`, `name` string and `transaction` long.
    """
    part, number = F.split("detail", " ", 4), F.col("number")
    outside = is_kind(number, Kind.PREPARED) | is_kind(number, Kind.ROLLED_BACK)  # of the wheel's messages
    return (
        rows.where(counted() & (_is_committed() | outside))
        .select(
            "hour", "global_index", "topic", "group", "due_ms", "at_ms", "index", "position", "source",
            part[0].alias("event"), part[1].cast("long").alias("transaction"),
            part[2].alias("producer_group"), part[3].alias("name"),
        )
    )  # fmt: skip


def _is_committed() -> Column:
    begins = F.col("detail").startswith(f"{TransactionEvent.COMMITTED} ")
    return is_kind(F.col("number"), Kind.SCHEDULED) & F.coalesce(begins, F.lit(False))
