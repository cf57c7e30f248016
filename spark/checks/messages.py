"""Checks of single messages: predicates on facts.with_pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tarry.spark.checks.lifecycle import breaks_the_table


@dataclass(frozen=True, slots=True)
class Span:
    """Span of time that the checks judge.

    `as_of_ms`: what was due or released by then must be done. `whole`: the ledgers begin with the first entry
    of the log, so what they do not have did not happen. `begun_ms`: what was acknowledged from then on must
    be in them. `tolerance_ms`: how far consumers' clocks may be behind the cluster's.
    """

    as_of_ms: int
    whole: bool = True
    begun_ms: int = 0
    tolerance_ms: int = 0


Predicate: TypeAlias = Callable[[Span], Column]


def never_scheduled(span: Span) -> Column:
    """Find messages that were acknowledged to a producer and are in no replica's log.

    What was scheduled with a used idempotency key is acknowledged now, and in the log since the first.
    """
    told = F.col("produced_ms").between(span.begun_ms, span.as_of_ms)
    own = F.col("produced" if span.whole else "produced_new") > 0
    return F.col("first") & own & (F.col("scheduled") == 0) & told


def never_released(span: Span) -> Column:
    """Find messages that were scheduled and due, and neither released, cancelled nor expired."""
    ended = F.col("released") + F.col("cancelled") + F.col("expired")
    due = F.col("due_ms") <= span.as_of_ms
    return F.col("first") & (F.col("scheduled") > 0) & (ended == 0) & due


def released_twice(_: Span) -> Column:
    """Find messages that more than one entry of the log released."""
    return F.col("first") & (F.col("released") > 1)


def rescheduled_in_vain(_: Span) -> Column:
    """Find messages that were released at another due time than they were last rescheduled to."""
    kept = F.col("released_due_ms") == F.col("rescheduled_due_ms")
    kept &= F.col("rescheduled_last") <= F.col("released_first")
    return F.col("first") & (F.col("rescheduled") > 0) & (F.col("released") > 0) & ~kept


def never_delivered(span: Span) -> Column:
    """Find messages that were released, and that a group never got or settled, though it got later ones.

    A filter settles what it leaves out. A group that began later, or was moved past a message, has no claim
    to it.
    """
    return _not_out(span) & (F.col("offset") < F.col("handed"))


def waiting(span: Span) -> Column:
    """Find released messages of which the group has got nothing later: it is offline, slower, or paced."""
    behind = F.col("handed").isNull() | (F.col("offset") > F.col("handed"))
    return _not_out(span) & behind & ~F.col("ended")


def _not_out(span: Span) -> Column:
    claimed = F.col("group").isNotNull() & (F.col("offset") >= F.col("start"))
    claimed &= F.col("released_first") > F.col("behind")
    return (
        claimed & (F.col("released") > 0) & (F.col("out") == 0) & (_settled() == 0)
        & (F.col("cancelled") == 0) & (F.col("trimmed") == 0) & (F.col("skipped") == 0)
        & (F.greatest("released_ms", F.col("due_ms") + F.col("delay")) <= span.as_of_ms)
    )  # fmt: skip


def _settled() -> Column:
    return F.col("acked") + F.col("retried") + F.col("dead")


def never_retried(span: Span) -> Column:
    """Find messages to be delivered again whose waiting copy was due and not released."""
    lost = (F.col("retried") > F.col("copies")) & (F.col("retried_due_ms") <= span.as_of_ms)
    return F.col("group").isNotNull() & ~F.col("ended") & (F.col("retried_last") > F.col("behind")) & lost


def never_settled(span: Span) -> Column:
    """Find messages that were delivered and neither acked, retried nor dead.

    The ledgers do not name leases, so the lease may still run.
    """
    lasting = ~F.col("moved") & (F.col("out") > 0) & (_settled() == 0) & (F.col("cancelled") == 0)
    return lasting & (F.coalesce("delivered_ms", "received_ms") <= span.as_of_ms)


def never_received(span: Span) -> Column:
    """Find messages that were delivered and acked, and of which the consumer wrote no receipt.

    Either receipts are lost, or acks are wrong.
    """
    return F.col("receipts") & (F.col("delivered") > 0) & (F.col("acked") > 0) & (F.col("received") == 0) & (
        F.col("delivered_ms") <= span.as_of_ms
    )  # fmt: skip


def early(span: Span) -> Column:
    """Find messages that were delivered or received before they were due."""
    due_ms = F.col("due_ms")
    by_node = F.least(F.col("delivered_margin_ms"), F.col("delivered_ms") - due_ms) < 0
    by_consumer = F.least(F.col("received_margin_ms"), F.col("received_ms") - due_ms) < -span.tolerance_ms
    return F.coalesce(by_node, F.lit(False)) | F.coalesce(by_consumer, F.lit(False))


def delivered_after_cancel(_: Span) -> Column:
    """Find cancelled messages that were delivered or received, before or after.

    A group that was moved back counts as one that has not had what lies ahead of it: of it, only after.
    """
    gone, out = F.col("cancelled") + F.col("skipped"), F.col("delivered") + F.col("received")
    after = F.coalesce(F.col("cancelled_first") < F.col("delivered_last"), F.lit(False))
    return (gone > 0) & (out > 0) & (~F.col("moved") | after)


def duplicate_not_marked(_: Span) -> Column:
    """Find messages that came out twice with attempt 1 and no mark."""
    unmarked = F.when(F.col("receipts"), F.col("received_unmarked")).otherwise(F.col("delivered_unmarked"))
    return ~F.col("moved") & (unmarked > 1)


def lifecycle(span: Span) -> Column:
    """Find messages whose events are in a wrong order, or lack a step, by the table of a message's life."""
    whole = F.lit(span.whole)
    of_message, of_group = (breaks_the_table(whole, of_group=each) for each in (False, True))
    return (F.col("first") & of_message) | (~F.col("moved") & of_group)


