"""Check that messages of one ordering key were delivered in order."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.checks.messages import violation
from tarry.spark.schema import delay_ms, is_kind


def out_of_order(rows: DataFrame, begins: DataFrame) -> DataFrame:
    """Return first deliveries that came after one of the same key and group that they precede, as VIOLATIONs.

    A message precedes another whose offset is higher and whose due time is not earlier. A leader delivers in
    the order of due times among what is released, so either alone proves nothing: one that is scheduled late
    may have the earlier due time and the higher offset. Of the deliveries before, only the one with the
    highest offset and the one with the latest due time are compared with.

    From ledger.rows and pairs.BEGINS: a group that was moved is judged from then on. Retries and marked
    repetitions are left out, as they may come later. Only rows with an ordering key are shuffled, by key; a
    key's rows are sorted on disk, so one with most of the rows takes time, not memory.
    """
    first = is_kind(F.col("number"), Kind.DELIVERED) & (F.col("attempt") == 1) & ~F.col("maybe_duplicate")
    delivered = Window.partitionBy("topic", "group", "order_key").orderBy(
        "term", "at_ms", "source", "run", "position"
    )
    before = delivered.rowsBetween(Window.unboundedPreceding, -1)
    highest, latest = (
        F.max(F.struct(*columns)).over(before) for columns in (("offset", "due_ms"), ("due_ms", "offset"))
    )
    follows = F.when(_follows("highest"), F.col("highest.offset"))
    follows = follows.when(_follows("latest"), F.col("latest.offset"))
    detail = F.concat(F.lit("offset "), "offset", F.lit(" after "), "follows", F.lit(" of key "), "order_key")
    return (
        rows.where(first & F.col("order_key").isNotNull())
        .withColumn("due_ms", F.col("due_ms") - delay_ms())  # which may have been changed in between
        .join(F.broadcast(begins), ["topic", "group"], "left")
        .where(F.col("index") >= F.coalesce("behind", F.lit(-1)))
        .select(
            "topic", "group", "order_key", "term", "at_ms", "source", "run", "position", "offset",
            "hour", "global_index", "due_ms", "index", highest.alias("highest"), latest.alias("latest"),
        )
        .withColumn("follows", follows)
        .where(F.col("follows").isNotNull())
        .select(*violation(F.lit("out_of_order"), detail))
    )  # fmt: skip


def _follows(other: str) -> Column:
    """Return whether the message must not be delivered before this one; null where there is none."""
    return (F.col(f"{other}.offset") > F.col("offset")) & (F.col(f"{other}.due_ms") >= F.col("due_ms"))
