"""Exports and imports of many messages, by a client's ``bulk()``; pyarrow is loaded with the first."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tarry.client.bulk.values import (
    Columns,
    DryRun,
    Exported,
    Files,
    Imported,
    InvalidSource,
    Overdue,
    PostgresqlTable,
    RedisSet,
    Source,
    Unsure,
)
from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Node, Nodes
from tarry.client.operators.backup import source_of
from tarry.client.operators.cluster_operator import Operator
from tarry.client.producers.producer import Producer
from tarry.proto.extras import lacking

if TYPE_CHECKING:
    from tarry.client.bulk.files import FileSource
    from tarry.proto.tarry_log_pb2 import ScheduledColumns

T = TypeVar("T")

SCHEDULE_BATCH: Final = "/tarry.v1.ProducerService/ScheduleBatch"
"""Called without the stub: requests are serialized here, and the answer's columns read as octets."""

PLAIN: Final = Columns()


class Bulk:
    """Exports what is pending to Parquet, and imports it and foreign schedules. Made by ``Client.bulk``."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._calls = Calls(nodes)

    async def export(
        self,
        path: str | Path,
        *,
        topics: Iterable[str] = (),
        due_from_ms: int = 0,
        due_to_ms: int = 0,
        node: str = "",
    ) -> AsyncGenerator[Exported]:
        """Write what is pending to a Parquet file, or where the path has no suffix to a folder of files.

        It is what one node had at one log entry, with all that was acknowledged before the call. Yields how
        far it is, and last that it is done. Needs the extra ``parquet``.

        Args:
            topics: only of these; none: of all.
            due_from_ms, due_to_ms: only what is due from then on, and before then; 0: whenever.
            node: the member that is asked; else the follower that has most.

        Raises FileExistsError, OSError, and as ``Operator.export_pending``.
        """
        _require("parquet")
        from tarry.client.bulk.export import written

        operator = Operator(self._nodes)
        status = await operator.status()
        responses = operator.export_pending(
            source_of(status, node),
            topics=topics,
            due_from_ms=due_from_ms,
            due_to_ms=due_to_ms,
            index_min=status.applied_index,
        )
        async with aclosing(written(responses, Path(path))) as states:
            async for state in states:
                yield state

    async def dry_run(
        self,
        source: Source,
        columns: Columns = PLAIN,
        *,
        overdue: Overdue = "now",
        due_from_ms: int = 0,
    ) -> AsyncGenerator[DryRun]:
        """Look at every row of a source as an import would, and send nothing; yield how far it is.

        Raises InvalidSource, OSError.
        """
        _require("parquet")
        from tarry.client.bulk.dry_run import looked_at

        now_ms = _now_ms()
        with tempfile.TemporaryDirectory(prefix="tarry-import-") as folder:
            copy = Path(folder) / "source.parquet"
            async for _ in _copied(source, columns, copy):
                pass
            opened = _opened(source, columns, copy, _skipped_before_ms(overdue, now_ms, due_from_ms))
            async for state in _in_thread(lambda: looked_at(opened, now_ms)):
                yield state

    async def import_rows(
        self,
        source: Source,
        progress: str | Path,
        columns: Columns = PLAIN,
        *,
        overdue: Overdue = "now",
        due_from_ms: int = 0,
        unsure: Unsure = "stop",
    ) -> AsyncGenerator[Imported]:
        """Schedule every row of a source once; yield how far it is, and last that it is done.

        However it ends before, another call with the same arguments goes on and schedules nothing twice. The
        folder ``ids`` of the progress has what became of each row, as Parquet.

        Args:
            progress: a folder that the import has to itself.
            columns: how the rows are read; those of an export need nothing.
            overdue: what becomes of rows that are due before the import began: scheduled, and so delivered
                at once, or skipped.
            due_from_ms: rows due before then are skipped.
            unsure: what becomes of rows that may have been scheduled, where the cluster has forgotten the
                import: nothing, the call raises UnsureSteps; they are sent, marked; or skipped.

        Raises InvalidSource, ProgressDiffers, ClusterDiffers, UnsureSteps, CountDiffers, OSError; TarryError
        where the cluster does not take it.
        """
        _require("parquet")
        from tarry.client.bulk.import_run import Import
        from tarry.client.bulk.progress import Progress

        if isinstance(source, Files):
            _opened(source, columns, source.path, None)  # refused before there is a folder
        held = await asyncio.to_thread(Progress, Path(progress))
        try:
            begun_ms = held.told["begun_ms"] if held.told else _now_ms()
            if held.told is None:
                side = held.copy.with_suffix(".unfinished")
                async for rows in _copied(source, columns, side):
                    yield Imported(0, rows, 0, 0, 0, str(held.folder))
                if side.exists():
                    await asyncio.to_thread(held.keep_copy, side)
            before_ms = _skipped_before_ms(overdue, begun_ms, due_from_ms)
            opened = _opened(source, columns, held.copy, before_ms)
            what: dict[str, Any] = {"source": source.told(), "columns": columns.told(), "overdue": overdue}
            what["due_from_ms"] = due_from_ms
            what["files"] = await asyncio.to_thread(opened.identity)
            run = Import(
                opened, held, self._schedule, Producer(self._nodes).cancel, what=what, unsure=unsure,
                begun_ms=begun_ms,
            )  # fmt: skip
            async with aclosing(run.steps()) as steps:
                async for state in steps:
                    yield state
        finally:  # in a thread, for it may wait for a write's sync; whoever cancels again does not stop it
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, held.close))

    async def _schedule(self, octets: bytes) -> ScheduledColumns:
        from tarry.proto.tarry_log_pb2 import ScheduledColumns

        def method(node: Node) -> object:
            return node.channel.unary_unary(
                SCHEDULE_BATCH, request_serializer=bytes, response_deserializer=ScheduledColumns.FromString
            )

        answer: ScheduledColumns = await self._calls.call(method, octets)  # type: ignore[arg-type]
        return answer


def _opened(source: Source, columns: Columns, copy: Path, overdue_before_ms: int | None) -> FileSource:
    from tarry.client.bulk.files import FileSource

    return FileSource(source.path if isinstance(source, Files) else copy, columns, overdue_before_ms)


def _skipped_before_ms(overdue: Overdue, now_ms: int, due_from_ms: int) -> int | None:
    """Return the time before which rows are skipped; None: none is."""
    return max(due_from_ms, now_ms if overdue == "skip" else 0) or None


async def _copied(source: Source, columns: Columns, path: Path) -> AsyncIterator[int]:
    """Copy a source that is no file; yield how many rows are read. Raises InvalidSource, OSError."""
    if isinstance(source, RedisSet):
        _require("redis")
        from tarry.client.bulk import redis_copy

        async for rows in _in_thread(lambda: redis_copy.copied(source, path)):
            yield rows
    elif isinstance(source, PostgresqlTable):
        if bool(source.table) == bool(source.query):
            raise InvalidSource("name the rows with one of --table and --query")
        _require("postgresql")
        from tarry.client.bulk import postgresql_copy

        async for rows in _in_thread(lambda: postgresql_copy.copied(source, columns, path)):
            yield rows


async def _in_thread(begin: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield what an iterator does, which works in a thread."""
    values = begin()
    while (value := await asyncio.to_thread(next, values, None)) is not None:
        yield value


def _require(extra: str) -> None:
    if text := lacking(extra):
        raise ModuleNotFoundError(text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
