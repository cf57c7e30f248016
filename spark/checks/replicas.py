"""Comparison of the replicas' ledgers: by hashes of blocks of the log, then by rows where hashes differ.

Hashes are summed before the shuffle, so only one small row for each block and replica is shuffled. Only
blocks that differ, or that a replica has in part, are compared row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import COLUMNS, Kind
from tarry.spark.checks.messages import violation
from tarry.spark.ledger import Segment, fresh
from tarry.spark.schema import is_kind

BLOCK: Final = 64
"""Indices of the log in a block."""

_OF_ONE_REPLICA: Final = ("source", "run")
_NAMES: Final = ("hour", "global_index", "attempt")
"""Of a retry whose record a replica could not read from its disk they are missing: it says nothing else."""
_OF_RETRIES: Final = (Kind.ACKED, Kind.RETRIED, Kind.DEAD, Kind.RELEASED, Kind.CANCELLED, Kind.EXPIRED)
"""With a group: the kinds whose names may be of such a record. All others are told by the entry itself."""
OF_ROW: Final = ("kind", "hour", "global_index", "topic", "group", "due_ms", "at_ms")


@dataclass(frozen=True, slots=True)
class Covered:
    """A stretch of the log that a replica's ledger has whole: from exclusive, to inclusive."""

    source: str
    first_index: int
    last_index: int


def coverage(segments: Sequence[Segment]) -> list[Covered]:
    """Return what each replica has, joined where segments join."""
    joined: list[Covered] = []
    nodes = (one for one in segments if one.of_node)
    for one in sorted(nodes, key=lambda one: (one.source, one.first_index)):
        last = joined[-1] if joined else None
        if last and last.source == one.source and one.first_index <= last.last_index:
            joined[-1] = Covered(one.source, last.first_index, max(last.last_index, one.last_index))
        else:
            joined.append(Covered(one.source, one.first_index, one.last_index))
    return joined


def blocks(rows: DataFrame) -> DataFrame:
    """Return a row for each replica and block of the log: source_number int, `block`, `rows`, `hash` long.

    From ledger.rows. `block` is index / BLOCK; `hash` an exclusive or of the rows' hashes.
    """
    content = F.xxhash64(*[F.col(name) for name in COLUMNS if name not in _OF_ONE_REPLICA])
    block = F.floor(F.col("index") / BLOCK).cast("long")
    return (
        rows.where(fresh())
        .groupBy("source_number", block.alias("block"))
        .agg(F.count("*").alias("rows"), F.bit_xor(content).alias("hash"))
    )


def doubtful(blocks: DataFrame, covered: Sequence[Covered]) -> DataFrame:
    """Return the blocks to be compared row by row: `block` long."""
    start, end = F.col("block") * BLOCK, F.col("block") * BLOCK + BLOCK - 1
    some = _sum([(start <= one.last_index) & (end > one.first_index) for one in covered])
    whole = _sum([(start > one.first_index) & (end <= one.last_index) for one in covered])
    same = (F.col("replicas") == whole) & (F.col("least") == F.col("most")) & (whole == some)
    return (
        blocks.groupBy("block")
        .agg(
            F.count("*").alias("replicas"),
            F.min(F.struct("rows", "hash")).alias("least"),
            F.max(F.struct("rows", "hash")).alias("most"),
        )
        .where((some > 1) & ~same)
        .select("block")
    )


def differing(rows: DataFrame, covered: Sequence[Covered]) -> DataFrame:
    """Return the replicated events of which a replica's ledger says something else, or nothing, of schema
    VIOLATION.

    From ledger.rows; costs a shuffle of what is given, so give what is doubtful.
    """
    content = F.xxhash64(*[F.col(name) for name in COLUMNS if name not in (*_OF_ONE_REPLICA, *_NAMES)])
    of_retry = is_kind(F.col("number"), *_OF_RETRIES) & F.col("group").isNotNull()
    named = F.when(~(F.col("hour").isNull() & of_retry), F.xxhash64(*_NAMES))
    expected = _sum(
        [(F.col("index") > one.first_index) & (F.col("index") <= one.last_index) for one in covered]
    )
    differs = (F.col("hashes_least") != F.col("hashes_most")) | (
        F.coalesce(F.col("names_least") != F.col("names_most"), F.lit(False))
    )
    wrong = F.when(differs, "content differs").otherwise(
        F.concat(F.lit("in "), F.col("replicas"), F.lit(" of "), expected, F.lit(" replicas"))
    )
    detail = F.concat_ws(" ", "kind", F.concat(F.lit("position="), "position"), wrong)
    return (
        rows.where(fresh())
        .groupBy("shard", "term", "index", "position")
        .agg(
            F.countDistinct("source_number").alias("replicas"),
            F.min(content).alias("hashes_least"),
            F.max(content).alias("hashes_most"),
            F.min(named).alias("names_least"),
            F.max(named).alias("names_most"),
            *[F.min(name).alias(name) for name in OF_ROW],
            F.concat_ws(",", F.sort_array(F.collect_set("source"))).alias("source"),
        )
        .where(differs | (F.col("replicas") < expected))
        .select(*violation(F.lit("replicas_disagree"), detail))
    )


def _sum(conditions: Sequence[Column]) -> Column:
    return reduce(Column.__add__, [condition.cast("int") for condition in conditions], F.lit(0))
