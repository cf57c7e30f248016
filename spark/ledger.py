"""Ledgers on disk: their closed segments, the rows of each that count, and those rows as a DataFrame.

The driver reads all manifests, which are small. They alone decide which replica's copy of an index counts, so
that three equal copies of a row become one without a shuffle:

    n1   |------ seg 0 ------|---- seg 1 ----|              n1 speaks for all it has,
    n2       |---- seg 0 ----|          |---- seg 1 ----|   n2 for what lies beyond
    first copy of each index:  n1 n1 n1 n1 n1 n1 n1 n2 n2

A segment written again after a restart overlaps the one before; its rows up to `fresh_from` do not count.
Where a node went on alone, what others had committed behind it and lost with it does not count either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import NODE_MADE, RECEIPTS, REPLICATED, VERSION, Kind
from tarry.spark.errors import LedgerDamaged, LedgerEmpty, LedgerFiltered, LedgerMissing
from tarry.spark.schema import LEDGER, MANIFEST, is_kind, kind_number

_CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Segment:
    """Closed segment: its manifest, and the indices whose rows count; `_from` exclusive, `_to` inclusive."""

    path: str  # of the Parquet file, as Spark names it
    source: str
    run: str
    number: int
    first_index: int
    last_index: int
    first_at_ms: int
    last_at_ms: int
    rows: int
    bytes: int
    crc32c: int
    kinds: dict[str, int]
    fresh_from: int = 0  # rows of replicated events up to here are in an earlier segment of the source
    speaks_from: int = 0  # this segment is the first copy of what lies between
    speaks_to: int = 0
    forgets_from: int | None = None
    """Index behind which its entries are of a history that was given up; `last_index` ends there, too, and
    one that began behind it has no index."""

    @property
    def file(self) -> str:
        """Name of the Parquet file."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def of_node(self) -> bool:
        """True if a node wrote it, not a producer or a consumer."""
        return ":" not in self.source


@dataclass(frozen=True, slots=True)
class Fork:
    """A node went on alone behind this entry, at this time: what others had committed there is given up."""

    index: int
    at_ms: int


def closed(spark: SparkSession, ledgers: Sequence[str]) -> list[Segment]:
    """Return the closed segments of the ledgers, in order of index; of copies of one that was exported more
    than once, the longest.

    Raises:
        LedgerMissing, LedgerEmpty, LedgerDamaged, LedgerFiltered.
    """
    every = [_segment(row) for row in _manifests(spark, ledgers)]
    every.sort(key=lambda one: (one.last_index, one.rows))
    return chosen({(one.source, one.run, one.number): one for one in every}.values())


def found(spark: SparkSession, ledgers: Sequence[str], ending: str) -> list[tuple[str, int]]:
    """Return the path and length of every segment's file of an ending, at any depth of the folders.

    Raises LedgerMissing.
    """
    there: dict[str, tuple[str, int]] = {}
    for ledger in ledgers:
        read = spark.read.format("binaryFile").option("recursiveFileLookup", True)
        files = read.option("pathGlobFilter", f"*-*-*-*-*.{ending}")
        try:
            rows = files.load(ledger).select("path", "length").collect()
        except AnalysisException as error:
            raise LedgerMissing(ledger) from error
        for row in rows:
            there.setdefault(row["path"].rsplit("/", 1)[-1], (row["path"], row["length"]))
    return list(there.values())


def _manifests(spark: SparkSession, ledgers: Sequence[str]) -> Iterable[dict[str, Any]]:
    paths = [path for path, _ in found(spark, ledgers, "json")]
    if not paths:
        raise LedgerEmpty(", ".join(ledgers))
    reader = spark.read.schema(f"{MANIFEST}, {_CORRUPT} string")
    reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
    manifests = reader.option("multiLine", True).json(paths)
    rows = manifests.select("*", F.col("_metadata.file_path").alias("path")).collect()
    return (row.asDict() for row in rows)


def _segment(manifest: dict[str, Any]) -> Segment:
    path = manifest["path"]
    if manifest[_CORRUPT] is not None or manifest["source"] is None:
        raise LedgerDamaged(path, "not a manifest")
    if manifest["version"] != VERSION:
        raise LedgerDamaged(path, f"version {manifest['version']}, and this program knows {VERSION}")
    if manifest["filtered"]:
        raise LedgerFiltered(path)
    return Segment(
        path.removesuffix(".json") + ".parquet",
        manifest["source"], manifest["run"], manifest["segment"],
        manifest["first_index"], manifest["last_index"],
        manifest["first_at_ms"], manifest["last_at_ms"],
        manifest["rows"], manifest["bytes"], manifest["crc32c"], manifest["kinds"] or {},
    )  # fmt: skip


