"""Which segments of ledgers there are, which of their rows count, and what is missing from them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tarry.client.cli.ledger import Copy
from tarry.client.operators.ledger_export import LedgerPart
from tarry.proto.ledger.arrow import PLAIN, to_stream
from tarry.proto.ledger.chunk import Chunk, pack
from tarry.proto.ledger.parquet import open_rows
from tarry.proto.ledger.schema import Kind, Manifest
from tarry.proto.ledger.segment import OpenSegment
from tarry.spark import ledger
from tarry.spark.checks import segments
from tarry.spark.errors import LedgerDamaged, LedgerEmpty, LedgerFiltered, LedgerMissing
from tarry.spark.ledger import Segment, chosen


def segment(source: str, number: int, first: int, last: int) -> Segment:
    return Segment(f"{source}-{number}", source, "r", number, first, last, 0, 0, 1, 1, 1, {})


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 15)), max_size=12))
def test_every_index_that_any_replica_has_is_spoken_for_once(parts: list[tuple[int, int, int]]) -> None:
    some = [segment(f"n{n}", at, first, first + size) for at, (n, first, size) in enumerate(parts)]
    spoken = [index for one in chosen(some) for index in range(one.speaks_from + 1, one.speaks_to + 1)]
    covered = {index for one in some for index in range(one.first_index + 1, one.last_index + 1)}
    assert sorted(spoken) == sorted(covered)


def gap(source: str, detail: str) -> dict[str, Any]:
    return {"kind": Kind.GAP.value, "source": source, "detail": detail, "at_ms": 1}


@pytest.mark.parametrize(
    ("parts", "declared", "checks"),
    [
        ([(1, 0, 10), (2, 10, 20)], [], []),
        ([(1, 0, 10), (2, 5, 20)], [], []),  # told again after a restart
        ([(1, 0, 10), (2, 12, 20)], [], ["gap"]),
        ([(1, 0, 10), (2, 12, 20)], [gap("n1", "all 10..12 OVERFLOW")], ["gap_declared"]),
        ([(1, 0, 10), (2, 12, 20)], [gap("n2", "all 10..12 OVERFLOW")], ["gap_declared", "gap"]),
        ([(1, 0, 10), (2, 10, 20)], [gap("n1", "node_made 10..10 KILLED")], ["gap_declared"]),
        ([(1, 0, 10), (3, 20, 30)], [], ["segment_lost"]),
    ],
)
def test_what_a_ledger_leaves_out_is_found(
    parts: list[tuple[int, int, int]], declared: list[dict[str, Any]], checks: list[str]
) -> None:
    some = chosen(segment("n1", *part) for part in parts)
    found = segments.gaps(some, declared)
    assert [fault.check for fault in found] == checks
    assert [fault.promise for fault in found] == [check != "gap_declared" for check in checks]


@pytest.mark.parametrize(
    ("parts", "begin"),
    [
        ([], None),
        ([("n1", 0, 10), ("n1", 10, 20)], 0),
        ([("n1", 0, 10), ("n2", 5, 30), ("n1", 25, 40)], 0),  # a hole that another replica fills
        ([("n1", 0, 10), ("n2", 0, 8), ("n1", 25, 40)], 25),
        ([("producer:p", -1, -1), ("n1", 7, 9)], 7),
    ],
)
def test_the_ledgers_begin_behind_the_last_hole_that_no_replica_fills(
    parts: list[tuple[str, int, int]], begin: int | None
) -> None:
    some = chosen(segment(source, number, *part) for number, (source, *part) in enumerate(parts))
    assert ledger.begin(some) == begin


def test_files_that_are_not_as_written_are_found(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    copied = tmp_path / "ledger"
    shutil.copytree(made, copied)
    every = ledger.closed(spark, [str(copied)])
    lost, longer, changed, unclosed, *_ = [copied / "date=2025-11-20" / one.file for one in every]
    lost.unlink()
    longer.write_bytes(longer.read_bytes() + b"\0")
    content = bytearray(changed.read_bytes())
    content[100] ^= 1
    changed.write_bytes(content)
    unclosed.with_suffix(".json").unlink()
    every = [one for one in every if one.file != unclosed.name]
    found = segments.files(spark, [str(copied)], every)
    assert {(fault.check, fault.file) for fault in found} == {
        ("segment_lost", lost.name),
        ("segment_damaged", longer.name),
        ("segment_not_closed", unclosed.name),
    }
    there = [one for one in every if one.file not in {lost.name, longer.name}]
    damaged = segments.damaged(spark, there, checksums=True)
    assert [(fault.check, fault.file) for fault in damaged] == [("segment_damaged", changed.name)]


def exported(folder: Path, copies: Path, last: int, *, filtered: bool = False) -> None:
    """Copy a node's open segment, as `tarry ledger export` does."""
    left = OpenSegment(folder, "n1", "r", 1, 0)
    left.append(pack([Chunk(last, Kind.ACKED, 5, np.arange(1, last + 1), 1, 0, 0, "t", "g")]), last, last)
    manifest = Manifest(
        version=1, source="n1", run="r", segment=1, first_index=0, last_index=last, first_at_ms=0,
        last_at_ms=0, rows=last, kinds={}, bytes=9, crc32c=0, filtered=False,
    )  # fmt: skip
    copy = Copy(copies, filtered=filtered)
    copy.add(LedgerPart(manifest, to_stream(next(open_rows(left)).cast(PLAIN)), last, "1.1"))
    copy.close()
    left.path.unlink()


def test_of_a_segment_that_was_exported_twice_the_longer_copy_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    for last in (2, 5, 3):
        exported(tmp_path / "node", tmp_path / "copies", last)
    every = ledger.closed(spark, [str(tmp_path / "copies")])
    assert [(one.first_index, one.last_index) for one in every] == [(0, 5)]
    assert segments.files(spark, [str(tmp_path / "copies")], every) == []


def test_an_export_of_some_rows_is_not_reconciled(spark: SparkSession, tmp_path: Path) -> None:
    exported(tmp_path / "node", tmp_path / "copies", 2, filtered=True)
    with pytest.raises(LedgerFiltered, match="without --from"):
        ledger.closed(spark, [str(tmp_path / "copies")])


def test_a_ledger_that_cannot_be_read_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="name the folder"):
        ledger.closed(spark, [str(tmp_path / "nowhere")])
    with pytest.raises(LedgerEmpty, match="no closed segment"):
        ledger.closed(spark, [str(tmp_path)])
    (tmp_path / "date=2025-11-20").mkdir()
    manifest = tmp_path / "date=2025-11-20" / "n1-r-0-1-1.json"
    manifest.write_text("{")
    with pytest.raises(LedgerDamaged, match="not a manifest"):
        ledger.closed(spark, [str(tmp_path)])
    manifest.write_text('{"version": 99, "source": "n1"}')
    with pytest.raises(LedgerDamaged, match="version 99"):
        ledger.closed(spark, [str(tmp_path)])
