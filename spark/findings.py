"""Findings of a run as one file for programs: of each check its count, and the first rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.message_id import MessageId

FORMAT: Final = 1
ROWS_MAX: Final = 200
"""Of a check; the Parquet tables have all."""
DETAIL_CHARS_MAX: Final = 500
OTHERS: Final = ("topic", "group", "due_ms", "at_ms", "index", "source")


def findings_text(violations: DataFrame, shard: int, about: Mapping[str, Any]) -> str:
    """Return the file: ``about`` the run, and ``checks``, those of promises first.

    Each has its name, whether a promise is broken, its count, and rows, the earliest first; a row about a
    message has its ``id``.

    Args:
        violations: as the job writes them.
        about: values of JSON.
    """
    counts = violations.groupBy("check", "promise").count().collect()
    earliest = Window.partitionBy("check", "promise").orderBy(
        "at_ms", "hour", "global_index", "index", "group"
    )
    first = violations.withColumn("place", F.row_number().over(earliest)).where(F.col("place") <= ROWS_MAX)
    rows: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in first.orderBy("check", "promise", "place").collect():
        rows.setdefault((row["check"], row["promise"]), []).append(_row(row.asDict(), shard))
    checks = [
        {
            "check": one["check"],
            "promise": one["promise"],
            "count": one["count"],
            "rows": rows.get((one["check"], one["promise"]), []),
        }
        for one in sorted(counts, key=lambda one: (not one["promise"], one["check"]))
    ]
    return json.dumps({"format": FORMAT, **about, "checks": checks})


def _row(row: Mapping[str, Any], shard: int) -> dict[str, Any]:
    told = {name: row[name] for name in OTHERS if row[name] is not None}
    if row["hour"] is not None and row["global_index"] is not None:
        told["id"] = str(MessageId(shard, row["hour"], row["global_index"]))
    return told | {"detail": (row["detail"] or "")[:DETAIL_CHARS_MAX]}
