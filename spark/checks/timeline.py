"""Counts and lateness for each step of time, counted before the shuffle, so that skew costs nothing."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.checks.fires import is_fire
from tarry.spark.ledger import OF_MESSAGES, counted
from tarry.spark.schema import is_kind

MINUTE_MS: Final = 60_000
SECOND_MS: Final = 1_000
EXACT_MS: Final = 1_024
"""Lateness is exact up to here; beyond, it is rounded down by less than 1/128 (as HdrHistogram does)."""


def bucket(late_ms: Column) -> Column:
    """Return lateness as it is counted, ms long."""
    grain = F.pow(2.0, F.floor(F.log2(late_ms.cast("double"))) - 7).cast("long")
    return F.when(late_ms < EXACT_MS, late_ms).otherwise(late_ms - late_ms % F.greatest(grain, F.lit(1)))


def step_ms(span_ms: int) -> int:
    """Return how long a step of the timeline is: a minute, or of less than two hours a second."""
    return MINUTE_MS if span_ms >= 120 * MINUTE_MS else SECOND_MS


def timeline(rows: DataFrame, begins: DataFrame, step_ms: int = MINUTE_MS) -> DataFrame:
    """Return counts of ledger.rows about messages; `begins`: of schema pairs.BEGINS.

    `kind`, `topic`, `group`, `detail` (of retried and delivered) string, `term` long, `from_ms` long (the
    step's begin, of at_ms), `late_ms` long (of first deliveries and their receipts, else null), `rows` long,
    `last_ms` long, `source` string (the greatest; of deliveries: who led), `order_keys` long: rows that have
    one, `fires` long: messages that schedules have made, `handed` long: the highest offset that the group has
    got or settled since it was last moved, `from_index` long.
    """
    delivered = is_kind(F.col("number"), Kind.DELIVERED, Kind.RECEIVED)
    once = is_kind(F.col("number"), Kind.DELIVERED, Kind.ACKED, Kind.RETRIED, Kind.DEAD)
    once &= (F.col("attempt") == 1) & (F.col("index") >= F.coalesce("behind", F.lit(-1)))
    first = delivered & (F.col("attempt") == 1) & ~F.coalesce(F.col("maybe_duplicate"), F.lit(False))
    return (
        rows.where(is_kind(F.col("number"), *OF_MESSAGES) & counted())
        .join(F.broadcast(begins), ["topic", "group"], "left")
        .select(
            "kind", "topic", "group", "term", "at_ms", "source", "order_key", "index",
            F.when(is_fire(), True).alias("fire"),
            F.when(once, F.col("offset")).alias("handed"),
            F.when(is_kind(F.col("number"), Kind.RETRIED, Kind.DELIVERED), F.col("detail")).alias("detail"),
            (F.col("at_ms") - F.col("at_ms") % step_ms).alias("from_ms"),
            F.when(first, bucket(F.col("at_ms") - F.col("due_ms"))).alias("late_ms"),
        )
        .groupBy("kind", "topic", "group", "detail", "term", "from_ms", "late_ms")
        .agg(
            F.count("*").alias("rows"), F.max("at_ms").alias("last_ms"),
            F.max("source").alias("source"), F.count("order_key").alias("order_keys"),
            F.count("fire").alias("fires"),
            F.max("handed").alias("handed"), F.min("index").alias("from_index"),
        )
    )  # fmt: skip


def lateness(timeline: DataFrame, *by: str) -> DataFrame:
    """Return percentiles of first deliveries' lateness (nearest rank), from timeline, for each value of `by`.

    `by` columns, `late_p50_ms`, `late_p90_ms`, `late_p99_ms`, `late_max_ms` long, `deliveries` long. Receipts
    count where a (topic, group) has them, else what the nodes say. Early is negative.
    """
    kinds = Window.partitionBy("topic", "group")
    receipts = F.max((F.col("kind") == Kind.RECEIVED.value).cast("int")).over(kinds) == 1
    wanted = F.when(receipts, Kind.RECEIVED.value).otherwise(Kind.DELIVERED.value)
    counts = (
        timeline.where(F.col("late_ms").isNotNull())
        .withColumn("wanted", wanted)
        .where(F.col("kind") == F.col("wanted"))
        .groupBy(*by, "late_ms")
        .agg(F.sum("rows").alias("rows"))
    )
    up_to = Window.partitionBy(*by).orderBy("late_ms")
    ranked = counts.withColumn("up_to", F.sum("rows").over(up_to)).withColumn(
        "all", F.sum("rows").over(Window.partitionBy(*by))
    )

    def percentile(percent: int) -> Column:
        reached = F.col("up_to") >= F.ceil(F.col("all") * percent / 100)
        return F.min(F.when(reached, F.col("late_ms"))).alias(f"late_p{percent}_ms")

    return ranked.groupBy(*by).agg(
        percentile(50), percentile(90), percentile(99),
        F.max("late_ms").alias("late_max_ms"), F.max("all").alias("deliveries"),
    )  # fmt: skip


def terms(timeline: DataFrame) -> DataFrame:
    """Return who led in each term and the last sign of it: schema duplicates.TERMS, from timeline."""
    leader = F.max(F.when(F.col("kind") == Kind.DELIVERED.value, F.col("source")))
    return (
        timeline.where("term >= 0")
        .groupBy("term")
        .agg(leader.alias("leader"), F.max("last_ms").alias("alive_ms"))
    )
