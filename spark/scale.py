"""Measurement of the reconciliation on generated ledgers of several sizes; each must find what is planted."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tarry.spark.generate import ROWS_EACH, Generator, Plan
from tarry.spark.reconcile import Options, Reconciliation

CHECKS: Final = {"beyond_bound": "duplicate_beyond_bound"}
"""Faults -> the check that finds them, where the name is another."""

VIOLATIONS: Final = (
    "never_scheduled", "never_released", "never_delivered", "released_twice", "early",
    "delivered_after_cancel", "replicas_disagree", "beyond_bound",
)  # fmt: skip
CAUSES: Final = ("failover", "lease_expiry", "nack", "client_retry")

Say = Callable[[str], None]


def measured(spark: SparkSession, folder: Path, sizes: Sequence[int], say: Say) -> Iterator[dict[str, Any]]:
    """Yield for each size, ascending, what its reconciliation took; `exact`: it found what was planted.

    `rows`, `messages` int, `generate_s`, `wall_s` float (of the reconciliation), `rows_per_s` int,
    `peak_mib` int: the most memory that the processes have had so far, None where the system does not say.
    """
    for size in sorted(sizes):
        ledger, out = folder / "ledger", folder / "out"
        started = time.monotonic()
        maker = Generator(Plan(max(1, size // ROWS_EACH)), ledger)
        for number, done in enumerate(maker.run()):
            if number % 20 == 0:
                say(f"{size:,} rows: {done:,} messages made")
        made_s = time.monotonic() - started
        job = Reconciliation(spark, Options([str(ledger)], str(out), settle_ms=0), say)
        wall_s = job.run()["wall_s"]
        yield {
            "rows": maker.rows,
            "messages": maker.plan.messages,
            "generate_s": round(made_s, 1),
            "wall_s": wall_s,
            "rows_per_s": round(maker.rows / wall_s),
            "peak_mib": peak_mib(spark),
            "exact": exact(job, ledger),
        }
        shutil.rmtree(ledger)
        shutil.rmtree(out)


def exact(job: Reconciliation, ledger: Path) -> bool:
    """Return whether the job has found every planted message, for what it was planted, and no other."""
    planted = json.loads((ledger / "truth.json").read_text())["planted"]

    def same(fault: str, found: Any) -> bool:
        names = {(row["hour"], row["global_index"]) for row in found.select("hour", "global_index").collect()}
        return names == {tuple(name) for name in planted[fault]}

    violations, duplicates = job.violations.persist(), job.duplicates.persist()
    return all(
        [
            *(same(fault, violations.where(f"check = '{CHECKS.get(fault, fault)}'")) for fault in VIOLATIONS),
            *(same(cause, duplicates.where(f"cause = '{cause}' and not beyond_bound")) for cause in CAUSES),
        ]
    )


def peak_mib(spark: SparkSession) -> int | None:
    """Return the most memory that this process and Spark's have had, on Linux."""
    jvm: Any = spark._jvm
    pids = [os.getpid(), int(jvm.java.lang.ProcessHandle.current().pid())]
    try:
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    except OSError:
        return None
    found = [re.search(r"VmHWM:\s+(\d+) kB", text) for text in texts]
    return sum(int(one[1]) for one in found if one) // 1024
