"""Facts: one row for each message and group, with counts and times of each kind of event.

Every check is a predicate on these rows, so all checks together cost one shuffle. Events of a message as a
whole (scheduled, released, ...) are repeated for each group of its topic, so that one aggregation is enough.
The key is (message, group), never the topic: a topic with half of all rows spreads as evenly as any other.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import REPEATED, Kind
from tarry.spark.ledger import OF_MESSAGES, counted
from tarry.spark.schema import is_kind

ROWS_PER_PARTITION: Final = 1_500_000
"""Rows of one task's share of the shuffle: some 200 MB as Spark holds them."""

HOUR_MS: Final = 3_600_000

PAIRS: Final = (
    "pair int, topic string, group string, first boolean, receipts boolean, start long, moved boolean, "
    "handed long, ended boolean, behind long, delay long"
)
"""Schema of a table of pairs, one row a (topic, group); `group` null where a topic has none.

`first`: the pair that counts the topic's messages; `receipts`: its consumers write them; `start`: the offset
that the group began at, or was last moved to; `moved`: it was, by a seek, a deletion or a redrive, so what is
acknowledged can come again; `handed`: the highest offset that it has got or settled since, null without one;
`ended`: it is deleted; `behind`: the index of the last deletion of its topic; `delay`: the longest
by which it has got anything, ms.
"""

KEY: Final = ("hour", "global_index", "pair")


