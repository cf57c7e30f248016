"""What the log can hold at its extremes is in the ledger, and does not stop a reconciliation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.spark.reconcile import Options, Reconciliation
from tests.fuzz.replicas import Replicas

NOW_MS = 1_795_000_000_000
TOPIC = "t" * 200


def copy(hour: int, global_index: int, attempt: int, due_ms: int) -> bytes:
    return Retried(
        record=Record(body=b"x").SerializeToString(),
        hour=hour,
        global_index=global_index,
        attempt=attempt,
        due_ms=due_ms,
        topic=TOPIC,
        group="g",
    ).SerializeToString()


def test_a_ledger_of_extreme_values_is_reconciled(spark: SparkSession, tmp_path: Path) -> None:
    replicas = Replicas(tmp_path / "replicas")
    due_ms = [0, 1, NOW_MS, NOW_MS, NOW_MS + 1, DUE_MS_MAX - 1, DUE_MS_MAX]
    schedule = log_pb.ScheduleColumns(
        topics=[TOPIC],
        due_ms=np.array(due_ms, "<i8").tobytes(),
        tag_mask=np.full(len(due_ms), 2**64 - 1, "<u8").tobytes(),
        records=[b"", *[Record(body=b"x").SerializeToString()] * (len(due_ms) - 1)],
        producer="p" * 64,
        sequence=2**64 - 1,
    )
    hours = np.array([0, 2**31, 2**32 - 1], "<u4").tobytes()
    retried = [copy(2**32 - 1, 2**32 - 2, 2**32 - 1, 2**63 - 1), copy(2**31, 0, 0, -(2**63))]
    retry = log_pb.RetryCommand(
        group="g",
        queue=0,
        offset=np.array([0, 1], "<u8").tobytes(),
        due_ms=np.array([NOW_MS, DUE_MS_MAX], "<i8").tobytes(),
        tag_mask=bytes(16),
        records=retried,
        target_topic=TOPIC,
        target_group="g",
        now_ms=NOW_MS,
    )
    outcomes = [
        replicas.commit([encode(command)])[0]
        for command in (
            log_pb.SubscribeCommand(topic=TOPIC, group="g", now_ms=NOW_MS),
            log_pb.ScheduleCommand(now_ms=NOW_MS, request=schedule),
            log_pb.CancelCommand(hour=hours, global_index=hours, now_ms=NOW_MS),
            log_pb.ReleaseCommand(now_ms=NOW_MS, until_ms=NOW_MS + 10, count=10),
            retry,
            log_pb.AckCommand(group="g", queue=0, offset=np.array([2, 2], "<u8").tobytes()),
            log_pb.ReleaseCommand(now_ms=NOW_MS, until_ms=NOW_MS + 20, count=10),
        )
    ]
    assert not [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    folder = replicas.one.ledger.folder
    replicas.close()
    job = Reconciliation(spark, Options([str(folder)], str(tmp_path / "out"), settle_ms=0))
    summary = job.run()
    assert summary["scheduled"] == len(due_ms)
    assert summary["released"] > 0