PROMISES: Final[Mapping[str, Predicate]] = {
    check.__name__: check
    for check in (
        never_scheduled, never_released, released_twice, rescheduled_in_vain, never_delivered, never_retried,
        early, delivered_after_cancel, duplicate_not_marked, lifecycle,
    )
}  # fmt: skip
"""Checks of what is promised."""

REMARKS: Final[Mapping[str, Predicate]] = {
    check.__name__: check for check in (never_received, never_settled, waiting)
}
"""Checks of what is not done yet, or of ledgers against receipts; neither breaks a promise by itself."""

CHECKS: Final[Mapping[str, Predicate]] = {**PROMISES, **REMARKS}

VIOLATION: Final = (
    "check string, promise boolean, hour int, global_index long, topic string, group string, due_ms long, "
    "at_ms long, index long, source string, detail string"
)
"""Schema of a violation. With hour, global_index names the message; null where it is not about one."""


def violation(check: Column, detail: Column, **others: Column) -> list[Column]:
    """Return the columns of VIOLATION; those not given are the frame's of their names."""
    own = {"check": check, "promise": ~check.isin(*REMARKS), "detail": detail, **others}
    names = [column.split()[0] for column in VIOLATION.split(", ")]
    return [own.get(name, F.col(name)).alias(name) for name in names]


def suspicious(facts: DataFrame, span: Span) -> DataFrame:
    """Return the facts of which any check finds something, or that came out more than once."""
    found = [holds(check, span) for check in CHECKS.values()]
    return facts.where(reduce(Column.__or__, found, F.col("out") > 1))


def holds(check: Predicate, span: Span) -> Column:
    """Return whether a check finds something; null, where a column that it asks for is, is no."""
    return F.coalesce(check(span), F.lit(False))


def violations(facts: DataFrame, names: Iterable[str], span: Span) -> DataFrame:
    """Return what the named checks find in facts.with_pairs, of the schema VIOLATION, in one pass."""
    found = F.array(*[F.when(holds(CHECKS[name], span), F.lit(name)) for name in names])
    counts = ("produced", "scheduled", "released", "cancelled", "delivered", "received", "acked", "retried")
    detail = F.concat_ws(" ", *[F.concat(F.lit(f"{one}="), F.col(one)) for one in counts])
    return facts.withColumn("check", F.explode(F.array_compact(found))).select(
        *violation(
            F.col("check"),
            detail,
            at_ms=F.coalesce("delivered_ms", "received_ms", "released_ms", "scheduled_ms", "due_ms"),
            index=F.coalesce("released_first", "scheduled_first"),
            source=F.lit(None).cast("string"),
        )
    )


MISSING: Final = ("never_scheduled", "never_released", "never_delivered", "never_retried")
