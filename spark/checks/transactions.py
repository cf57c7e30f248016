"""Check that transactions have ended once, and that what was rolled back is no message."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionEvent
from tarry.spark.checks.messages import violation
from tarry.spark.ledger import counted
from tarry.spark.schema import is_kind

UNRESOLVED: Final = "transaction_unresolved"
"""A remark: no producer has ended it, and its message is a dead letter."""


def wrong_transactions(rows: DataFrame) -> DataFrame:
    """Return VIOLATIONs: `committed_twice`, `rolled_back_delivered`, and the remark `transaction_unresolved`.

    From ledger.rows. That a committed message is delivered, the checks of messages tell: from its commit on
    it is one as any other.
    Of all rows those of ends of transactions are shuffled.
    """
    ends = _ends(rows)
    same = Window.partitionBy("transaction")
    before = same.orderBy("index", "position").rowsBetween(Window.unboundedPreceding, -1)
    of_commit = F.col("event") == TransactionEvent.COMMITTED
    seen = ends.select(
        "*",
        F.coalesce(F.max(of_commit).over(before), F.lit(False)).alias("committed_before"),
        F.max(~of_commit).over(same).alias("rolled_back"),
    )
    found = F.array(
        F.when(of_commit & F.col("committed_before"), F.lit("committed_twice")),
        F.when(of_commit & F.col("rolled_back"), F.lit("rolled_back_delivered")),
        F.when(F.col("event") == TransactionEvent.UNRESOLVED, F.lit(UNRESOLVED)),
    )
    text = F.concat(
        F.lit("transaction "), F.col("name"), F.lit(" of producer group "), F.col("producer_group")
    )
    told = seen.withColumn("check", F.explode(F.array_compact(found)))
    promise = F.col("check") != UNRESOLVED
    return told.select(*violation(F.col("check"), text, promise=promise))


def _ends(rows: DataFrame) -> DataFrame:
    """Return the rows of ends, with `event`, `producer_group`, `name` string and `transaction` long."""
    part = F.split("detail", " ", 4)
    return (
        rows.where(counted() & (_is_committed() | is_kind(F.col("number"), Kind.ROLLED_BACK)))
        .select(
            "hour", "global_index", "topic", "group", "due_ms", "at_ms", "index", "position", "source",
            part[0].alias("event"), part[1].cast("long").alias("transaction"),
            part[2].alias("producer_group"), part[3].alias("name"),
        )
    )  # fmt: skip


def _is_committed() -> Column:
    begins = F.col("detail").startswith(f"{TransactionEvent.COMMITTED} ")
    return is_kind(F.col("number"), Kind.SCHEDULED) & F.coalesce(begins, F.lit(False))
