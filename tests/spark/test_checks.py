"""Checks one by one: a frame with one planted violation, and the same without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import COLUMNS, REPEATED, Kind, delay_detail
from tarry.spark.checks import duplicates, messages, order
from tarry.spark.checks.lifecycle import always_before, never_after
from tarry.spark.checks.messages import Span
from tarry.spark.facts import HOUR_MS, PAIRS, events, facts, first_due_between, with_pairs
from tarry.spark.pairs import BEGINS
from tarry.spark.schema import LEDGER, kind_number
from tarry.spark.schema import delay_ms as delay_of

DUE_MS = 1_000_000_000
PAIR = [(0, "t", "g", True, True, 0, False, 100, False, -1, 0)]
LIFE = (
    (Kind.SCHEDULED, 1, DUE_MS - 900), (Kind.PRODUCED, -1, DUE_MS - 890), (Kind.RELEASED, 2, DUE_MS - 50),
    (Kind.DELIVERED, 2, DUE_MS + 2), (Kind.RECEIVED, -1, DUE_MS + 3), (Kind.ACKED, 3, DUE_MS + 15),
)  # fmt: skip
OF_GROUP = (Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED, Kind.RETRIED)


def row(kind: Kind, index: int, at_ms: int, message: int = 0, **more: Any) -> dict[str, Any]:
    """Return a row about a message of topic t, with its group where the kind has one."""
    grouped = kind in OF_GROUP
    return {
        "kind": kind.value, "source": "n1", "shard": 0, "term": 1, "index": index, "position": message,
        "at_ms": at_ms, "topic": "t", "group": "g" if grouped else None,
        "hour": 277, "global_index": message,
        "due_ms": DUE_MS, "offset": message, "attempt": 1 if grouped else None,
        "maybe_duplicate": False if grouped else None, "consumer": "c" if grouped else None, "run": "r",
        **more,
    }  # fmt: skip


def life(message: int, *but: Kind) -> list[dict[str, Any]]:
    """Return the rows of an ordinary message, but for some."""
    return [row(kind, index, at_ms, message) for kind, index, at_ms in LIFE if kind not in but]


def frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return rows as ledger.rows gives them, of one node's one segment."""
    plain = [tuple(one.get(name) for name in COLUMNS) for one in rows]
    return spark.createDataFrame(plain, LEDGER).select(
        "*", kind_number(F.col("kind")).alias("number"), F.lit(0).alias("source_number"),
        F.lit(-1).alias("fresh_from"), F.lit(-1).alias("speaks_from"), F.lit(1_000_000).alias("speaks_to"),
    )  # fmt: skip


