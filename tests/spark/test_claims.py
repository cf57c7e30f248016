"""Which messages a group has a claim to: what waits is not missing, nor what it was moved past."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.proto.ledger.schema import GroupMove, Kind
from tarry.spark.checks import messages
from tarry.spark.checks.messages import Span
from tarry.spark.checks.timeline import timeline
from tarry.spark.facts import PAIRS, events, facts, with_pairs
from tarry.spark.pairs import BEGINS, begins, pairs
from tests.spark.test_checks import DUE_MS, frame, row

OUT = True


def released(topic: str, index: int, offset: int, *, out: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a message: released in that entry, and if `out` delivered and acked."""
    number = index * 100 + offset
    more = {"topic": topic, "offset": offset}
    some = [
        row(Kind.SCHEDULED, 1, DUE_MS - 9, number, **more),
        row(Kind.RELEASED, index, DUE_MS, number, **more),
    ]
    if out:
        some.append(row(Kind.DELIVERED, index, DUE_MS + 1, number, **more))
        some.append(row(Kind.ACKED, index + 1, DUE_MS + 2, number, **more))
    return some


def moved(topic: str, index: int, why: GroupMove, offset: int | None = None) -> dict[str, Any]:
    return {
        "kind": Kind.GROUP_MOVED.value, "topic": topic, "group": "g", "index": index, "offset": offset,
        "detail": why.value,
    }  # fmt: skip


ROWS = [
    *released("backlog", 2, 0, out=OUT), *released("backlog", 2, 1),
    *released("backlog", 2, 2, out=OUT), *released("backlog", 2, 3),
    *released("never there", 2, 0),
    *released("deleted", 2, 0), *released("deleted", 2, 1, out=OUT), *released("deleted", 8, 2),
    *released("made again", 2, 5), *released("made again", 13, 0, out=OUT),
    *released("made again", 13, 1), *released("made again", 13, 9, out=OUT),
    *released("to and fro", 2, 7), *released("to and fro", 2, 8), *released("to and fro", 2, 50, out=OUT),
    *released("too old", 2, 0), *released("too old", 2, 1, out=OUT),
    row(Kind.EXPIRED, 3, DUE_MS + 5, 200, topic="too old", group="g", offset=0),
    *released("to and fro", 20, 5), *released("to and fro", 20, 6, out=OUT),
]  # fmt: skip
MOVES = [
    *(moved(topic, 1, GroupMove.CREATED, 0) for topic in ("backlog", "never there", "deleted", "to and fro")),
    moved("too old", 3, GroupMove.TRIMMED, 1),
    moved("too old", 9, GroupMove.SEEK, 0),
    moved("deleted", 7, GroupMove.DELETED),
    moved("made again", 1, GroupMove.CREATED, 0),
    moved("made again", 10, GroupMove.TOPIC_DELETED),
    moved("made again", 11, GroupMove.CREATED, 0),
    moved("to and fro", 9, GroupMove.SEEK, 100),
    moved("to and fro", 19, GroupMove.SEEK, 5),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, set[tuple[str, int]]]:
    """What each check finds, as (topic, offset)."""
    rows = frame(spark, ROWS)
    counted = timeline(rows, spark.createDataFrame(begins(MOVES), BEGINS))
    table = spark.createDataFrame(pairs(counted, MOVES), PAIRS)
    every = with_pairs(facts(events(rows, table), 1), table)
    span = Span(as_of_ms=DUE_MS + 1_000)
    of_checks: dict[str, set[tuple[str, int]]] = {"never_delivered": set(), "waiting": set()}
    for one in messages.violations(every, of_checks, span).collect():
        of_checks[one["check"]].add((one["topic"], one["global_index"] % 100))
    return of_checks


def test_what_lies_behind_all_that_a_group_has_got_waits_and_is_not_missing(
    found: dict[str, set[tuple[str, int]]],
) -> None:
    assert {one for one in found["waiting"] if one[0] in ("backlog", "never there")} == {
        ("backlog", 3), ("never there", 0),
    }  # fmt: skip
    assert {one for one in found["never_delivered"] if one[0] in ("backlog", "never there")} == {
        ("backlog", 1)
    }


def test_what_expired_before_a_group_had_it_is_neither_lost_nor_delivered(
    found: dict[str, set[tuple[str, int]]],
) -> None:
    assert not [one for one in found["waiting"] | found["never_delivered"] if one[0] == "too old"]


def test_a_deleted_group_claims_nothing_more(found: dict[str, set[tuple[str, int]]]) -> None:
    assert ("deleted", 2) not in found["waiting"] | found["never_delivered"]
    assert ("deleted", 0) in found["never_delivered"]


def test_a_group_does_not_claim_what_went_with_its_topic(found: dict[str, set[tuple[str, int]]]) -> None:
    both = {(name, *one) for name, those in found.items() for one in those if one[0] == "made again"}
    assert both == {("never_delivered", "made again", 1)}


def test_a_group_that_was_moved_there_and_back_claims_what_lies_behind_its_last_place(
    found: dict[str, set[tuple[str, int]]],
) -> None:
    both = {(name, *one) for name, those in found.items() for one in those if one[0] == "to and fro"}
    assert both == {
        ("never_delivered", "to and fro", 5), ("waiting", "to and fro", 7), ("waiting", "to and fro", 8),
    }  # fmt: skip
