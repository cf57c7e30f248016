"""Repeated deliveries and their causes.

A delivery is known from the node's row (`delivered`) and from the consumer's receipt (`received`). Rows of
equal term, attempt and consumer are one delivery. After a crash the node's row is often lost, and only the
receipt shows the delivery.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.checks.messages import violation
from tarry.spark.ledger import counted
from tarry.spark.schema import is_kind

WINDOW_MS: Final = 50
"""The bound that is promised: a crash of the leader repeats at most the deliveries of so long before it."""

CAUSES: Final = ("failover", "lease_expiry", "nack", "client_retry", "redrive", "seek")

REPEATED: Final = "hour int, global_index long, topic string, group string, receipts boolean"
"""Schema of the messages and groups with more than one delivery."""

TERMS: Final = "term long, leader string, alive_ms long"
"""Schema of terms: the leader, and the time of the last row that it made."""

SEEKS: Final = "seek_topic string, seek_group string, seek_ms long"
"""Schema of the moves of groups to an earlier place."""

_KEY: Final = ("topic", "group", "hour", "global_index")


def deliveries(rows: DataFrame, repeated: DataFrame) -> DataFrame:
    """Return one row for each delivery of the messages of `repeated`, from ledger.rows.

    _KEY, `term` long, `attempt` int, `node`, `consumer` string, `marked` boolean, `handed_ms` (the node's
    time, else the receipt's), `at_ms` (the receipt's time where the group's consumers write receipts, else
    the node's).
    """
    delivered = rows.where(is_kind(F.col("number"), Kind.DELIVERED, Kind.RECEIVED)).join(
        repeated, list(_KEY), "inner"
    )
    same = (*_KEY, "term", "attempt", "consumer")
    turn = F.row_number().over(Window.partitionBy(*same, "kind").orderBy("at_ms", "position"))
    by_node = F.col("kind") == Kind.DELIVERED.value
    at_ms = F.when(F.col("receipts"), F.col("received_ms")).otherwise(F.col("handed_ms"))
    return (
        delivered.withColumn("turn", turn)
        .groupBy(*same, "turn", "receipts")
        .agg(
            F.min(F.when(by_node, F.col("at_ms"))).alias("handed_ms"),
            F.min(F.when(~by_node, F.col("at_ms"))).alias("received_ms"),
            F.max(F.when(by_node, F.col("source"))).alias("node"),
            F.max("maybe_duplicate").alias("marked"),
            F.min("due_ms").alias("due_ms"),
        )
        .withColumn("at_ms", at_ms)
        .where("at_ms is not null")
        .withColumn("handed_ms", F.coalesce("handed_ms", "at_ms"))
    )


def duplicates(rows: DataFrame, repeated: DataFrame, terms: DataFrame, seeks: DataFrame) -> DataFrame:
    """Return each delivery of a message to a group after the first.

    From ledger.rows and frames of REPEATED, TERMS and SEEKS. To: _KEY, `number` int (2: the second time),
    `cause` (one of CAUSES), `first_ms`, `again_ms` (the time before and this one), `term_before`,
    `term_after` long, `leader_before`, `leader_after`, `consumer` string, `attempt` int, `window_from_ms`,
    `window_to_ms` (the last WINDOW_MS of the leader before, where leaders differ), `marked`, `beyond_bound`
    boolean, `due_ms` long.

    Deliveries are ordered by term and by the leaders' clocks, as consumers' clocks may be apart.

    `beyond_bound`: the repetition has no mark and no higher attempt, and no seek or redrive explains it.
    """
    order = Window.partitionBy(*_KEY).orderBy("term", "handed_ms", "attempt", "turn")
    before = {
        name: F.lag(name).over(order).alias(f"{name}_before")
        for name in ("at_ms", "handed_ms", "term", "attempt", "node", "consumer")
    }
    again = (
        deliveries(rows, repeated)
        .select("*", F.row_number().over(order).alias("number"), *before.values())
        .where("number > 1")
        .join(_reasons(rows, repeated), [*_KEY, "attempt"], "left")
        .join(F.broadcast(_named(terms, "before")), "term_before", "left")
        .join(F.broadcast(_named(terms, "after")), F.col("term") == F.col("term_after"), "left")
        .withColumn("sought", _sought(seeks))
    )
    window_from, window_to = F.col("alive_ms_before") - WINDOW_MS, F.col("alive_ms_before")
    crossed = F.col("term") > F.col("term_before")
    inside = crossed & (F.col("handed_ms_before") > window_from)
    wanted = F.col("attempt") > F.col("attempt_before")
    marked = F.coalesce(F.col("marked"), F.lit(False)) | wanted
    cause = (
        F.when(F.col("sought"), "seek")
        .when(F.col("reason") == "REDRIVEN", "redrive")
        .when(wanted & (F.col("reason") == "NACKED"), "nack")
        .when(wanted, "lease_expiry")
        .when(inside, "failover")
        .when(crossed & marked, "lease_expiry")
        .when(crossed, "failover")
        .otherwise("client_retry")
    )
    return again.select(
        *_KEY, "number", cause.alias("cause"), F.col("at_ms_before").alias("first_ms"),
        F.col("at_ms").alias("again_ms"), "term_before", F.col("term").alias("term_after"),
        F.coalesce("node_before", "leader_before").alias("leader_before"),
        F.coalesce("node", "leader_after").alias("leader_after"), "consumer", "attempt",
        F.when(crossed, window_from).alias("window_from_ms"),
        F.when(crossed, window_to).alias("window_to_ms"),
        marked.alias("marked"),
        (~marked & ~cause.isin("seek", "redrive")).alias("beyond_bound"), "due_ms",
    )  # fmt: skip


def _named(terms: DataFrame, when: str) -> DataFrame:
    return terms.toDF(f"term_{when}", f"leader_{when}", f"alive_ms_{when}")


def _reasons(rows: DataFrame, repeated: DataFrame) -> DataFrame:
    """Return the reason of each attempt after the first: _KEY, `attempt` (the one made), `reason`."""
    return (
        rows.where(is_kind(F.col("number"), Kind.RETRIED) & counted())
        .join(repeated, list(_KEY), "left_semi")
        .groupBy(
            *_KEY, F.when(F.col("detail") == "REDRIVEN", 1).otherwise(F.col("attempt") + 1).alias("attempt")
        )
        .agg(F.max("detail").alias("reason"))
    )


def _sought(seeks: DataFrame) -> Column:
    """Return whether the group was moved between the two times; moves are few and come as literals."""
    sought = F.lit(False)
    for seek in seeks.collect():
        mine = (F.col("topic") == seek["seek_topic"]) & (F.col("group") == seek["seek_group"])
        sought = sought | (
            mine & F.lit(seek["seek_ms"]).between(F.col("handed_ms_before"), F.col("handed_ms"))
        )
    return sought


def beyond_bound(duplicates: DataFrame) -> DataFrame:
    """Return the duplicates beyond the bound, of schema VIOLATION."""
    detail = F.concat_ws(
        " ", "cause", F.concat(F.lit("terms="), "term_before", F.lit(".."), "term_after"),
        F.concat(F.lit("first_ms="), "first_ms"),
        F.concat(F.lit("window="), "window_from_ms", F.lit(".."), "window_to_ms"),
    )  # fmt: skip
    others = {"at_ms": F.col("again_ms"), "index": F.lit(None).cast("long"), "source": F.col("leader_after")}
    return duplicates.where("beyond_bound").select(
        *violation(F.lit("duplicate_beyond_bound"), detail, **others)
    )
