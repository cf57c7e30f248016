"""Checks one by one: a frame with one planted violation, and the same without it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.proto.ledger_rows import COLUMNS, Kind
from tarry.spark import ledger
from tarry.spark.checks import messages, order, segments
from tarry.spark.checks.lifecycle import always_before, never_after
from tarry.spark.checks.messages import Span
from tarry.spark.errors import LedgerDamaged, LedgerEmpty, LedgerMissing
from tarry.spark.facts import PAIRS, events, facts, with_pairs
from tarry.spark.ledger import Segment, chosen
from tarry.spark.schema import LEDGER, kind_number

DUE_MS = 1_000_000_000
PAIR = [(0, "t", "g", True, True, 0, False, 100, False, -1)]
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
    row(Kind.CANCELLED, 4, DUE_MS + 30, 27, group="g"),  # the copy alone
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, set[int]]:
    """What each check finds among one planted violation of each, and what is right."""
    rows = frame(spark, [*RIGHT, *(one for some in PLANTED.values() for one in some)])
    pairs = spark.createDataFrame(PAIR, PAIRS)
    every = with_pairs(facts(events(rows, pairs), 1), pairs).persist()
    span = Span(as_of_ms=DUE_MS + 1_000)
    return {
        name: {one["global_index"] for one in messages.violations(every, name, span).collect()}
        for name in messages.CHECKS
    }


@pytest.mark.parametrize("check", messages.CHECKS)
def test_a_check_finds_the_one_planted_violation(found: dict[str, set[int]], check: str) -> None:
    planted = {PLANTED[check][0]["global_index"]}
    if check == "lifecycle":  # these are in no order that the table has either
        planted |= {
            PLANTED[other][0]["global_index"] for other in ("released_twice", "delivered_after_cancel")
        }
    assert found[check] == planted


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
    assert messages.violations(every, "never_scheduled", span).count() == told


def test_what_is_not_due_yet_is_not_missing(spark: SparkSession) -> None:
    pairs = spark.createDataFrame(PAIR, PAIRS)
    rows = frame(spark, [*PLANTED["never_released"], *PLANTED["never_delivered"]])
    every = with_pairs(facts(events(rows, pairs), 1), pairs)
    assert messages.suspicious(every, Span(as_of_ms=DUE_MS - 1)).collect() == []


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
    assert order.out_of_order(frame(spark, right + late)).collect() == []
    wrong = order.out_of_order(frame(spark, [*right, delivered(9, 4, 7), delivered(5, 5, 7)])).collect()
    assert [(one["global_index"], one["detail"]) for one in wrong] == [(5, "offset 5 after 9 of key 7")]


# -- segments ------------------------------------------------------------------------------


def segment(source: str, number: int, first: int, last: int) -> Segment:
    return Segment(f"{source}-{number}", source, "r", number, first, last, 0, 0, 1, 1, 1, {})


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 15)), max_size=12))
def test_every_index_that_any_replica_has_is_spoken_for_once(parts: list[tuple[int, int, int]]) -> None:
    some = [segment(f"n{n}", at, first, first + size) for at, (n, first, size) in enumerate(parts)]
    spoken = [index for one in chosen(some) for index in range(one.speaks_from + 1, one.speaks_to + 1)]
    covered = {index for one in some for index in range(one.first_index + 1, one.last_index + 1)}
    assert sorted(spoken) == sorted(covered)


def gap(source: str, detail: str) -> dict[str, Any]:
    return {"kind": Kind.GAP.value, "source": source, "detail": detail, "at_ms": 1}


@pytest.mark.parametrize(
    ("parts", "declared", "checks"),
    [
        ([(1, 0, 10), (2, 10, 20)], [], []),
        ([(1, 0, 10), (2, 5, 20)], [], []),  # told again after a restart
        ([(1, 0, 10), (2, 12, 20)], [], ["gap"]),
        ([(1, 0, 10), (2, 12, 20)], [gap("n1", "all 10..12 OVERFLOW")], ["gap_declared"]),
        ([(1, 0, 10), (2, 12, 20)], [gap("n2", "all 10..12 OVERFLOW")], ["gap_declared", "gap"]),
        ([(1, 0, 10), (2, 10, 20)], [gap("n1", "node_made 10..10 KILLED")], ["gap_declared"]),
        ([(1, 0, 10), (3, 20, 30)], [], ["segment_lost"]),
    ],
)
def test_what_a_ledger_leaves_out_is_found(
    parts: list[tuple[int, int, int]], declared: list[dict[str, Any]], checks: list[str]
) -> None:
    some = chosen(segment("n1", *part) for part in parts)
    found = segments.gaps(some, declared)
    assert [fault.check for fault in found] == checks
    assert [fault.promise for fault in found] == [check != "gap_declared" for check in checks]


@pytest.mark.parametrize(
    ("parts", "begin"),
    [
        ([], None),
        ([("n1", 0, 10), ("n1", 10, 20)], 0),
        ([("n1", 0, 10), ("n2", 5, 30), ("n1", 25, 40)], 0),  # a hole that another replica fills
        ([("n1", 0, 10), ("n2", 0, 8), ("n1", 25, 40)], 25),
        ([("producer:p", -1, -1), ("n1", 7, 9)], 7),
    ],
)
def test_the_ledgers_begin_behind_the_last_hole_that_no_replica_fills(
    parts: list[tuple[str, int, int]], begin: int | None
) -> None:
    some = chosen(segment(source, number, *part) for number, (source, *part) in enumerate(parts))
    assert ledger.begin(some) == begin


def test_files_that_are_not_as_written_are_found(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    copied = tmp_path / "ledger"
    shutil.copytree(made, copied)
    every = ledger.closed(spark, [str(copied)])
    lost, longer, changed, unclosed, *_ = [copied / "date=2025-11-20" / one.file for one in every]
    lost.unlink()
    longer.write_bytes(longer.read_bytes() + b"\0")
    content = bytearray(changed.read_bytes())
    content[100] ^= 1
    changed.write_bytes(content)
    unclosed.with_suffix(".json").unlink()
    every = [one for one in every if one.file != unclosed.name]
    found = segments.files(spark, [str(copied)], every)
    assert {(fault.check, fault.file) for fault in found} == {
        ("segment_lost", lost.name),
        ("segment_damaged", longer.name),
        ("segment_not_closed", unclosed.name),
    }
    there = [one for one in every if one.file not in {lost.name, longer.name}]
    damaged = segments.damaged(spark, there, checksums=True)
    assert [(fault.check, fault.file) for fault in damaged] == [("segment_damaged", changed.name)]


def test_a_ledger_that_cannot_be_read_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="name the folder"):
        ledger.closed(spark, [str(tmp_path / "nowhere")])
    with pytest.raises(LedgerEmpty, match="no closed segment"):
        ledger.closed(spark, [str(tmp_path)])
    (tmp_path / "date=2025-11-20").mkdir()
    manifest = tmp_path / "date=2025-11-20" / "n1-r-0-1-1.json"
    manifest.write_text("{")
    with pytest.raises(LedgerDamaged, match="not a manifest"):
        ledger.closed(spark, [str(tmp_path)])
    manifest.write_text('{"version": 99, "source": "n1"}')
    with pytest.raises(LedgerDamaged, match="version 99"):
        ledger.closed(spark, [str(tmp_path)])


def test_the_table_of_a_message_s_life_decides_what_may_follow() -> None:
    assert never_after(Kind.CANCELLED) >= {Kind.RELEASED, Kind.DELIVERED, Kind.CANCELLED}
    assert Kind.DELIVERED not in never_after(Kind.RETRIED)
    assert Kind.DELIVERED in never_after(Kind.ACKED)
    assert always_before(Kind.ACKED) == {Kind.SCHEDULED, Kind.RELEASED}
    assert always_before(Kind.CANCELLED) == {Kind.SCHEDULED}
