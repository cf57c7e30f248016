"""Two ways to the same numbers: what a real cluster's clients wrote down, and what Spark reads in ledgers."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tarry.chaos import ledger_run
from tarry.proto.message_id import MessageId
from tarry.spark.reconcile import Options, Reconciliation

KINDS = ("acknowledged", "delivered_once", "duplicates", "missing", "early", "cancelled_delivered")


@pytest.mark.cluster
def test_after_a_leader_s_death_spark_counts_what_the_clients_saw(
    spark: SparkSession, tmp_path: Path
) -> None:
    truth = asyncio.run(ledger_run.run(tmp_path, messages=1_000, spread_ms=4_000, kills=1))
    job = Reconciliation(spark, Options([str(tmp_path)], str(tmp_path / "out"), settle_ms=0))
    summary = job.run()
    assert {kind: summary[kind] for kind in KINDS} == {kind: truth[kind] for kind in KINDS}
    assert (truth["changed"], truth["repeated_otherwise"]) == (truth["changes"], 0)
    assert min(truth["cancelled_released"], truth["cancelled_for_slow"], truth["repeated"]) > 0
    assert truth["cancelled"] <= summary["cancelled"] <= truth["cancelled_perhaps"]
    assert truth["duplicates"] >= 10  # those that were nacked and held
    found = Counter((row["hour"], row["global_index"]) for row in job.duplicates.collect())
    ids = (MessageId.parse(text) for text in truth["duplicate_ids"])
    assert found == Counter((one.hour, one.global_index) for one in ids)
    assert job.duplicates.where("beyond_bound").count() == 0
    assert (summary["violations"], {*summary["remarks"]}) == ({}, {"gap_declared"})  # of the kill
    assert summary["duplicates_by_cause"]["nack"] >= 5
