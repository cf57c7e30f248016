"""A replica that took a peer's state in place of entries does not speak for them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tarry.spark.reconcile import Options, Reconciliation
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, ack, release, schedule, subscribe

ENTRIES = [
    schedule([NOW_MS + 1, NOW_MS + 2]),
    subscribe(),
    schedule([NOW_MS + 3], now_ms=NOW_MS + 1),  # from here ...
    release(NOW_MS + 5, now_ms=NOW_MS + 2),
    ack([0, 2]),  # ... to here the first replica has only the state
    schedule([NOW_MS + 1_000], now_ms=NOW_MS + 100),
]
HOLE = range(3, 6)


async def of_both(folder: Path) -> None:
    """Write two replicas' ledgers; the first replica's has a hole."""
    for name in ("n1", "n2"):
        replica = Replica(folder / name, node=name)
        for index, command in enumerate(ENTRIES, 1):
            replica.now_ms = NOW_MS + index
            if name == "n1" and index in HOLE:
                replica.machine.apply(index, 1, [command])
                replica.machine.take_events()
            else:
                replica.apply(command)
            await replica.ledger.write()
        await replica.ledger.close()
        replica.machine.close()


async def test_what_one_replica_has_no_rows_of_another_tells(spark: SparkSession, tmp_path: Path) -> None:
    await of_both(tmp_path)
    summary = Reconciliation(spark, Options([str(tmp_path)], str(tmp_path / "out"), settle_ms=10)).run()
    assert summary["scheduled"] == 4
    assert summary["released"] == 3
    assert summary["violations"] == {"never_delivered": 1}  # at offset 1
    assert summary["remarks"] == {"gap_declared": 1}
