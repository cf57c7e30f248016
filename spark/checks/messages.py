"""The checks of single messages: predicates on facts.with_pairs, each turned into a transform to
violations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tarry.spark.checks.lifecycle import breaks_the_table, breaks_the_table_for_group


@dataclass(frozen=True, slots=True)
class Span:
    """What the checks are to judge.

    `as_of_ms`: what was due, or released, up to then must be done by now. `whole`: the ledgers begin with the
    first entry, so what is not in them did not happen. `begun_ms`: what was acknowledged from then on they
    must have. `tolerance_ms`: how far consumers' clocks may be behind the cluster's.
    """

    as_of_ms: int
    whole: bool = True
    begun_ms: int = 0
    tolerance_ms: int = 0


Predicate: TypeAlias = Callable[[Span], Column]


def never_scheduled(span: Span) -> Column:
    """A producer had the OK, and no replica's log has the message."""
    told = F.col("produced_ms").between(span.begun_ms, span.as_of_ms)
    return F.col("first") & (F.col("produced") > 0) & (F.col("scheduled") == 0) & told


def never_released(span: Span) -> Column:
    """Scheduled and due, neither released, cancelled nor expired."""
    ended = F.col("released") + F.col("cancelled") + F.col("expired")
    due = F.col("due_ms") <= span.as_of_ms
    return F.col("first") & (F.col("scheduled") > 0) & (ended == 0) & due


def released_twice(_: Span) -> Column:
    """More than one entry of the log released it."""
    return F.col("first") & (F.col("released") > 1)


def never_delivered(span: Span) -> Column:
    """Released, and the group never got it, neither acked it (which a filter does) nor gave it up, but got
    what lies behind it.

    A group that began later, or was moved past it, had no claim to it.
    """
    return _not_out(span) & (F.col("offset") < F.col("handed"))


def waiting(span: Span) -> Column:
    """Released, and the group has got nothing so far that lies behind it: it is offline, slower, or paced."""
    behind = F.col("handed").isNull() | (F.col("offset") > F.col("handed"))
    return _not_out(span) & behind & ~F.col("ended")


def _not_out(span: Span) -> Column:
    claimed = F.col("group").isNotNull() & (F.col("offset") >= F.col("start"))
    claimed &= F.col("released_first") > F.col("behind")
    return (
        claimed & (F.col("released") > 0) & (F.col("out") == 0) & (_settled() == 0)
        & (F.col("cancelled") == 0) & (F.greatest("released_ms", "due_ms") <= span.as_of_ms)
    )  # fmt: skip


def _settled() -> Column:
    return F.col("acked") + F.col("retried") + F.col("dead")


def never_retried(span: Span) -> Column:
    """To be delivered again, and the copy that waited for that was due and not released."""
    lost = (F.col("retried") > F.col("copies")) & (F.col("retried_due_ms") <= span.as_of_ms)
    return F.col("group").isNotNull() & ~F.col("ended") & (F.col("retried_last") > F.col("behind")) & lost


def never_settled(span: Span) -> Column:
    """Handed over, and neither acked, to be retried nor dead: its lease, which the ledgers do not name, may
    still go on, or nobody knows of it any more.
    """
    lasting = ~F.col("moved") & (F.col("out") > 0) & (_settled() == 0) & (F.col("cancelled") == 0)
    return lasting & (F.coalesce("delivered_ms", "received_ms") <= span.as_of_ms)


def never_received(span: Span) -> Column:
    """A node handed it over and its consumer acked it, but wrote no receipt: receipts are lost, or acks
    wrong.
    """
    return F.col("receipts") & (F.col("delivered") > 0) & (F.col("acked") > 0) & (F.col("received") == 0) & (
        F.col("delivered_ms") <= span.as_of_ms
    )  # fmt: skip


def early(span: Span) -> Column:
    """Handed over, or received, before it was due."""
    due_ms = F.col("due_ms")
    by_node = F.least(F.col("delivered_margin_ms"), F.col("delivered_ms") - due_ms) < 0
    by_consumer = F.least(F.col("received_margin_ms"), F.col("received_ms") - due_ms) < -span.tolerance_ms
    return F.coalesce(by_node, F.lit(False)) | F.coalesce(by_consumer, F.lit(False))


def delivered_after_cancel(_: Span) -> Column:
    """Cancelled, and handed over or received all the same, before or after."""
    return (F.col("cancelled") > 0) & (F.col("delivered") + F.col("received") > 0)


def duplicate_not_marked(_: Span) -> Column:
    """Came out twice as if for the first time: no mark, and attempt 1 both times."""
    unmarked = F.when(F.col("receipts"), F.col("received_unmarked")).otherwise(F.col("delivered_unmarked"))
    return ~F.col("moved") & (unmarked > 1)


def lifecycle(span: Span) -> Column:
    """Happened in an order, or without a step before it, that the table of the life of a message does not
    have.
    """
    whole = F.lit(span.whole)
    return (F.col("first") & breaks_the_table(whole)) | (~F.col("moved") & breaks_the_table_for_group(whole))


PROMISES: Final[Mapping[str, Predicate]] = {
    check.__name__: check
    for check in (
        never_scheduled, never_released, released_twice, never_delivered, never_retried, early,
        delivered_after_cancel, duplicate_not_marked, lifecycle,
    )
}  # fmt: skip
"""What is never to happen."""

REMARKS: Final[Mapping[str, Predicate]] = {
    check.__name__: check for check in (never_received, never_settled, waiting)
}
"""Where the ledgers and the receipts do not fit together, or something is not done yet; no promise is broken
by that alone.
"""

CHECKS: Final[Mapping[str, Predicate]] = {**PROMISES, **REMARKS}

VIOLATION: Final = (
    "check string, promise boolean, hour int, global_index long, topic string, group string, due_ms long, "
    "at_ms long, index long, source string, detail string"
)
"""Schema of a violation. With hour, global_index names the message; null where it is not about one."""


def suspicious(facts: DataFrame, span: Span) -> DataFrame:
    """Return the facts of which any check finds something, or that came out more than once."""
    found = [holds(check, span) for check in CHECKS.values()]
    return facts.where(reduce(Column.__or__, found, F.col("out") > 1))


def holds(check: Predicate, span: Span) -> Column:
    """Return whether a check finds something; null, where a column that it asks for is, is no."""
    return F.coalesce(check(span), F.lit(False))


def violations(facts: DataFrame, name: str, span: Span) -> DataFrame:
    """Return what the named check finds in facts.with_pairs, of the schema VIOLATION."""
    counts = ("produced", "scheduled", "released", "cancelled", "delivered", "received", "acked", "retried")
    detail = F.concat_ws(" ", *[F.concat(F.lit(f"{one}="), F.col(one)) for one in counts])
    return facts.where(holds(CHECKS[name], span)).select(
        F.lit(name).alias("check"),
        F.lit(name in PROMISES).alias("promise"),
        "hour", "global_index", "topic", "group", "due_ms",
        F.coalesce("delivered_ms", "received_ms", "released_ms", "scheduled_ms", "due_ms").alias("at_ms"),
        F.coalesce("released_first", "scheduled_first").alias("index"),
        F.lit(None).cast("string").alias("source"),
        detail.alias("detail"),
    )  # fmt: skip


def deliveries(facts: DataFrame) -> DataFrame:
    """Return how many messages each group got never, once, or n times: topic, group, `out` int, `messages`
    long.
    """
    return (
        facts.where("group is not null").groupBy("topic", "group", "out").agg(F.count("*").alias("messages"))
    )


MISSING: Final = ("never_scheduled", "never_released", "never_delivered", "never_retried")
