"""Pairs of topics and groups, and the offset from which a group has a claim to its topic's messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import GroupMove, Kind
from tarry.spark.schema import delay_ms

ENDS: Final = (GroupMove.DELETED.value, GroupMove.TOPIC_DELETED.value)

BEGINS: Final = "topic string, group string, behind long"
"""Schema of the index of the last move of each group that was moved."""


def moved(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the moves of groups among ledger.node_events, in order."""
    moves = (one for one in events if one["kind"] == Kind.GROUP_MOVED.value and one["group"])
    return sorted(moves, key=lambda one: one["index"])


def begins(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Return rows of BEGINS, for timeline.timeline."""
    last = {(one["topic"], one["group"]): one["index"] for one in moved(events) if one["detail"] not in ENDS}
    return [(*pair, index) for pair, index in last.items()]


def pairs(timeline: DataFrame, events: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return every (topic, group), with what is known of it: schema facts.PAIRS.

    From timeline.timeline and ledger.node_events. There are as many as topics and groups, not as messages.
    """
    redriven = F.max((F.col("detail") == "REDRIVEN").cast("int"))
    receipts = F.max((F.col("kind") == Kind.RECEIVED.value).cast("int"))
    found = timeline.groupBy("topic", "group").agg(
        receipts.alias("receipts"),
        redriven.alias("redriven"),
        F.max("handed").alias("handed"),
        F.max(delay_ms()).alias("delay"),
    )
    known = {
        (row["topic"], row["group"]): (
            bool(row["receipts"]),
            bool(row["redriven"]),
            row["handed"],
            row["delay"],
        )
        for row in found.collect()
    }
    moves: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    topic_gone: dict[str, int] = {}
    for event in moved(events):
        moves.setdefault((event["topic"], event["group"]), []).append(event)
        if event["detail"] == GroupMove.TOPIC_DELETED.value:
            topic_gone[event["topic"]] = event["index"]
    topics = {topic for topic, _ in known}
    names = {*known, *(pair for pair in moves if pair[0] in topics)}
    grouped = {topic for topic, group in names if group is not None}
    rows: list[tuple[Any, ...]] = []
    counted = set[str]()
    for topic, group in sorted(names, key=lambda pair: (pair[0] or "", pair[1] or "")):
        if topic is None or (group is None and topic in grouped):
            continue
        receipts_too, again, delivered, delay = known.get((topic, group), (False, False, None, 0))
        mine = moves.get((topic, group), [])
        starts = [move["offset"] or 0 for move in mine if move["detail"] not in ENDS]
        start, ended = starts[-1] if starts else 0, bool(mine) and mine[-1]["detail"] in ENDS
        again |= any(move["detail"] != GroupMove.CREATED.value for move in mine)
        first, behind = topic not in counted, topic_gone.get(topic, -1)
        row = (len(rows), topic, group, first, receipts_too, start, again, delivered, ended, behind, delay)
        rows.append(row)
        counted.add(topic)
    return rows
