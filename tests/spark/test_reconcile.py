"""The whole job on made-up ledgers: what it finds is what was planted, message by message."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import typer
from pyspark.sql import SparkSession

from tarry.spark.__main__ import Output, reconcile_each
from tarry.spark.generate_rows import FAULTS
from tarry.spark.reconcile import Options
from tests.spark.conftest import Reconciled

FOUND_BY = {
    "never_scheduled": "never_scheduled",
    "never_released": "never_released",
    "never_delivered": "never_delivered",
    "released_twice": "released_twice",
    "early": "early",
    "delivered_after_cancel": "delivered_after_cancel",
    "replicas_disagree": "replicas_disagree",
    "beyond_bound": "duplicate_beyond_bound",
}
CAUSES = ("failover", "lease_expiry", "nack", "client_retry")


@pytest.mark.parametrize(("fault", "check"), FOUND_BY.items())
def test_a_check_finds_the_planted_messages_and_no_others(
    planted: Reconciled, fault: str, check: str
) -> None:
    assert len(planted.planted[fault]) == 2
    assert planted.found(check) == planted.planted[fault]


def test_what_the_life_of_a_message_does_not_allow_is_found_too(planted: Reconciled) -> None:
    assert planted.found("lifecycle") == (
        planted.planted["released_twice"] | planted.planted["delivered_after_cancel"]
    )
    assert planted.found("duplicate_not_marked") == planted.planted["beyond_bound"]


def test_nothing_else_is_found(planted: Reconciled) -> None:
    checks = {row[0] for row in planted.job.violations.select("check").distinct().collect()}
    assert checks == {*FOUND_BY.values(), "lifecycle", "duplicate_not_marked"}
    assert not planted.summary["kept"]


@pytest.mark.parametrize("cause", CAUSES)
def test_each_duplicate_has_its_cause(planted: Reconciled, cause: str) -> None:
    rows = planted.job.duplicates.where(f"cause = '{cause}' and not beyond_bound")
    found = {(row[0], row[1]) for row in rows.select("hour", "global_index").collect()}
    assert found == planted.planted[cause]


def test_a_duplicate_of_a_failover_names_both_leaders_and_the_window(planted: Reconciled) -> None:
    rows = planted.job.duplicates.where("cause = 'failover' and not beyond_bound").collect()
    assert len(rows) == 2
    for row in rows:
        assert row["term_after"] == row["term_before"] + 1
        assert row["leader_before"] != row["leader_after"]
        assert row["window_to_ms"] - row["window_from_ms"] == 50
        assert row["window_from_ms"] < row["first_ms"] <= row["window_to_ms"] < row["again_ms"]
        assert row["marked"]


def test_the_summary_counts_what_is_there(planted: Reconciled) -> None:
    summary = planted.summary
    assert summary["acknowledged"] == 1_000
    assert summary["scheduled"] == 1_000 - 2  # never_scheduled
    assert summary["duplicates_by_cause"] == {"client_retry": 2, "failover": 4, "lease_expiry": 2, "nack": 2}
    assert summary["duplicates"] == 10
    assert summary["missing"] == 6
    assert summary["early"] == summary["cancelled_delivered"] == 2
    never, cancelled = 6, 2
    assert summary["delivered_once"] == 1_000 - never - cancelled - 10
    assert (summary["segments"], summary["gaps"]) == (10, 0)


def test_lateness_is_what_duckdb_says(planted: Reconciled) -> None:
    p99_ms, most_ms = duckdb.execute(
        "select quantile_disc(at_ms - due_ms, 0.99), max(at_ms - due_ms) from read_parquet(?) "
        "where kind = 'received' and attempt = 1 and not maybe_duplicate",
        [f"{planted.ledger}/date=*/*.parquet"],
    ).fetchall()[0]
    assert planted.summary["late_p99_ms"] == p99_ms < 1_024
    assert planted.summary["late_max_ms"] == pytest.approx(most_ms, rel=1 / 128)


def test_every_fault_that_is_planted_is_looked_for() -> None:
    assert {*FOUND_BY, *CAUSES, "cancelled", "out_of_order"} == set(FAULTS)


def test_ledgers_of_several_clusters_are_reconciled_each_by_itself(
    spark: SparkSession, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    options = Options([str(empty), f"{made}/"], str(tmp_path / "out"), settle_ms=0)
    with pytest.raises(typer.Exit) as ended:
        reconcile_each(spark, options, Output.JSON)
    of_empty, of_made, of_all = map(json.loads, capsys.readouterr().out.splitlines())
    assert of_empty["error"] == "LedgerEmpty"
    assert of_made["scheduled"] == 998
    assert of_all == {"ledgers": 2, "broken": [made.name], "unusable": ["empty"]}
    assert ended.value.exit_code == 1
    assert json.loads((tmp_path / "out" / made.name / "summary.json").read_text())["scheduled"] == 998
