"""What a run comes to: the figures, and the files beside the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from tarry.spark.checks import timeline
from tarry.spark.report import page

if TYPE_CHECKING:
    from tarry.spark.reconcile import Reconciliation

FIGURES: Final = (
    "scheduled", "acknowledged", "delivered_once", "duplicates", "duplicates_by_cause", "missing", "early",
    "late_p99_ms", "cancelled_delivered", "segments", "gaps", "wall_s",
)  # fmt: skip
"""The figures of a run's last line; summary.json has more."""

MISSING: Final = ("never_scheduled", "never_released", "never_delivered", "never_retried")
GAPS: Final = ("gap", "gap_declared", "segment_lost", "segment_damaged")


def summary(job: Reconciliation, segments: int, rows: int, wall_s: float) -> dict[str, Any]:
    """Return the figures of a job that has run; keys are those of summary.json."""
    found = {(row["check"], row["promise"]): row["count"] for row in
             job.violations.groupBy("check", "promise").count().collect()}  # fmt: skip
    causes = {row["cause"]: row["count"] for row in job.duplicates.groupBy("cause").count().collect()}
    late = timeline.lateness(job.timeline.withColumn("all_topics", F.lit(1)), "all_topics").collect()
    produced = job.counts["produced"]
    return {
        "scheduled": job.counts["scheduled"],
        "acknowledged": produced or job.counts["scheduled"],
        "delivered_once": job.counts["delivered_once"],
        "duplicates": sum(causes.values()),
        "duplicates_by_cause": dict(sorted(causes.items())),
        "missing": sum(job.counts[f"check_{name}"] for name in MISSING),
        "early": job.counts["check_early"],
        "late_p50_ms": late[0]["late_p50_ms"] if late else None,
        "late_p99_ms": late[0]["late_p99_ms"] if late else None,
        "late_max_ms": late[0]["late_max_ms"] if late else None,
        "cancelled_delivered": job.counts["check_delivered_after_cancel"],
        "released": job.counts["released"],
        "cancelled": job.counts["cancelled"],
        "acked_unseen": job.counts["acked_unseen"],
        "segments": segments,
        "rows": rows,
        "gaps": sum(count for (check, _), count in found.items() if check in GAPS),
        "violations": {check: count for (check, promise), count in sorted(found.items()) if promise},
        "remarks": {check: count for (check, promise), count in sorted(found.items()) if not promise},
        "whole": job.span.whole,
        "as_of_ms": job.span.as_of_ms,
        "kept": not any(promise for _, promise in found),
        "wall_s": round(wall_s, 1),
    }


def write(job: Reconciliation, summary: Mapping[str, Any]) -> None:
    """Write summary.json and report.html beside the tables.

    Where `out` is a URI they are folders of one part, as Spark writes text.
    """
    job.say("report")
    report = page(job.timeline, job.duplicates, job.violations, summary)
    texts = {"summary.json": json.dumps(summary, indent=2), "report.html": report}
    out = job.options.out
    if "://" not in out:
        for name, text in texts.items():
            Path(out, name).write_text(text)
        return
    for name, text in texts.items():
        single = job.spark.createDataFrame([(text,)], "value string").coalesce(1)
        single.write.mode("overwrite").text(f"{out}/{name}")
