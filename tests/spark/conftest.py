"""One Spark session for all, and one reconciliation of a ledger in which faults are planted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tarry.spark.errors import JavaMissing
from tarry.spark.generate import Generator, Plan
from tarry.spark.reconcile import Options, Reconciliation
from tarry.spark.session import SMALL, java_major, session

HERE = Path(__file__).parent
JAVA = "spark.driver.extraJavaOptions"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have Spark's clusters run beside others: what its jobs find depends on no clock."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.beside)


@pytest.fixture(scope="session")
def java() -> None:
    """What every test wants that starts Spark; without it they are skipped, and say what to install."""
    try:
        java_major()
    except JavaMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    options = f"{SMALL[JAVA]} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    settings = {**SMALL, JAVA: options}  # Spark's own classes need no proof each time
    started = session("tests", memory_mib=1_024, settings=settings)
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


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of two chunks, each with one of every fault."""
    folder = tmp_path_factory.mktemp("made")
    for _ in Generator(Plan(1_000, chunk=500, planted=1, rate=300), folder).run():
        pass
    return folder


@pytest.fixture(scope="session")
def planted(spark: SparkSession, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Reconciled:
    """That ledger, reconciled."""
    out = tmp_path_factory.mktemp("out")
    job = Reconciliation(spark, Options([str(made)], str(out), settle_ms=0))
    names = json.loads((made / "truth.json").read_text())["planted"]
    planted = {fault: {(hour, index) for hour, index in those} for fault, those in names.items()}
    return Reconciled(made, out, planted, job.run(), job)
