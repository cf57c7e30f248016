"""A run of tarry reconcile, as it writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SUMMARY: dict[str, Any] = {
    "kept": False,
    "scheduled": 1_234,
    "missing": 1,
    "duplicates": 7,
    "duplicates_by_cause": {"failover": 7},
    "violations": {"early": 2},
    "remarks": {},
    "as_of_ms": 1_800_000_000_000,
    "wall_s": 3.5,
}
ROW: dict[str, Any] = {"id": "0007wk3", "topic": "<b>", "at_ms": 1_800_000_000_001, "detail": "due too soon"}
FINDINGS: dict[str, Any] = {
    "format": 1,
    "made_ms": 1_800_000_100_000,
    "ledgers": ["/ledgers/<i>"],
    "summary": SUMMARY,
    "checks": [
        {"check": "early", "promise": True, "count": 2, "rows": [ROW, {"detail": "no message"}]},
        {"check": "waiting", "promise": False, "count": 9, "rows": []},
    ],
}


def write_run(folder: Path, name: str) -> Path:
    """Write the files of the run that the console reads, and return its folder."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps(SUMMARY))
    (run / "findings.json").write_text(json.dumps(FINDINGS))
    return run
