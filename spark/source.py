"""Spark data source `tarry`: ledgers, read once or followed as they grow.

    spark.dataSource.register(LedgerSource)
    spark.read.format("tarry").load("/var/lib/tarry/ledger")
    spark.read.format("tarry").option("nodes", "10.0.0.1:7001,10.0.0.2:7001").load()
    spark.readStream.format("tarry").option("segments_max", 100).load("/var/lib/tarry/ledger")

A partition is a segment, or live a node; rows come as Arrow batches. Filters on `at_ms` and `index` leave out
whole segments, by their manifests, or are told to the nodes (Spark 4.1 and newer, with
`spark.sql.python.filterPushdown.enabled`); Spark still applies them to the rows. A stream's offset is the
last segment of each source, or of each node's address. A segment is read once it is closed, so a row is seen
once, whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession, datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tarry.proto.ledger.schema import COLUMNS
from tarry.spark.errors import LedgerMissing, NodeUnreachable, OptionInvalid
from tarry.spark.live import NO_BOUND, ROWS, Node, NodePartition
from tarry.spark.schema import LEDGER

VERSION: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
PUSHES_FILTERS: Final = VERSION >= (4, 1)
LIMITS_STREAMS: Final = VERSION >= (4, 2)

BATCH_ROWS: Final = 16_384
SECRETS: Final = ("token", "authority", "certificate", "key")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest values, both inclusive, that filters let through."""

    at_ms: tuple[float, float] = NO_BOUND
    index: tuple[float, float] = NO_BOUND

    def meets(self, manifest: Mapping[str, Any]) -> bool:
        """Return whether the manifest's segment can have such a row."""
        spans = (
            (self.at_ms, manifest["first_at_ms"], manifest["last_at_ms"]),
            (self.index, manifest["first_index"], manifest["last_index"]),
        )
        return all(most >= first and least <= last for (least, most), first, last in spans)


def narrowed(bounds: Bounds, filters: Iterable[Any]) -> Bounds:
    """Return the bounds with what filters of the Data Source API add; those of other columns add nothing."""
    spans = {"at_ms": bounds.at_ms, "index": bounds.index}
    for one in filters:
        name = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else None
        if name not in spans:
            continue
        least, most = spans[name]
        if isinstance(one, datasource.EqualTo):
            spans[name] = max(least, one.value), min(most, one.value)
        elif isinstance(one, datasource.GreaterThan | datasource.GreaterThanOrEqual):
            spans[name] = max(least, one.value), most
        elif isinstance(one, datasource.LessThan | datasource.LessThanOrEqual):
            spans[name] = least, min(most, one.value)
    return Bounds(**spans)


@dataclass(frozen=True, slots=True)
class Folder:
    """A ledger in a folder or at a URI that Arrow can open."""

    uri: str

    def manifests(self) -> list[dict[str, Any]]:
        """Return the manifests of closed segments, each with its Parquet file's `path`, in the order of
        closing.

        Raises:
            LedgerMissing.
        """
        files, path = _opened(self.uri)
        if files.get_file_info(path).type is not pyarrow.fs.FileType.Directory:
            raise LedgerMissing(self.uri)
        found = []
        for info in files.get_file_info(pyarrow.fs.FileSelector(path, recursive=True)):
            if info.path.endswith(".json") and "/date=" in info.path:
                with files.open_input_stream(info.path) as stream:
                    manifest = json.loads(stream.read())
                found.append({**manifest, "path": info.path.removesuffix(".json") + ".parquet"})
        return sorted(found, key=lambda one: (one["source"], one["segment"]))


def _opened(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
    if "://" in uri:
        opened: tuple[pyarrow.fs.FileSystem, str] = pyarrow.fs.FileSystem.from_uri(uri)
        return opened
    return pyarrow.fs.LocalFileSystem(), uri


@dataclass
class SegmentPartition(InputPartition):
    """One segment to be read by one task."""

    uri: str
    path: str

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the segment's rows; opens the file here, where the task runs."""
        files, _ = _opened(self.uri)
        with files.open_input_file(self.path) as file:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=list(COLUMNS)):
                yield batch.cast(ROWS)


class PartitionsRead:
    """Readers' part that runs in a task."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition | NodePartition)
        return partition.read()


class BoundedReader(PartitionsRead, DataSourceReader):
    """Reader that leaves out, or has nodes leave out, what is beyond the bounds of filters."""

    def __init__(self) -> None:
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Take bounds from the filters; all go back to Spark, which applies them to the rows."""
        self._bounds = narrowed(self._bounds, filters)
        return filters


