"""Transactions in ledgers: each ends once, and what was rolled back is no message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionDetail, TransactionEvent, detail_of
from tarry.spark.checks.messages import Span
from tarry.spark.checks.transactions import wrong_transactions
from tests.spark.test_checks import DUE_MS, frame, life, row


def committed(message: int, index: int, number: int) -> dict[str, Any]:
    detail = detail_of(TransactionDetail(TransactionEvent.COMMITTED, number, "shop", f"o-{number}"))
    return row(Kind.SCHEDULED, index, DUE_MS, message, detail=detail)


def ended(event: TransactionEvent, index: int, number: int, kind: Kind = Kind.ROLLED_BACK) -> dict[str, Any]:
    detail = detail_of(TransactionDetail(event, number, "shop", f"o-{number}"))
    return row(kind, index, DUE_MS, detail=detail) | {"hour": None, "global_index": None, "due_ms": None}


def half(index: int, number: int) -> dict[str, Any]:
    return ended(TransactionEvent.HALF, index, number, Kind.PREPARED)


SPAN = Span(DUE_MS + 60_000)
SOUND = [
    *(half(number, number) for number in (1, 2)),
    committed(0, 4, 1),
    ended(TransactionEvent.ROLLED_BACK, 5, 2),
    *life(8),
]


def found(spark: SparkSession, *more: dict[str, Any]) -> list[Any]:
    wrong = wrong_transactions(frame(spark, [*SOUND, *more]), SPAN).collect()
    return sorted((one["check"], one["promise"], one["index"], one["detail"]) for one in wrong)


def test_nothing_is_wrong_with_transactions_that_end_once(spark: SparkSession) -> None:
    assert found(spark) == []


def test_a_transaction_with_two_messages_is_found(spark: SparkSession) -> None:
    text = "transaction o-1 of producer group shop"
    assert found(spark, committed(1, 6, 1)) == [("committed_twice", True, 6, text)]


def test_a_message_of_a_transaction_that_was_rolled_back_is_found(spark: SparkSession) -> None:
    text = "transaction o-2 of producer group shop"
    assert found(spark, committed(1, 6, 2)) == [("rolled_back_delivered", True, 6, text)]
    text = "transaction o-1 of producer group shop"
    late = ended(TransactionEvent.ROLLED_BACK, 6, 1)
    assert found(spark, late) == [("rolled_back_delivered", True, 4, text)]


def test_an_unresolved_transaction_is_a_remark(spark: SparkSession) -> None:
    text = "transaction o-3 of producer group shop"
    wrong = found(spark, half(3, 3), ended(TransactionEvent.UNRESOLVED, 6, 3))
    assert wrong == [("transaction_unresolved", False, 6, text)]


def test_a_transaction_without_an_end_is_a_remark_once_it_had_time_to_end(spark: SparkSession) -> None:
    text = "transaction o-3 of producer group shop"
    assert found(spark, half(3, 3)) == [("transaction_open", False, 3, text)]
    assert found(spark, half(3, 3) | {"at_ms": SPAN.as_of_ms + 1}) == []


def test_an_end_without_a_half_message_before_it_is_found_where_the_ledgers_have_everything(
    spark: SparkSession,
) -> None:
    text = "transaction o-3 of producer group shop"
    for end, more in ((committed(1, 6, 3), []), (ended(TransactionEvent.ROLLED_BACK, 6, 3), [half(7, 3)])):
        assert found(spark, end, *more) == [("never_prepared", True, 6, text)]
        rows = frame(spark, [*SOUND, end, *more])
        assert wrong_transactions(rows, replace(SPAN, whole=False)).collect() == []
