"""Summary of a run: its figures, and the files beside the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tarry.spark.checks import timeline
from tarry.spark.checks.messages import MISSING, Span
from tarry.spark.findings import findings_text
from tarry.spark.report import page

FIGURES: Final = (
    "scheduled", "acknowledged", "delivered_once", "duplicates", "duplicates_by_cause", "missing", "early",
    "late_p99_ms", "cancelled_delivered", "segments", "gaps", "wall_s",
)  # fmt: skip
"""The figures of a run's last line; summary.json has more."""

GAPS: Final = ("gap", "gap_declared", "segment_lost", "segment_damaged")


class Findings(NamedTuple):
    """Results of the checks of a run."""

    timeline: DataFrame
    duplicates: DataFrame
    violations: DataFrame
    counts: Mapping[str, int]
    span: Span
    shard: int
    about: Mapping[str, Any]
    """Input and settings of the run, and when it was done, as values of JSON."""


def summary(findings: Findings, segments: int, rows: int, wall_s: float) -> dict[str, Any]:
    """Return the figures of a job that has run; keys are those of summary.json."""
    counts, span = findings.counts, findings.span
    found = {(row["check"], row["promise"]): row["count"] for row in
             findings.violations.groupBy("check", "promise").count().collect()}  # fmt: skip
    causes = {row["cause"]: row["count"] for row in findings.duplicates.groupBy("cause").count().collect()}
    late = timeline.lateness(findings.timeline.withColumn("all_topics", F.lit(1)), "all_topics").collect()
    produced = counts["produced"]
    return {
        "scheduled": counts["scheduled"],
        "acknowledged": produced or counts["scheduled"],
        "delivered_once": counts["delivered_once"],
        "duplicates": sum(causes.values()),
        "duplicates_by_cause": dict(sorted(causes.items())),
        "missing": sum(counts[f"check_{name}"] for name in MISSING),
        "early": counts["check_early"],
        **{f"late_{one}_ms": late[0][f"late_{one}_ms"] if late else None for one in ("p50", "p99", "max")},
        "cancelled_delivered": counts["check_delivered_after_cancel"],
        "released": counts["released"],
        "cancelled": counts["cancelled"],
        "acked_unseen": counts["acked_unseen"],
        "expired_unacked": counts["expired_unacked"],
        "segments": segments,
        "rows": rows,
        "gaps": sum(count for (check, _), count in found.items() if check in GAPS),
        "violations": {check: count for (check, promise), count in sorted(found.items()) if promise},
        "remarks": {check: count for (check, promise), count in sorted(found.items()) if not promise},
        "whole": span.whole,
        "as_of_ms": span.as_of_ms,
        "kept": not any(promise for _, promise in found),
        "wall_s": round(wall_s, 1),
    }


def write(findings: Findings, summary: Mapping[str, Any], out: str) -> None:
    """Write summary.json, report.html and findings.json beside the tables.

    Where `out` is a URI they are folders of one part, as Spark writes text.
    """
    report = page(findings.timeline, findings.duplicates, findings.violations, summary)
    about = {**findings.about, "summary": summary}
    texts = {
        "findings.json": findings_text(findings.violations, findings.shard, about),
        "report.html": report,
        "summary.json": json.dumps(summary, indent=2),  # the last: a run that has it is whole
    }
    if "://" not in out:
        for name, text in texts.items():
            Path(out, name).write_text(text)
        return
    spark = findings.timeline.sparkSession
    for name, text in texts.items():
        single = spark.createDataFrame([(text,)], "value string").coalesce(1)
        single.write.mode("overwrite").text(f"{out}/{name}")
