"""The groups that have a claim to a topic's messages, and from where on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tarry.proto.ledger_rows import GroupMove, Kind


def pairs(timeline: DataFrame, events: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return every (topic, group), with what is known of it: schema facts.PAIRS.

    From timeline.timeline and ledger.node_events. There are as many as topics and groups, not as messages.
    """
    redriven = F.max((F.col("detail") == "REDRIVEN").cast("int"))
    receipts = F.max((F.col("kind") == Kind.RECEIVED.value).cast("int"))
    known = {
        (row["topic"], row["group"]): (bool(row["receipts"]), bool(row["redriven"]))
        for row in timeline.groupBy("topic", "group")
        .agg(receipts.alias("receipts"), redriven.alias("redriven")).collect()
    }  # fmt: skip
    moves: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for event in sorted(events, key=lambda one: one["index"]):
        if event["kind"] == Kind.GROUP_MOVED.value and event["group"]:
            moves.setdefault((event["topic"], event["group"]), []).append(event)
    topics = {topic for topic, _ in known}
    names = {*known, *(pair for pair in moves if pair[0] in topics)}
    grouped = {topic for topic, group in names if group is not None}
    rows: list[tuple[Any, ...]] = []
    counted = set[str]()
    for topic, group in sorted(names, key=lambda pair: (pair[0] or "", pair[1] or "")):
        if topic is None or (group is None and topic in grouped):
            continue
        receipts_too, again = known.get((topic, group), (False, False))
        mine = moves.get((topic, group), [])
        start = max((move["offset"] or 0 for move in mine), default=0)
        again |= any(move["detail"] != GroupMove.CREATED.value for move in mine)
        rows.append((len(rows), topic, group, topic not in counted, receipts_too, start, again))
        counted.add(topic)
    return rows