def chosen(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments with what of each counts, in order of index; a sweep over intervals."""
    fresh: dict[str, int] = {}
    own: list[Segment] = []
    for segment in sorted(segments, key=lambda one: (one.source, one.number)):
        begun = max(fresh.get(segment.source, segment.first_index), segment.first_index)
        own.append(replace(segment, fresh_from=begun))
        if segment.last_index > segment.first_index:  # one without an index repeats nothing
            fresh[segment.source] = max(begun, segment.last_index)
    own.sort(key=lambda one: (one.first_index, -one.last_index, one.source))
    spoken, swept = None, []
    for segment in own:
        if segment.of_node:
            start = segment.first_index if spoken is None else max(spoken, segment.first_index)
            spoken = max(start, segment.last_index)
            segment = replace(segment, speaks_from=start, speaks_to=spoken)  # noqa: PLW2901
        swept.append(segment)
    return swept


def begin(chosen: Sequence[Segment]) -> int | None:
    """Return the index behind which the nodes' segments have everything; None: there are no segments."""
    start: int | None = None
    spoken = -1
    for one in sorted((one for one in chosen if one.of_node), key=lambda one: one.first_index):
        if start is None or one.first_index > spoken:
            start = one.first_index
        spoken = max(spoken, one.last_index)
    return start


def last_ms(spark: SparkSession, segments: Sequence[Segment]) -> int:
    """Return when the last replicated event was, ms since the epoch; only segments that may
    have it are read.
    """
    some = [one for one in segments if any(one.kinds.get(kind.value) for kind in REPLICATED)]
    # of one that was given up in part it may be that no such row counts
    least = max((one.first_at_ms for one in some if one.forgets_from is None), default=0)
    some = [one for one in some if one.last_at_ms >= least]
    if not some:
        return 0
    replicated = rows(spark, some).where(is_kind(F.col("number"), *REPLICATED))
    return int(replicated.agg(F.max("at_ms")).collect()[0][0] or 0)


def rows(spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
    """Return the rows of the segments: the ledger's columns, `number` (the kind's), and from the segment
    `source_number` int, `fresh_from`, `speaks_from`, `speaks_to` long (applied indices).
    """
    at = {source: number for number, source in enumerate(sorted({one.source for one in segments}))}
    known = spark.createDataFrame(
        [
            (one.file, at[one.source], one.fresh_from, one.speaks_from, one.speaks_to, one.forgets_from)
            for one in segments
        ],
        "file string, source_number int, fresh_from long, speaks_from long, speaks_to long, forgets long",
    )
    read = spark.read.schema(LEDGER).parquet(*[segment.path for segment in segments])
    named = read.withColumn("file", F.col("_metadata.file_name"))
    every = named.join(F.broadcast(known), "file").withColumn("number", kind_number(F.col("kind")))
    if any(one.forgets_from is not None for one in segments):
        every = every.where(F.col("forgets").isNull() | ~_behind(F.col("forgets")))
    return every.drop("forgets")


def _behind(index: Column) -> Column:
    """Return whether a row is of an entry behind an index, or of a delivery when such a one was applied."""
    return is_kind(F.col("number"), *REPLICATED, Kind.DELIVERED, Kind.NACKED) & (F.col("index") > index)


def without_forgotten(
    spark: SparkSession, segments: Sequence[Segment], forks: Iterable[Fork]
) -> list[Segment]:
    """Return the segments without the entries that were given up where a node went on alone, chosen anew.

    Given up are, behind the fork's index, entries and what was delivered by them, in files that have nothing
    there of the fork's time or later. A file without any such rows may be of either history, and is not
    needed there.
    """
    known = {one.file: one for one in segments}
    for fork in forks:
        some = [
            one
            for one in known.values()
            if one.of_node and one.last_index > fork.index and one.first_at_ms < fork.at_ms
        ]
        if not some:
            continue
        behind = rows(spark, some).where(_behind(F.lit(fork.index)) & (F.col("at_ms") >= fork.at_ms))
        kept = {row["file"] for row in behind.select("file").distinct().collect()}
        for one in (one for one in some if one.file not in kept):
            first = min(one.first_index, fork.index)
            known[one.file] = replace(one, first_index=first, last_index=fork.index, forgets_from=fork.index)
    return chosen(known.values())


def counted() -> Column:
    """Return whether a row of `rows` is to be counted: of equal copies of a replicated event, one is."""
    index = F.col("index")
    first = (index > F.col("speaks_from")) & (index <= F.col("speaks_to"))
    return ~is_kind(F.col("number"), *REPLICATED) | first


def fresh() -> Column:
    """Return whether a row of `rows` is of a replicated event and no repetition within its source."""
    return is_kind(F.col("number"), *REPLICATED) & (F.col("index") > F.col("fresh_from"))


OF_MESSAGES = (*(k for k in REPLICATED if k is not Kind.GROUP_MOVED), Kind.DELIVERED, Kind.NACKED, *RECEIPTS)
"""The kinds that are about one message."""

OF_NODES = (*(k for k in NODE_MADE if k not in OF_MESSAGES), Kind.GROUP_MOVED)
"""The kinds that are about a node or a group."""


def node_events(spark: SparkSession, segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return the rows about nodes and groups, as mappings: few, and only segments that have any are read."""
    some = [one for one in segments if any(one.kinds.get(kind.value) for kind in OF_NODES)]
    if not some:
        return []
    wanted = rows(spark, some).where(is_kind(F.col("number"), *OF_NODES) & counted())
    columns = ("kind", "source", "term", "index", "at_ms", "topic", "group", "offset", "detail")
    return [row.asDict() for row in wanted.select(*columns).collect()]
