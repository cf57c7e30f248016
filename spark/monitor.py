"""Live monitor: duplicates and lateness per minute, as segments are closed.

    segments ─► deliveries ─┬─► all ───────────────────────────────┐
                            └─► the first of each message, by the ─┴─► counts of the batch ─► Parquet,
                            batch=<n>
                                state of an hour (the watermark)

All but the first are duplicates. Offsets and state are in the checkpoint and a batch that is done again
overwrites itself, so the monitor can be stopped, or killed, and started again at any time. It remembers for
`memory_ms` only: it takes a later repetition for a first delivery, and a segment that is closed later than
that for repeated. The reconciliation reads everything and has neither error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tarry.proto.ledger.schema import Kind
from tarry.spark import source
from tarry.spark.checks import timeline

MEMORY_MS: Final = 3_600_000

_MESSAGE: Final = ("topic", "group", "hour", "global_index")
_BY: Final = ("from_ms", "topic", "group")

COUNTS: Final = (
    "kind string, from_ms long, topic string, group string, late_ms long, rows long, firsts long, "
    "marked long, batch long"
)
"""Schema of what the monitor writes: counts of a minute, and how many of the rows are first deliveries."""


def deliveries(rows: DataFrame, memory_ms: int = MEMORY_MS) -> DataFrame:
    """Return each delivery of a stream of ledger rows once with `first` 0, and each message's first with 1.

    `from_ms` long (its minute), `topic`, `group` string, `late_ms` long (of unmarked ones, else null),
    `marked` boolean, `first` int.
    """
    late_ms = timeline.bucket(F.col("at_ms") - F.col("due_ms"))
    marked = F.coalesce(F.col("maybe_duplicate"), F.lit(False)) | (F.col("attempt") > 1)
    delivered = (
        rows.where(F.col("kind") == Kind.DELIVERED.value)
        .select(
            *_MESSAGE, F.timestamp_millis("at_ms").alias("at"), marked.alias("marked"),
            (F.col("at_ms") - F.col("at_ms") % timeline.MINUTE_MS).alias("from_ms"),
            F.when(~marked, late_ms).alias("late_ms"),
        )
        .withWatermark("at", f"{memory_ms} milliseconds")
    )  # fmt: skip
    columns = (*_BY, "late_ms", "marked")
    first = delivered.dropDuplicatesWithinWatermark(list(_MESSAGE))
    return delivered.select(*columns, F.lit(0).alias("first")).union(first.select(*columns, F.lit(1)))


def counts(batch: DataFrame) -> DataFrame:
    """Return a batch of deliveries as counts: COUNTS but for `batch`."""
    one = F.col("first") == 0
    return (
        batch.groupBy(*_BY, "late_ms")
        .agg(
            F.count(F.when(one, 1)).alias("rows"),
            F.count(F.when(~one, 1)).alias("firsts"),
            F.count(F.when(one & F.col("marked"), 1)).alias("marked"),
        )
        .select(F.lit(Kind.DELIVERED.value).alias("kind"), *_BY, "late_ms", "rows", "firsts", "marked")
    )


def start(
    spark: SparkSession,
    ledger: str | None,
    out: str,
    *,
    nodes: str | None = None,
    secrets: Mapping[str, str] = MappingProxyType({}),
    memory_ms: int = MEMORY_MS,
    segments_max: int | None = None,
    once: bool = False,
    every_s: int = 10,
    told: Callable[[int], Any] = lambda _: None,
) -> StreamingQuery:
    """Follow a ledger and write counts to `out`/minutes, the checkpoint to `out`/checkpoint.

    Args:
        ledger, nodes: one of both, as the source's path and its option `nodes` are.
        secrets: options of the source for the nodes, as `source.SECRETS` names them.
        segments_max: of a batch. once: end when what is closed now is counted.
        told: called with a batch's number when it is written.
    """
    source.register(spark)
    reader = spark.readStream.format("tarry")
    if nodes is not None:
        reader = reader.options(nodes=nodes, **secrets)
    if segments_max is not None:
        reader = reader.option("segments_max", segments_max)

    def write(batch: DataFrame, number: int) -> None:
        counts(batch).coalesce(1).write.mode("overwrite").parquet(f"{out}/minutes/batch={number}")
        told(number)

    query = deliveries(reader.load(ledger), memory_ms).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", f"{out}/checkpoint")
    query = query.trigger(availableNow=True) if once else query.trigger(processingTime=f"{every_s} seconds")
    return query.start()


def minutes(spark: SparkSession, out: str) -> DataFrame:
    """Return what a monitor has counted: `from_ms` long, `topic`, `group` string, `deliveries`, `duplicates`,
    `marked` long, and the percentiles of timeline.lateness.
    """
    written = spark.read.schema(COUNTS).parquet(f"{out}/minutes")
    counted = written.groupBy(*_BY).agg(
        F.sum("rows").alias("deliveries"),
        (F.sum("rows") - F.sum("firsts")).alias("duplicates"),
        F.sum("marked").alias("marked"),
    )
    late = timeline.lateness(written, *_BY).drop("deliveries")
    return counted.join(late, list(_BY), "left")
