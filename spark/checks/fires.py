"""Check that schedules that recur have fired each of their fires once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.fires import RECURRING
from tarry.proto.ledger.schema import Kind
from tarry.spark.checks.messages import Span, violation
from tarry.spark.facts import HOUR_MS
from tarry.spark.ledger import counted
from tarry.spark.schema import is_kind

AHEAD_MS: Final = 1_000
"""The entry that makes a fire's message is older than the fire by less."""
_NEVER: Final = 2**63 - 1


def is_fire() -> Column:
    """Return whether a row of a ledger is of a message that a fire has made, not one triggered."""
    return is_kind(F.col("number"), Kind.SCHEDULED) & F.coalesce(
        F.col("detail").startswith(f"{RECURRING} "), F.lit(False)
    )


def wrong_fires(rows: DataFrame, span: Span, from_ms: int | None = None) -> DataFrame:
    """Return what is wrong with fires, as VIOLATIONs: `fired_twice` and `fire_left_out`.

    From ledger.rows. Each fire tells which one its schedule fired before it. That one has to have a row, too,
    where the ledgers, and messages first due at `from_ms` or later, tell of that time. A fire whose message
    was cancelled may come again, as where a schedule is paused and resumed before the message is due.
    Of all rows those of fires and of cancelled messages are shuffled.
    """
    fires = _fires(rows).persist()
    twice = (
        fires.withColumn("there_to", _there_to())
        .where(F.col("there_to") > F.col("index"))
        .select(*violation(F.lit("fired_twice"), _detail("fire_ms", "twice")))
    )
    known = fires.select("schedule", F.col("fire_ms").alias("before_ms")).distinct()
    from_hour = 0 if from_ms is None else from_ms // HOUR_MS
    told = (F.col("before_ms") > 0) & (F.floor(F.col("before_ms") / HOUR_MS) >= from_hour)
    if not span.whole:
        told &= F.col("before_ms") >= span.begun_ms + AHEAD_MS
    left_out = fires.where(told).join(known, ["schedule", "before_ms"], "left_anti")
    return twice.unionByName(
        left_out.select(*violation(F.lit("fire_left_out"), _detail("before_ms", "in no row")))
    )


def _fires(rows: DataFrame) -> DataFrame:
    """Return the rows of fires with `schedule`, `fire_ms`, `before_ms` long, `name` string and `gone_index`.

    `gone_index` long: the entry that has cancelled the message; where none has, one that never comes.
    """
    part = F.split("detail", " ", 5)
    cancelled = is_kind(F.col("number"), Kind.CANCELLED) & F.col("group").isNull()
    told = rows.where(counted())
    gone = told.where(cancelled).groupBy("hour", "global_index").agg(F.min("index").alias("gone_index"))
    fires = told.where(is_fire()).select(
        "hour", "global_index", "topic", "group", "due_ms", "at_ms", "index", "position", "source",
        part[1].cast("long").alias("schedule"), part[2].cast("long").alias("fire_ms"),
        part[3].cast("long").alias("before_ms"), part[4].alias("name"),
    )  # fmt: skip
    return fires.join(gone, ["hour", "global_index"], "left").withColumn(
        "gone_index", F.coalesce("gone_index", F.lit(_NEVER))
    )


def _there_to() -> Column:
    """Return up to which entry another message of the fire, made before, was there; null: there is none."""
    same = Window.partitionBy("schedule", "fire_ms").orderBy("index", "position")
    return F.max("gone_index").over(same.rowsBetween(Window.unboundedPreceding, -1))


def _detail(of: str, what: str) -> Column:
    parts = (F.lit("fire "), F.col(of), F.lit(" of schedule "), F.col("name"), F.lit(f" {what}"))
    return F.concat(*parts)
