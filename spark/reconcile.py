"""Reconciliation of ledgers: the whole job, step by step. See DESIGN.md.

The driver handles manifests, counts and rows about nodes, never a row for each message. Only `facts` shuffles
the rows about messages, once, by message and group; all else is counted before a shuffle, or concerns
suspicious messages only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import REPLICATED, GroupMove, Kind
from tarry.spark import ledger
from tarry.spark.checks import duplicates, fires, messages, order, replicas, segments, timeline, transactions
from tarry.spark.checks.messages import CHECKS, MISSING, VIOLATION, Span
from tarry.spark.checks.segments import Fault
from tarry.spark.errors import LedgerEmpty
from tarry.spark.facts import HOUR_MS, PAIRS, ROWS_PER_PARTITION, events, facts, first_due_between, with_pairs
from tarry.spark.ledger import Segment
from tarry.spark.pairs import BEGINS, begins, pairs
from tarry.spark.summary import Findings, summary, write

BLOCKS_MAX: Final = 10_000
"""Blocks of the log named to the driver to leave out segments; where more differ, all segments are read."""


@dataclass(frozen=True, slots=True)
class Options:
    """Input and settings of a reconciliation.

    `from_ms`, `to_ms`: messages first due in between, of whole hours (the hour is part of a message's id,
    rescheduled or not, so no message is half in). `settle_ms`: what was due within that time before the
    ledgers' end may still be on its way. `tolerance_ms`: how far consumers' clocks may be behind the
    cluster's.
    """

    ledgers: Sequence[str]
    out: str
    from_ms: int | None = None
    to_ms: int | None = None
    settle_ms: int = 60_000
    tolerance_ms: int = 0
    checksums: bool = True


Say = Callable[[str], None]


class Reconciliation:
    """One run of the job; the frames and figures that it found remain as attributes."""

    def __init__(self, spark: SparkSession, options: Options, say: Say = lambda _: None) -> None:
        self.spark = spark
        self.options = options
        self.say = say
        self.counts: dict[str, int] = {}
        self.faults: list[Fault] = []

    def run(self) -> dict[str, Any]:
        """Run all steps, write the tables, and return the summary.

        Raises:
            SparkJobError: the ledgers cannot be read or trusted; the message says why.
        """
        started = time.monotonic()
        every = self._segments()
        self.sound = [one for one in every if one.file not in {fault.file for fault in self.faults}]
        if not self.sound:
            raise LedgerEmpty("what is left without damaged segments")
        self.events = ledger.node_events(self.spark, self.sound)
        self.faults += segments.gaps(self.sound, self.events)  # in what nodes wrote, of whatever history
        if forks := segments.forks(self.events):
            self.sound = ledger.without_forgotten(self.spark, self.sound, forks)
            self.events = ledger.node_events(self.spark, self.sound)
        self.rows = self._in_span(ledger.rows(self.spark, self.sound))
        self._timeline()
        self._facts()
        self._duplicates()
        found = [*self._of_messages(), duplicates.beyond_bound(self.duplicates), self._of_segments()]
        found += [self._of_replicas(every)]
        if self.order_keys:
            found.append(order.out_of_order(self.rows, self.begins))
        if self.fires:
            found.append(fires.wrong_fires(self.rows, self.span, self.options.from_ms))
        every_hour = ledger.rows(self.spark, self.sound)  # halves have none, and their messages any
        found.append(self._in_span(transactions.wrong_transactions(every_hour, self.span)))
        self._write_violations(found)
        self._write_missing()
        self.say("summary")
        rows = sum(one.rows for one in every)
        return summary(self.findings(), len(every), rows, time.monotonic() - started)

    def findings(self) -> Findings:
        """Return what the checks have found, once the job has run."""
        options = self.options
        about = {
            "made_ms": time.time_ns() // 1_000_000,
            "ledgers": list(options.ledgers),
            "from_ms": options.from_ms,
            "to_ms": options.to_ms,
            "settle_ms": options.settle_ms,
            "tolerance_ms": options.tolerance_ms,
        }
        return Findings(
            self.timeline, self.duplicates, self.violations, self.counts, self.span, self.shard, about
        )

    def write(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json, report.html and findings.json beside the tables."""
        self.say("report")
        write(self.findings(), summary, self.options.out)

    # -- segments ------------------------------------------------------------------------

    def _segments(self) -> list[Segment]:
        self.say("manifests")
        every = ledger.closed(self.spark, self.options.ledgers)
        self.say(f"{len(every):,} segments, {sum(one.rows for one in every):,} rows: files and checksums")
        self.faults = segments.files(self.spark, self.options.ledgers, every)
        there = [one for one in every if one.file not in {fault.file for fault in self.faults}]
        self.faults += segments.damaged(self.spark, there, checksums=self.options.checksums)
        gone = {fault.file for fault in self.faults}
        return ledger.chosen([one for one in every if one.file not in gone]) + [
            one for one in every if one.file in gone
        ]

    def _in_span(self, rows: DataFrame) -> DataFrame:
        if self.options.from_ms is not None:
            rows = rows.where(F.col("hour").isNull() | (F.col("hour") >= self.options.from_ms // HOUR_MS))
        if self.options.to_ms is not None:
            rows = rows.where(F.col("hour").isNull() | (F.col("hour") < -(-self.options.to_ms // HOUR_MS)))
        return rows

    # -- the passes over the rows --------------------------------------------------------

    def _timeline(self) -> None:
        self.say("counts a minute, and lateness")
        path = f"{self.options.out}/timeline"
        ends = [one.last_at_ms for one in self.sound] + [one.first_at_ms for one in self.sound if one.rows]
        step_ms = timeline.step_ms(max(ends) - min(ends))
        self.begins = self.spark.createDataFrame(begins(self.events), BEGINS)
        timeline.timeline(self.rows, self.begins, step_ms).write.mode("overwrite").parquet(path)
        self.timeline = self.spark.read.parquet(path)
        counts = self.timeline.agg(F.sum("order_keys"), F.sum("fires")).collect()[0]
        self.order_keys, self.fires = (count or 0 for count in counts)
        self.terms = timeline.terms(self.timeline)
        self.pairs = self.spark.createDataFrame(pairs(self.timeline, self.events), PAIRS).persist()

    def _span(self) -> Span:
        settle_ms, from_index = self.options.settle_ms, ledger.begin(self.sound)
        whole = from_index is not None and from_index <= 1
        told = self.timeline.where(F.col("kind").isin(*[kind.value for kind in REPLICATED]))
        begun = F.min(F.when(F.col("from_index") > (from_index or 0), F.col("from_ms")))
        first_ms = None if whole else told.agg(begun).collect()[0][0]
        last_ms = ledger.last_ms(self.spark, self.sound)
        begun_ms = 0 if whole else last_ms if first_ms is None else first_ms + settle_ms
        return Span(last_ms - settle_ms, whole, begun_ms, self.options.tolerance_ms)

    def _facts(self) -> None:
        self.say("what happened to each message")
        self.span = self._span()
        narrow = events(self.rows, self.pairs)
        partitions = max(2, -(-sum(one.rows for one in self.sound) // ROWS_PER_PARTITION))
        every = with_pairs(facts(narrow, partitions), self.pairs)
        every = first_due_between(every, self.options.from_ms, self.options.to_ms)
        grouped, seen = F.col("group").isNotNull(), Observation("facts")
        once = {
            "scheduled": F.col("first") & (F.col("scheduled") > 0),
            "produced": F.col("first") & (F.col("produced") > 0),
            "cancelled": F.col("first") & (F.col("cancelled") > 0),
            "released": F.col("first") & (F.col("released") > 0),
            "delivered_once": grouped & (F.col("out") == 1),
            "delivered_again": grouped & (F.col("out") > 1),
            "delivered_never": grouped & (F.col("released") > 0) & (F.col("out") == 0),
            "expired_unacked": grouped & (F.col("trimmed") > 0),
            "acked_unseen": grouped & (F.col("acked") > 0) & (F.col("out") == 0),
            **{f"check_{name}": messages.holds(check, self.span) for name, check in CHECKS.items()},
        }
        observed = every.observe(
            seen, *[F.count(F.when(is_so, 1)).alias(name) for name, is_so in once.items()]
        )
        path = f"{self.options.out}/suspicious"
        messages.suspicious(observed, self.span).write.mode("overwrite").parquet(path)
        self.suspicious = self.spark.read.parquet(path)
        self.counts = {name: int(count) for name, count in seen.get.items()}

    def _duplicates(self) -> None:
        path = f"{self.options.out}/duplicates"
        repeated = self.suspicious.where("out > 1 and group is not null").select(
            "hour", "global_index", "topic", "group", "receipts"
        )
        self.say(f"{self.counts['delivered_again']:,} came out more than once: causes")
        moves = [
            (event["topic"], event["group"], event["at_ms"])
            for event in self.events
            if event["kind"] == Kind.GROUP_MOVED.value and event["detail"] == GroupMove.SEEK.value
        ]
        seeks = self.spark.createDataFrame(moves, duplicates.SEEKS)
        found = duplicates.duplicates(self.rows, repeated, self.terms, seeks)
        found = found.withColumn("date", F.date_from_unix_date((F.col("again_ms") / 86_400_000).cast("int")))
        found.write.mode("overwrite").partitionBy("date").parquet(path)
        self.duplicates = self.spark.read.schema(found.schema).parquet(path)

    # -- violations ----------------------------------------------------------------------

    def _of_messages(self) -> list[DataFrame]:
        names = [name for name in CHECKS if self.counts[f"check_{name}"]]
        return [messages.violations(self.suspicious, names, self.span)] if names else []

    def _of_segments(self) -> DataFrame:
        of_no_message = (None,) * 5
        rows = [
            (one.check, one.promise, *of_no_message, one.at_ms, one.index, one.source, one.detail)
            for one in self.faults
        ]
        return self.spark.createDataFrame(rows, VIOLATION)

    def _of_replicas(self, every: Sequence[Segment]) -> DataFrame:
        self.say("whether the replicas agree")
        covered = replicas.coverage(self.sound)
        nodes = [one for one in self.sound if one.of_node]
        none = self.spark.createDataFrame([], VIOLATION)
        if not nodes:
            return none
        rows = self._in_span(ledger.rows(self.spark, nodes))
        doubtful = replicas.doubtful(replicas.blocks(rows), covered).persist()
        named = [row["block"] for row in doubtful.limit(BLOCKS_MAX).collect()]
        if not named:
            return none
        if len(named) < BLOCKS_MAX:
            nodes = [one for one in nodes if _has_any(one, named)]
        some = self._in_span(ledger.rows(self.spark, nodes))
        block = F.floor(F.col("index") / replicas.BLOCK).cast("long")
        return replicas.differing(
            some.withColumn("block", block).join(doubtful, "block", "left_semi"), covered
        )

    def _write_violations(self, found: Sequence[DataFrame]) -> None:
        every = reduce(DataFrame.unionByName, found)
        day = F.date_from_unix_date((F.coalesce("at_ms", F.lit(0)) / 86_400_000).cast("int"))
        path = f"{self.options.out}/violations"
        dated = every.withColumn("date", day)
        dated.coalesce(4).write.mode("overwrite").partitionBy("date", "check").parquet(path)
        self.violations = self.spark.read.schema(dated.schema).parquet(path)

    def _write_missing(self) -> None:
        """Write JSON lines of the messages that were acknowledged and not delivered; a redrive reads them."""
        known = self.rows.where("hour is not null").select("shard").first()
        self.shard: int = known["shard"] if known is not None else 0
        groups = F.sort_array(F.collect_set("group")).alias("groups")
        lost = self.violations.where(F.col("check").isin(*MISSING)).groupBy("hour", "global_index", "topic")
        rows = lost.agg(groups, F.min("check").alias("check"), F.min("due_ms").alias("due_ms"))
        rows = rows.select(F.lit(self.shard).alias("shard"), "*")
        rows.write.mode("overwrite").json(f"{self.options.out}/missing")


def _has_any(segment: Segment, blocks: Sequence[int]) -> bool:
    size = replicas.BLOCK
    return any(segment.first_index < (b + 1) * size and segment.last_index >= b * size for b in blocks)