PLANTED: dict[str, list[dict[str, Any]]] = {
    "never_scheduled": life(1, *(kind for kind, _, _ in LIFE if kind is not Kind.PRODUCED)),
    "never_released": life(2, Kind.RELEASED, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    "never_delivered": life(3, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    "released_twice": [*life(4), row(Kind.RELEASED, 2, DUE_MS - 40, 4, position=99)],
    "rescheduled_in_vain": [
        *life(13),
        row(Kind.RESCHEDULED, 1, DUE_MS - 500, 13, due_ms=DUE_MS - 100, offset=None),
    ],
    "early": [*life(5, Kind.DELIVERED), row(Kind.DELIVERED, 2, DUE_MS - 1, 5)],
    "delivered_after_cancel": [*life(6), row(Kind.CANCELLED, 1, DUE_MS - 500, 6)],
    "duplicate_not_marked": [*life(7), row(Kind.RECEIVED, -1, DUE_MS + 9, 7)],
    "lifecycle": [*life(8), row(Kind.ACKED, 9, DUE_MS + 99, 8)],
    "never_received": life(9, Kind.RECEIVED),
    "never_retried": [*life(10, Kind.ACKED), row(Kind.RETRIED, 3, DUE_MS + 20, 10)],
    "never_settled": life(11, Kind.ACKED),
    "waiting": [{**one, "offset": 101} for one in life(12, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED)],
}
RIGHT = [
    *life(20),
    *life(21, Kind.PRODUCED),  # the producer never had the OK
    *life(22, Kind.DELIVERED),  # the node was killed before it wrote that down
    *life(23, Kind.DELIVERED, Kind.RECEIVED),  # passed over by the group's filter
    *life(24, Kind.RELEASED, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    row(Kind.CANCELLED, 2, DUE_MS - 500, 24),
    *life(25, Kind.ACKED),
    row(Kind.RETRIED, 3, DUE_MS + 20, 25, detail="NACKED"),
    row(Kind.RELEASED, 4, DUE_MS + 30, 25, group="g"),
    row(Kind.DELIVERED, 4, DUE_MS + 40, 25, attempt=2, due_ms=DUE_MS + 40),
    row(Kind.RECEIVED, -1, DUE_MS + 40, 25, attempt=2, due_ms=DUE_MS + 40),
    row(Kind.ACKED, 5, DUE_MS + 50, 25, attempt=2),
    *life(26, Kind.ACKED),
    row(Kind.RETRIED, 3, DUE_MS + 20, 26, due_ms=DUE_MS + 3_600_000),  # not yet
    *life(27, Kind.ACKED),
    row(Kind.RETRIED, 3, DUE_MS + 20, 27),
    row(Kind.CANCELLED, 4, DUE_MS + 30, 27, group="g", offset=None, attempt=2),  # the copy alone
    *(
        row(Kind.RESCHEDULED, 1, DUE_MS - 800, 30, due_ms=due, position=n)
        for n, due in enumerate((1, DUE_MS))
    ),
    *life(30, Kind.SCHEDULED),
    row(Kind.SCHEDULED, 1, DUE_MS - 900, 30, due_ms=DUE_MS + 3_600_000),
    *life(31, Kind.RELEASED, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    row(Kind.RESCHEDULED, 1, DUE_MS - 800, 31, due_ms=DUE_MS + 3_600_000),  # not due yet
    *life(32, Kind.ACKED),
    row(Kind.RETRIED, 3, DUE_MS + 20, 32),
    row(Kind.RESCHEDULED, 4, DUE_MS + 21, 32, group="g", due_ms=DUE_MS + 3_600_000),  # the retry, not due yet
    *life(28, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    row(Kind.CANCELLED, 3, DUE_MS - 20, 28),  # before a consumer was given it
    *life(29, Kind.DELIVERED, Kind.RECEIVED, Kind.ACKED),
    row(Kind.CANCELLED, 3, DUE_MS + 20, 29, group="g", attempt=1),  # others have had it
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, set[int]]:
    """What each check finds among one planted violation of each, and what is right."""
    rows = frame(spark, [*RIGHT, *(one for some in PLANTED.values() for one in some)])
    pairs = spark.createDataFrame(PAIR, PAIRS)
    every = with_pairs(facts(events(rows, pairs), 1), pairs)
    span = Span(as_of_ms=DUE_MS + 1_000)
    of_checks: dict[str, set[int]] = {name: set() for name in messages.CHECKS}
    for one in messages.violations(every, messages.CHECKS, span).collect():
        of_checks[one["check"]].add(one["global_index"])
        assert one["promise"] is (one["check"] in messages.PROMISES)
    return of_checks


@pytest.mark.parametrize("check", messages.CHECKS)
def test_a_check_finds_the_one_planted_violation(found: dict[str, set[int]], check: str) -> None:
    planted = {PLANTED[check][0]["global_index"]}
    if check == "lifecycle":  # these are in no order that the table has either
        planted |= {
            PLANTED[other][0]["global_index"] for other in ("released_twice", "delivered_after_cancel")
        }
    assert found[check] == planted


@pytest.mark.parametrize(
    ("cancelled", "moved", "found"),
    [
        ({"index": 1}, False, True),
        ({"index": 3}, False, True),
        ({"index": 3, "group": "g", "attempt": 1}, False, True),  # that group had had it
        ({"index": 3}, True, False),  # it was moved back, and had not had it from there on
        ({"index": 1}, True, True),
    ],
)
def test_a_cancelled_message_is_not_to_come_out(
    spark: SparkSession, cancelled: dict[str, Any], moved: bool, found: bool
) -> None:
    pairs = spark.createDataFrame([(*PAIR[0][:6], moved, *PAIR[0][7:])], PAIRS)
    rows = frame(spark, [*life(0), {**row(Kind.CANCELLED, 0, DUE_MS, 0), **cancelled}])
    every = with_pairs(facts(events(rows, pairs), 1), pairs)
    check = ["delivered_after_cancel"]
    assert messages.violations(every, check, Span(as_of_ms=DUE_MS + 1_000)).count() == found


@pytest.mark.parametrize(
    ("begun_ms", "as_of_ms", "told"),
    [
        (0, DUE_MS, True),
        (DUE_MS - 890, DUE_MS - 890, True),
        (DUE_MS - 889, DUE_MS, False),  # before the ledgers began
        (0, DUE_MS - 891, False),  # after they ended
    ],
)
def test_what_is_acknowledged_is_missing_in_ledgers_that_are_of_that_time(
    spark: SparkSession, begun_ms: int, as_of_ms: int, told: bool
) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    rows = frame(spark, PLANTED["never_scheduled"])
    every = with_pairs(facts(events(rows, pairs), 1), pairs)
    span = Span(as_of_ms, whole=False, begun_ms=begun_ms)
    assert messages.violations(every, ["never_scheduled"], span).count() == told


@pytest.mark.parametrize(("whole", "told"), [(False, {1}), (True, {0, 1})])
def test_a_schedule_with_a_used_idempotency_key_is_in_the_log_since_the_first(
    spark: SparkSession, whole: bool, told: set[int]
) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    produced = [(0, REPEATED), (1, REPEATED), (1, None)]
    rows = [row(Kind.PRODUCED, -1, DUE_MS - 890, one, detail=detail) for one, detail in produced]
    every = with_pairs(facts(events(frame(spark, rows), pairs), 1), pairs)
    found = messages.violations(every, ["never_scheduled"], Span(DUE_MS, whole=whole)).collect()
    assert {one["global_index"] for one in found} == told


def test_a_message_that_is_rescheduled_is_in_the_span_of_its_first_due_time(spark: SparkSession) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    rows = [row(Kind.RESCHEDULED, 1, DUE_MS - 800, one, due_ms=DUE_MS + 5 * HOUR_MS) for one in (0, 1)]
    rows.append(row(Kind.SCHEDULED, 1, DUE_MS - 900, 0))  # the ledgers begin behind that of the other
    every = with_pairs(facts(events(frame(spark, rows), pairs), 1), pairs).persist()
    hour_ms = DUE_MS - DUE_MS % HOUR_MS
    spans = {
        (hour_ms, hour_ms + HOUR_MS): 2, (hour_ms + HOUR_MS, None): 0, (DUE_MS, DUE_MS + 1): 1,
    }  # fmt: skip
    assert {span: first_due_between(every, *span).count() for span in spans} == spans


def test_what_is_not_due_yet_is_not_missing(spark: SparkSession) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    rows = frame(spark, [*PLANTED["never_released"], *PLANTED["never_delivered"]])
    every = with_pairs(facts(events(rows, pairs), 1), pairs)
    assert messages.suspicious(every, Span(as_of_ms=DUE_MS - 1)).collect() == []


def test_what_waits_for_its_group_s_delay_is_not_missing_and_is_early_before_its_end(
    spark: SparkSession,
) -> None:
    delay_ms = 60_000
    pairs = spark.createDataFrame([(*PAIR[0][:-1], delay_ms)], PAIRS)
    delivered = {"due_ms": DUE_MS + delay_ms, "detail": delay_detail(delay_ms)}
    early = [*life(5, Kind.DELIVERED), row(Kind.DELIVERED, 2, DUE_MS + delay_ms - 1, 5, **delivered)]
    rows = frame(spark, [*PLANTED["never_delivered"], *early])
    every = with_pairs(facts(events(rows, pairs), 1), pairs).persist()
    checks = ["never_delivered", "early"]

    def found(as_of_ms: int) -> set[str]:
        return {one["check"] for one in messages.violations(every, checks, Span(as_of_ms)).collect()}

    assert found(DUE_MS + delay_ms - 1) == {"early"}
    assert found(DUE_MS + delay_ms) == {"early", "never_delivered"}


def test_the_delay_of_a_row_is_that_of_its_detail(spark: SparkSession) -> None:
    details = [None, "", "DELAYED", "DELAYED ", "DELAYED x", delay_detail(0), delay_detail(31_622_400_000)]
    rows = [row(Kind.DELIVERED, 1, DUE_MS, n, detail=detail) for n, detail in enumerate(details)]
    rows.append(row(Kind.RETRIED, 1, DUE_MS, 9, detail="DELAYED 5"))
    found = frame(spark, rows).select("global_index", delay_of().alias("delay")).collect()
    assert {one["global_index"]: one["delay"] for one in found if one["delay"]} == {6: 31_622_400_000}


def test_the_rows_of_messages_are_shuffled_once(spark: SparkSession) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    every = with_pairs(facts(events(frame(spark, RIGHT), pairs), 3), pairs)
    checked = messages.suspicious(every, Span(0))
    plan = checked._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    shuffles = [line for line in plan.splitlines() if "Exchange" in line and "Broadcast" not in line]
    assert len(shuffles) == 1, plan
    assert "hashpartitioning(hour" in shuffles[0]


def test_a_message_that_overtakes_another_of_its_key_is_found(spark: SparkSession) -> None:
    def delivered(offset: int, at_ms: int, key: int, **more: Any) -> dict[str, Any]:
        return row(Kind.DELIVERED, 5, DUE_MS + at_ms, offset, order_key=key, **more)

    right = [delivered(1, 1, 7), delivered(2, 2, 7), delivered(0, 3, 8), delivered(3, 3, 7)]
    late = [delivered(1, 9, 7, maybe_duplicate=True), delivered(1, 9, 7, attempt=2)]
    moved = spark.createDataFrame([("t", "g", 5)], BEGINS)
    before = row(Kind.DELIVERED, 4, DUE_MS, 9, order_key=7)  # and then the group was moved back
    meanwhile = delivered(5, 4, 7, due_ms=DUE_MS - 1)  # scheduled when the next was released, and due before
    ahead = delivered(4, 5, 7, due_ms=DUE_MS + 2)
    sound = [before, *right, *late, meanwhile, ahead]
    assert order.out_of_order(frame(spark, sound), moved).collect() == []
    rows = frame(spark, [*right, delivered(9, 4, 7), delivered(5, 5, 7)])
    wrong = order.out_of_order(rows, moved).collect()
    assert [(one["global_index"], one["detail"]) for one in wrong] == [(5, "offset 5 after 9 of key 7")]
    rows = frame(spark, [delivered(2, 1, 7), delivered(9, 2, 7, due_ms=DUE_MS - 5), delivered(1, 3, 7)])
    wrong = order.out_of_order(rows, moved).collect()
    assert [(one["global_index"], one["detail"]) for one in wrong] == [(1, "offset 1 after 2 of key 7")]


def test_consumers_whose_clocks_are_apart_do_not_turn_a_retry_round(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [
            row(Kind.DELIVERED, 2, DUE_MS, 0, consumer="fast"),
            row(Kind.RECEIVED, -1, DUE_MS + 9_000, 0, consumer="fast"),
            row(Kind.RETRIED, 3, DUE_MS + 5, 0, detail="NACKED"),
            row(Kind.DELIVERED, 4, DUE_MS + 20, 0, attempt=2),
            row(Kind.RECEIVED, -1, DUE_MS + 21, 0, attempt=2),
        ],
    )
    repeated = spark.createDataFrame([(277, 0, "t", "g", True)], duplicates.REPEATED)
    terms = spark.createDataFrame([(1, "n1", DUE_MS + 20)], duplicates.TERMS)
    seeks = spark.createDataFrame([], duplicates.SEEKS)
    (again,) = duplicates.duplicates(rows, repeated, terms, seeks).collect()
    assert (again["attempt"], again["cause"], again["beyond_bound"]) == (2, "nack", False)


def test_the_table_of_a_message_s_life_decides_what_may_follow() -> None:
    assert Kind.CANCELLED not in never_after(Kind.RELEASED)
    assert Kind.CANCELLED in never_after(Kind.DELIVERED)
    assert never_after(Kind.CANCELLED) >= {Kind.RELEASED, Kind.DELIVERED, Kind.CANCELLED}
    assert Kind.DELIVERED not in never_after(Kind.RETRIED)
    assert Kind.DELIVERED in never_after(Kind.ACKED)
    assert always_before(Kind.ACKED) == {Kind.SCHEDULED, Kind.RELEASED}
    assert always_before(Kind.CANCELLED) == {Kind.SCHEDULED}
