"""Fires of schedules in ledgers: each once, none left out."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.proto.ledger.fires import FireDetail, detail_of
from tarry.proto.ledger.schema import Kind
from tarry.spark.checks.fires import AHEAD_MS, wrong_fires
from tarry.spark.checks.messages import Span
from tarry.spark.facts import HOUR_MS
from tests.spark.test_checks import DUE_MS, frame, life, row

WHOLE = Span(as_of_ms=DUE_MS + HOUR_MS)
SECOND_MS = 1_000


def fire(message: int, at_s: int, before_s: int | None, index: int, number: int = 1) -> dict[str, Any]:
    """Return the row of a fire's message; times in seconds from DUE_MS."""
    before_ms = 0 if before_s is None else DUE_MS + before_s * SECOND_MS
    detail = detail_of(FireDetail(number, f"s{number}", DUE_MS + at_s * SECOND_MS, before_ms))
    due_ms = DUE_MS + at_s * SECOND_MS + 7  # with jitter
    return row(Kind.SCHEDULED, index, due_ms - 400, message, due_ms=due_ms, detail=detail)


SOUND = [
    fire(0, 0, None, 1),
    fire(1, 1, 0, 2),
    fire(2, 2, 1, 3),
    fire(3, 1, None, 3, number=2),  # another schedule at the same time
    row(Kind.SCHEDULED, 4, DUE_MS, 4, detail=detail_of(FireDetail(1, "s1", None))),  # triggered
    fire(5, 3, 2, 5),
    row(Kind.CANCELLED, 6, DUE_MS, 5),  # a pause
    fire(6, 3, 2, 8),  # resumed in time
    fire(7, 9, 3, 9),  # what lay between was left out by a policy
    *life(8),
]


def found(spark: SparkSession, *more: dict[str, Any], without: int | None = None, **of: Any) -> list[Any]:
    rows = [one for one in (*SOUND, *more) if one["global_index"] != without]
    wrong = wrong_fires(frame(spark, rows), of.pop("span", WHOLE), **of).collect()
    assert all(one["promise"] for one in wrong)
    return sorted((one["check"], one["global_index"], one["detail"]) for one in wrong)


def test_nothing_is_wrong_with_fires_of_which_each_tells_the_one_before(spark: SparkSession) -> None:
    assert found(spark) == []


def test_a_fire_with_two_messages_is_found(spark: SparkSession) -> None:
    text = f"fire {DUE_MS + SECOND_MS} of schedule s1 twice"
    assert found(spark, fire(9, 1, 0, 10)) == [("fired_twice", 9, text)]


def test_a_message_that_was_cancelled_only_after_its_fire_came_again_does_not_excuse_it(
    spark: SparkSession,
) -> None:
    late = (fire(9, 1, 0, 10), row(Kind.CANCELLED, 11, DUE_MS, 1))
    assert [one[:2] for one in found(spark, *late)] == [("fired_twice", 9)]
    of_group = (fire(9, 1, 0, 10), row(Kind.CANCELLED, 9, DUE_MS, 1, group="g", attempt=1))
    assert [one[:2] for one in found(spark, *of_group)] == [("fired_twice", 9)]


def test_three_messages_of_a_fire_are_two_too_many(spark: SparkSession) -> None:
    wrong = found(spark, fire(9, 1, 0, 10), row(Kind.CANCELLED, 11, DUE_MS, 9), fire(10, 1, 0, 12))
    assert [one[:2] for one in wrong] == [("fired_twice", 9), ("fired_twice", 10)]


def test_a_fire_without_a_message_that_its_schedule_counts_as_made_is_found(spark: SparkSession) -> None:
    text = f"fire {DUE_MS + SECOND_MS} of schedule s1 in no row"
    assert found(spark, without=1) == [("fire_left_out", 2, text)]


@pytest.mark.parametrize(
    ("begun_ms", "told"),
    [(DUE_MS + SECOND_MS - AHEAD_MS, True), (DUE_MS + SECOND_MS - AHEAD_MS + 1, False)],
)
def test_what_was_made_before_the_ledgers_began_is_not_left_out(
    spark: SparkSession, begun_ms: int, told: bool
) -> None:
    span = Span(as_of_ms=DUE_MS + HOUR_MS, whole=False, begun_ms=begun_ms)
    assert bool(found(spark, without=1, span=span)) is told


def test_what_lies_in_an_hour_that_is_not_asked_for_is_not_left_out(spark: SparkSession) -> None:
    assert found(spark, without=1, from_ms=DUE_MS) != []
    assert found(spark, without=1, from_ms=DUE_MS + HOUR_MS) == []
