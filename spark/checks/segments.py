"""Checks of the ledgers: gaps in the log, lost segments, files that differ from their manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.ledger import Fork, Segment, found

_GAP: Final = re.compile(r"(?P<missing>\w+) (?P<first>-?\d+)\.\.(?P<last>-?\d+) (?P<why>\w+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something missing or damaged; `promise`: it hides what happened and nothing says so."""

    check: str
    source: str
    detail: str
    promise: bool = True
    index: int | None = None
    at_ms: int | None = None
    file: str = ""


def gaps(segments: Sequence[Segment], events: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Return where a node's ledger leaves out indices, or a source's numbering leaves out segments.

    `events`: ledger.node_events; a gap that a `gap` row declares is no broken promise.
    """
    declared = _declared(events)
    faults = [
        Fault("gap_declared", row["source"], row["detail"], False, int(found["first"]), row["at_ms"])
        for row, found in declared
    ]
    ordered = sorted(segments, key=lambda one: (one.source, one.number))
    for source, mine in groupby(ordered, lambda one: one.source):
        said = [found for row, found in declared if row["source"] == source]
        faults += _gaps_of(source, list(mine), said)
    return faults


def forks(events: Sequence[Mapping[str, Any]]) -> list[Fork]:
    """Return where nodes went on alone, from ledger.node_events; one that two segments tell of, twice."""
    declared = _declared(events)
    return [Fork(int(one["last"]), row["at_ms"]) for row, one in declared if one["why"] == "RECOVERED_ALONE"]


def _declared(events: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], re.Match[str]]]:
    """Return the `gap` rows among the events, each with what it declares."""
    gap_rows = [event for event in events if event["kind"] == Kind.GAP.value]
    return [(row, found) for row in gap_rows if (found := _GAP.fullmatch(row["detail"] or ""))]


def _gaps_of(source: str, segments: Sequence[Segment], declared: Sequence[re.Match[str]]) -> Iterator[Fault]:
    for before, after in pairwise(segments):
        if after.number > before.number + 1:
            lost = f"segments {before.number + 1}..{after.number - 1} are missing"
            yield Fault("segment_lost", source, lost, index=before.last_index, at_ms=before.last_at_ms)
        known_to = before.last_index
        if after.of_node and after.first_index > known_to and after.number == before.number + 1:
            said = any(int(d["first"]) <= known_to and int(d["last"]) >= after.first_index for d in declared)
            if not said:
                text = f"indices {known_to + 1}..{after.first_index} are missing and no row says why"
                yield Fault("gap", source, text, index=known_to, at_ms=before.last_at_ms)


def files(spark: SparkSession, ledgers: Sequence[str], segments: Sequence[Segment]) -> list[Fault]:
    """Return segments whose file is missing or of another length, and files that no manifest closes."""
    there = {path.rsplit("/", 1)[-1]: length for path, length in found(spark, ledgers, "parquet")}
    faults = []
    for one in segments:
        length = there.pop(one.file, None)
        if length is None:
            faults.append(Fault("segment_lost", one.source, f"{one.file} is missing", file=one.file))
        elif length != one.bytes:
            text = f"{one.file} has {length} bytes, its manifest says {one.bytes}"
            faults.append(Fault("segment_damaged", one.source, text, index=one.first_index, file=one.file))
    for path, _ in found(spark, ledgers, "json"):  # of an export that a longer one has followed
        there.pop(path.rsplit("/", 1)[-1].removesuffix(".json") + ".parquet", None)
    faults += [Fault("segment_not_closed", "", file, promise=False, file=file) for file in sorted(there)]
    return faults


def contents(spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
    """Return `file` string, `crc32c` long of the segments' files: read once, whole, on the workers.

    Raises (when it runs) PackageMissing where the workers lack google-crc32c.
    """
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 4)  # whole files are in a batch
    read = spark.read.format("binaryFile").load([one.path for one in segments]).select("path", "content")
    return read.mapInArrow(_checksums, "file string, crc32c long")


def _checksums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        import google_crc32c
    except ImportError as error:
        from tarry.spark.errors import PackageMissing

        raise PackageMissing("google-crc32c", "checksums of segments, or leave them out") from error

    for batch in batches:
        names = [path.rsplit("/", 1)[-1] for path in batch.column("path").to_pylist()]
        sums = [google_crc32c.value(one.as_buffer().to_pybytes()) for one in batch.column("content")]
        yield pa.RecordBatch.from_pydict({"file": names, "crc32c": sums})


def damaged(spark: SparkSession, segments: Sequence[Segment], *, checksums: bool) -> list[Fault]:
    """Return segments whose file is not what its manifest says: by checksum, else by Parquet's count of
    rows.
    """
    if not segments:
        return []
    known, wrong = {one.file: one for one in segments}, {}
    if checksums:
        found = {row["file"]: row["crc32c"] for row in contents(spark, segments).collect()}
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        wrong = {file: f"crc32c is {crc}" for file, crc in found.items() if crc != known[file].crc32c}
    sound = [one for one in segments if one.file not in wrong]
    counted = (
        spark.read.parquet(*[one.path for one in sound])
        .groupBy(F.col("_metadata.file_name").alias("file"))
        .count()
    )
    rows = {row["file"]: row["count"] for row in counted.collect()}
    wrong |= {one.file: f"{rows.get(one.file, 0)} rows" for one in sound if rows.get(one.file, 0) != one.rows}
    return [
        Fault(
            "segment_damaged", known[file].source, f"{file}: {why}, its manifest says otherwise",
            index=known[file].first_index, at_ms=known[file].first_at_ms, file=file,
        )
        for file, why in sorted(wrong.items())
    ]  # fmt: skip