def events(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return the rows about messages, narrow, one for each pair that they concern.

    From: ledger.rows and a table of PAIRS. To: KEY, `number` int (the kind's), `at_ms`, `index`, `due_ms`,
    `offset` long, `of_group`, `marked` boolean; `turn` int: of what is rescheduled, its place in the entry.
    """
    n = F.col("number")
    marked = F.coalesce(F.col("maybe_duplicate"), F.lit(False)) | (F.coalesce(F.col("attempt"), F.lit(1)) > 1)
    marked |= is_kind(n, Kind.PRODUCED) & F.coalesce(F.col("detail") == REPEATED, F.lit(False))
    narrow = rows.where(is_kind(n, *OF_MESSAGES) & counted() & F.col("hour").isNotNull()).select(
        "hour", "global_index", "number", "at_ms", "index", "due_ms", "offset", "topic",
        F.col("group").alias("its_group"), marked.alias("marked"),
        F.when(is_kind(n, Kind.RESCHEDULED), F.col("position")).alias("turn"),
    )  # fmt: skip
    of_pair = pairs.select(F.col("topic").alias("pair_topic"), F.col("group").alias("pair_group"), "pair")
    mine = (F.col("topic") == F.col("pair_topic")) & (
        F.col("its_group").isNull() | (F.col("its_group") == F.col("pair_group"))
    )
    return narrow.join(F.broadcast(of_pair), mine).select(
        *KEY, "number", "at_ms", "index", "due_ms", "offset", "marked", "turn",
        F.col("its_group").isNotNull().alias("of_group"),
    )  # fmt: skip


def facts(events: DataFrame, partitions: int) -> DataFrame:
    """Return one row for each KEY: counts int, first and last times ms since the epoch, indices applied.

    `<kind>` counts; `<kind>_first`, `<kind>_last` indices; `<kind>_ms` the first time. RELEASED, CANCELLED
    and EXPIRED count what happened to the message, `copies` what ended the waiting of its retries,
    `produced_new` receipts of the message's own schedule or commit, not of one that repeats it,
    `trimmed` what retention let expire before the group had acknowledged it, `skipped` what was cancelled for
    the group, and not for others that had had it.
    `retried_due_ms`: of the last retry, or as that was last rescheduled; `rescheduled_due_ms`: as the message
    was last rescheduled, by the entry `rescheduled_last`. `margin_ms`: least time from due to delivered,
    negative: early.
    """
    number = F.col("number")

    def of(kind: Kind) -> Column:
        if kind in OF_COPIES_TOO:
            return is_kind(number, kind) & ~F.col("of_group")
        return is_kind(number, kind)

    def count(condition: Column, name: str) -> Column:
        return F.count(F.when(condition, 1)).cast("int").alias(name)

    counts = [count(of(kind), kind.value) for kind in OF_MESSAGES]
    firsts = [F.min(F.when(of(kind), F.col("index"))).alias(f"{kind.value}_first") for kind in ORDERED]
    lasts = [F.max(F.when(of(kind), F.col("index"))).alias(f"{kind.value}_last") for kind in ORDERED]
    times = [F.min(F.when(of(kind), F.col("at_ms"))).alias(f"{kind.value}_ms") for kind in TIMED]
    delivered = is_kind(number, Kind.DELIVERED)
    trimmed = is_kind(number, Kind.EXPIRED) & F.col("of_group") & F.col("offset").isNotNull()
    skipped = is_kind(number, Kind.CANCELLED) & F.col("of_group") & F.col("offset").isNotNull()
    skipped &= ~F.col("marked")
    seen = is_kind(number, Kind.RECEIVED)
    moved = is_kind(number, Kind.RESCHEDULED) & F.col("of_group")

    def last_due_ms(condition: Column, name: str) -> Column:
        order = F.struct("index", F.coalesce("turn", F.lit(-1)))
        return F.max_by("due_ms", F.when(condition, order)).alias(name)

    return (
        events.repartition(partitions, *KEY)
        .groupBy(*KEY)
        .agg(
            *counts, *firsts, *lasts, *times,
            count(is_kind(number, *ENDS_OF_COPIES) & F.col("of_group") & ~trimmed & ~skipped, "copies"),
            count(trimmed, "trimmed"),
            count(skipped, "skipped"),
            count(of(Kind.PRODUCED) & ~F.col("marked"), "produced_new"),
            count(delivered & ~F.col("marked"), "delivered_unmarked"),
            count(seen & ~F.col("marked"), "received_unmarked"),
            last_due_ms(of(Kind.RETRIED) | moved, "retried_due_ms"),
            last_due_ms(of(Kind.RESCHEDULED), "rescheduled_due_ms"),
            F.max(F.when(of(Kind.RESCHEDULED), F.col("index"))).alias("rescheduled_last"),
            F.max(F.when(of(Kind.SCHEDULED), F.col("due_ms"))).alias("scheduled_due_ms"),
            F.max(F.when(of(Kind.RELEASED), F.col("due_ms"))).alias("released_due_ms"),
            F.min(F.when(of(Kind.RELEASED), F.col("offset"))).alias("offset"),
            F.max(F.when(of(Kind.PRODUCED), F.col("due_ms"))).alias("produced_due_ms"),
            F.min(F.when(delivered, F.col("at_ms") - F.col("due_ms"))).alias("delivered_margin_ms"),
            F.min(F.when(seen, F.col("at_ms") - F.col("due_ms"))).alias("received_margin_ms"),
        )
    )  # fmt: skip


ENDS_OF_COPIES: Final = (Kind.RELEASED, Kind.CANCELLED, Kind.EXPIRED)
OF_COPIES_TOO: Final = (*ENDS_OF_COPIES, Kind.RESCHEDULED)
"""The kinds that, with a group, are about the copy that waits for a retry."""

ORDERED: Final = (
    Kind.SCHEDULED, Kind.RELEASED, Kind.DELIVERED, Kind.ACKED, Kind.RETRIED, Kind.DEAD, Kind.CANCELLED,
)  # fmt: skip
"""The kinds whose order in the log the life of a message fixes."""

TIMED: Final = (
    Kind.PRODUCED, Kind.SCHEDULED, Kind.RELEASED, Kind.DELIVERED, Kind.RECEIVED, Kind.CANCELLED,
)  # fmt: skip


def with_pairs(facts: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return the facts with their pair's columns, `due_ms` as the message is due, and `out` int: how often it
    came out.

    It came out when the application received it, where consumers write receipts; else, when a node
    delivered it.
    """
    known = ("rescheduled_due_ms", "scheduled_due_ms", "released_due_ms", "produced_due_ms")
    return (
        facts.join(F.broadcast(pairs), "pair")
        .withColumn("due_ms", F.coalesce(*known))
        .withColumn("out", F.when(F.col("receipts"), F.col("received")).otherwise(F.col("delivered")))
    )


def first_due_between(facts: DataFrame, from_ms: int | None, to_ms: int | None) -> DataFrame:
    """Return the facts of messages that were first due from then on, and before then; None: whenever.

    That moment lies in the hour of the message's id, whenever it was rescheduled to: so spans that join have
    each message once.
    """
    begin_ms = F.col("hour").cast("long") * HOUR_MS
    known_ms = F.coalesce("scheduled_due_ms", "due_ms")
    first_ms = F.least(F.greatest(known_ms, begin_ms), begin_ms + (HOUR_MS - 1))
    if from_ms is not None:
        facts = facts.where(first_ms >= from_ms)
    return facts if to_ms is None else facts.where(first_ms < to_ms)
