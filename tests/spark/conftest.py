"""One Spark session for all, and one reconciliation of a ledger in which faults are planted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.spark.generate import Generator, Plan
from tarry.spark.reconcile import Options, Reconciliation
from tarry.spark.session import SMALL, session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session("tests", memory_mib=1_024, settings=SMALL)
    yield started
    started.stop()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A ledger, what was planted in it, and what the job found."""

    ledger: Path
    out: Path
    planted: dict[str, set[tuple[int, int]]]
    summary: dict[str, Any]
    job: Reconciliation

    def found(self, check: str) -> set[tuple[int, int]]:
        """Return the messages of which a check found something, as (hour, global index)."""
        rows = self.job.violations.where(f"check = '{check}'").select("hour", "global_index").collect()
        return {(row[0], row[1]) for row in rows}


def generated(folder: Path, plan: Plan) -> dict[str, set[tuple[int, int]]]:
    """Write the ledger of a plan; return what is planted."""
    for _ in Generator(plan, folder).run():
        pass
    planted = json.loads((folder / "truth.json").read_text())["planted"]
    return {fault: {(hour, index) for hour, index in names} for fault, names in planted.items()}


def reconciled(spark: SparkSession, folder: Path, plan: Plan) -> Reconciled:
    """Write the ledger of a plan and reconcile it."""
    planted = generated(folder / "ledger", plan)
    job = Reconciliation(spark, Options([str(folder / "ledger")], str(folder / "out"), settle_ms=0))
    return Reconciled(folder / "ledger", folder / "out", planted, job.run(), job)


@pytest.fixture(scope="session")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reconciled:
    """Two chunks, each with one of every fault."""
    return reconciled(spark, tmp_path_factory.mktemp("planted"), Plan(4_000, chunk=2_000, planted=1))
