"""Ledgers as a Spark data source, and the monitor that follows them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThan

from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.spark import monitor, source
from tarry.spark.errors import LedgerMissing, NodeUnreachable, OptionInvalid
from tarry.spark.live import Node
from tarry.spark.schema import LEDGER
from tarry.spark.source import (
    Bounds,
    Folder,
    LedgerReader,
    LedgerSource,
    LedgerStreamReader,
    LiveReader,
    LiveStreamReader,
    narrowed,
)


def test_filters_leave_out_segments_by_their_manifests(made: Path) -> None:
    folder = Folder(str(made))
    every = LedgerReader([folder]).partitions()
    assert len(every) == 10
    last = max(one["last_index"] for one in folder.manifests())
    reader = LedgerReader([folder])
    filters = [GreaterThan(("index",), last - 1)]
    assert list(reader.pushFilters(filters)) == filters
    assert len(reader.partitions()) == 3  # the second segments of three nodes
    reader.pushFilters([LessThan(("at_ms",), 0)])
    assert reader.partitions() == []


def test_a_filter_on_another_column_leaves_out_nothing() -> None:
    assert narrowed(Bounds(), [EqualTo(("term",), 3), EqualTo(("due_ms",), 3)]) == Bounds()
    assert narrowed(Bounds(), [EqualTo(("index",), 3)]).index == (3, 3)


def test_the_rows_are_those_of_the_segments(spark: SparkSession, made: Path) -> None:
    source.register(spark)
    read = spark.read.format("tarry").load(str(made))
    files = [f"{made}/date=*/*.parquet"]
    some = "kind = 'delivered' and at_ms > 1763596805000"
    wanted = duckdb.execute(
        f"select count(*), sum(position), min(topic) from read_parquet(?) where {some}", files
    )
    found = read.where(some).selectExpr("count(*)", "sum(position)", "min(topic)").collect()[0]
    assert tuple(found) == wanted.fetchall()[0]


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(LedgerMissing, match="no ledger at /nowhere"):
        Folder("/nowhere").manifests()


def test_a_limited_stream_goes_on_by_so_many_segments(made: Path) -> None:
    reader = LedgerStreamReader([Folder(str(made))], 3)
    seen, offset = 0, reader.initialOffset()
    for wanted in (3, 3, 3, 1, 0):
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        assert len(reader.partitions(offset, end)) == wanted
        seen, offset = seen + wanted, end
    assert seen == 10


def follow(spark: SparkSession, ledger: Path, out: str) -> None:
    """Run the monitor once; again where a busy machine starts no worker within Spark's fixed 10 s."""
    for tries_left in range(30, -1, -1):
        try:
            monitor.start(spark, str(ledger), out, once=True).awaitTermination()
        except StreamingQueryException as error:
            if "connect back" not in str(error) or not tries_left:
                raise
        else:
            return


def test_a_monitor_that_is_stopped_goes_on_where_it_was(
    spark: SparkSession, made: Path, tmp_path: Path
) -> None:
    ledger, out = tmp_path / "ledger", str(tmp_path / "out")
    day = "date=2025-11-20"
    (ledger / day).mkdir(parents=True)
    for late in (False, True):
        for file in sorted((made / day).glob("n*-?.*")):
            if file.stem.endswith("-1") is late:
                shutil.copy(file, ledger / day)
        follow(spark, ledger, out)
    found = monitor.minutes(spark, out).selectExpr("sum(deliveries)", "sum(duplicates)", "max(late_max_ms)")
    wanted = duckdb.execute(
        'select count(*), count(*) - count(distinct (topic, "group", hour, global_index)), '
        "max(at_ms - due_ms) filter (attempt = 1 and not maybe_duplicate) "
        "from read_parquet(?) where kind = 'delivered'",
        [f"{ledger}/{day}/*.parquet"],
    )
    deliveries, duplicates, late_ms = wanted.fetchall()[0]
    assert duplicates == 10
    assert tuple(found.collect()[0])[:2] == (deliveries, duplicates)
    assert found.collect()[0][2] == pytest.approx(late_ms, rel=1 / 128)


@pytest.mark.cluster
def test_nodes_are_read_and_followed_live(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(1, tmp_path, settings={"ledger": {"segment_ms": 500}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        asyncio.run(schedule_until_closed(cluster, 3_000))
        source.register(spark)
        live = spark.read.format("tarry").option("nodes", cluster.addresses)
        wanted = duckdb.execute(
            "select count(*), sum(global_index) from read_parquet(?) where kind = 'scheduled' and index > 3",
            [f"{tmp_path}/n1/ledger/date=*/*.parquet"],
        ).fetchall()[0]
        rows = live.load().where("kind = 'scheduled' and index > 3")
        assert tuple(rows.selectExpr("count(*)", "sum(global_index)").collect()[0]) == wanted
        reader = LiveStreamReader([Node(cluster.addresses)])
        begin = reader.initialOffset()
        end = reader.latestOffset(begin)
        (partition,) = reader.partitions(begin, end)
        first = sum(batch.num_rows for batch in reader.read(partition))
        manifests = Folder(f"{tmp_path}/n1/ledger").manifests()
        assert first == sum(one["rows"] for one in manifests if one["segment"] <= end[cluster.addresses])
        assert reader.partitions(end, reader.latestOffset(end)) == []
    assert reader.latestOffset(end) == end  # a node that is gone is waited for
    with pytest.raises(NodeUnreachable, match="no ledger from"):
        LiveReader([Node(cluster.addresses)]).partitions()


async def schedule_until_closed(cluster: LocalCluster, count: int) -> None:
    """Schedule messages and wait until all of them stand in closed segments, and the node says so."""
    async with asyncio.timeout(120), connect(cluster.addresses) as client:
        for _ in range(0, count, 1_000):
            await client.producer().schedule_batch("live", [b"x"] * 1_000, delay_ms=3_600_000)
        folder = Folder(f"{cluster.folder}/n1/ledger")
        while not _scheduled(folder) >= count:  # noqa: ASYNC110  another process closes them
            await asyncio.sleep(0.2)
        last = max(one["segment"] for one in folder.manifests() if "scheduled" in one["kinds"])
        while (await client.operator().status()).ledger.last_segment < last:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def _scheduled(folder: Folder) -> int:
    return sum(one["kinds"].get("scheduled", 0) for one in folder.manifests())


def test_folders_and_nodes_are_not_mixed() -> None:
    for options in ({}, {"path": "/a", "nodes": "127.0.0.1:1"}):
        with pytest.raises(OptionInvalid, match="either folders"):
            LedgerSource(options).reader(LEDGER)
