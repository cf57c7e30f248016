"""Did messages of one ordering key come out in the order in which they were released?"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.schema import is_kind


def out_of_order(rows: DataFrame, begins: DataFrame) -> DataFrame:
    """Return first deliveries that came after one of the same key and group with a higher offset, as
    VIOLATIONs.

    From ledger.rows and pairs.BEGINS: a group that was moved is judged from then on. Retries and marked
    repetitions are left out: they come later by design. Only rows with
    an ordering key are shuffled, by key; a key's rows are sorted on disk, so one with most of the rows takes
    time, not memory.
    """
    first = is_kind(F.col("number"), Kind.DELIVERED) & (F.col("attempt") == 1) & ~F.col("maybe_duplicate")
    before = Window.partitionBy("topic", "group", "order_key").orderBy(
        "term", "at_ms", "source", "run", "position"
    )
    highest = F.max("offset").over(before.rowsBetween(Window.unboundedPreceding, -1))
    return (
        rows.where(first & F.col("order_key").isNotNull())
        .join(F.broadcast(begins), ["topic", "group"], "left")
        .where(F.col("index") >= F.coalesce("behind", F.lit(-1)))
        .select(
            "topic", "group", "order_key", "term", "at_ms", "source", "run", "position", "offset",
            "hour", "global_index", "due_ms", "index", highest.alias("highest"),
        )
        .where(F.col("offset") < F.col("highest"))
        .select(
            F.lit("out_of_order").alias("check"), F.lit(True).alias("promise"),
            "hour", "global_index", "topic", "group", "due_ms", "at_ms", "index", "source",
            F.concat(F.lit("offset "), "offset", F.lit(" after "), "highest", F.lit(" of key "), "order_key")
            .alias("detail"),
        )
    )  # fmt: skip