class LedgerReader(BoundedReader):
    """Reader of the segments that are closed at the time of planning."""

    def __init__(self, folders: Sequence[Folder]) -> None:
        super().__init__()
        self._folders = folders

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each segment that can have a wanted row."""
        return [
            SegmentPartition(folder.uri, manifest["path"])
            for folder in self._folders
            for manifest in folder.manifests()
            if manifest["rows"] and self._bounds.meets(manifest)
        ]


class LedgerStreamReader(PartitionsRead, DataSourceStreamReader):
    """Stream reader of ledgers: offset = {source: number of its last segment that was read}."""

    def __init__(self, folders: Sequence[Folder], segments_max: int | None) -> None:
        self._folders = folders
        self._segments_max = segments_max

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before everything."""
        return {}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the offset of what is closed now; from Spark 4.2 on, of `segments_max` more segments at
        most.
        """
        end = dict(start or {})
        for number, (_, manifest) in enumerate(self._after(end)):
            if number == getattr(limit, "max_files", None):
                break
            end[manifest["source"]] = manifest["segment"]
        return end

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit of a batch, where Spark knows limits."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._segments_max) if self._segments_max else ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a partition for each segment after start, up to end."""
        return [
            SegmentPartition(folder.uri, manifest["path"])
            for folder, manifest in self._after(start)
            if manifest["segment"] <= end.get(manifest["source"], -1) and manifest["rows"]
        ]

    def _after(self, start: Mapping[str, int]) -> list[tuple[Folder, dict[str, Any]]]:
        """Return the segments after the offset, the oldest rows first, so that a limit keeps sources in
        step.
        """
        more = [
            (folder, manifest)
            for folder in self._folders
            for manifest in folder.manifests()
            if manifest["segment"] > start.get(manifest["source"], -1)
        ]
        return sorted(more, key=lambda one: (one[1]["last_at_ms"], one[1]["segment"]))


class LiveReader(BoundedReader):
    """Reader of the segments that nodes have closed."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self._nodes = nodes

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each node."""
        at_ms, index = self._bounds.at_ms, self._bounds.index
        return [NodePartition(node, 0, node.last_segment(), at_ms, index) for node in self._nodes]


class LiveStreamReader(PartitionsRead, DataSourceStreamReader):
    """Stream reader of nodes: offset = {address: number of its last segment that was read}."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before everything."""
        return {node.address: 0 for node in self._nodes}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the offset of what is closed now; a node that does not answer stays where it was."""
        end = dict(start or self.initialOffset())
        for node in self._nodes:
            with suppress(NodeUnreachable):
                end[node.address] = max(end.get(node.address, 0), node.last_segment())
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a partition for each node that has more."""
        spans = [(node, start.get(node.address, 0), end.get(node.address, 0)) for node in self._nodes]
        return [NodePartition(node, after, up_to) for node, after, up_to in spans if up_to > after]


class LedgerSource(DataSource):
    """The format `tarry`.

    Options: `path` (several with commas), and of its streams `segments_max`, a batch's; or `nodes`
    (host:port, several with commas), with `token` and the PEM files `authority`, `certificate` and `key`
    where the nodes ask for them.
    """

    @classmethod
    def name(cls) -> str:
        return "tarry"

    def schema(self) -> StructType:
        return LEDGER

    def _listed(self, option: str) -> list[str]:
        return [one.strip() for one in self.options.get(option, "").split(",") if one.strip()]

    @cached_property
    def _folders(self) -> list[Folder]:
        return [Folder(one) for one in self._listed("path")]

    @cached_property
    def _nodes(self) -> list[Node]:
        secrets = {name: self.options.get(name, "") for name in SECRETS}
        return [Node(one, **secrets) for one in self._listed("nodes")]

    def _one_of_both(self) -> None:
        if bool(self._folders) == bool(self._nodes):
            raise OptionInvalid('name either folders, .load("path"), or nodes, .option("nodes", "host:port")')

    def reader(self, schema: StructType) -> DataSourceReader:
        self._one_of_both()
        return LiveReader(self._nodes) if self._nodes else LedgerReader(self._folders)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self._one_of_both()
        if self._nodes:
            return LiveStreamReader(self._nodes)
        segments_max = self.options.get("segments_max")
        if segments_max and not LIMITS_STREAMS:
            raise OptionInvalid(f"segments_max needs Spark 4.2 or newer, this is {pyspark.__version__}")
        return LedgerStreamReader(self._folders, int(segments_max) if segments_max else None)


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let it push filters where it can."""
    spark.dataSource.register(LedgerSource)
    if PUSHES_FILTERS:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
