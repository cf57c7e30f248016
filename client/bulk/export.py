"""Export of pending messages to Parquet: one file, or a folder of files of a million rows.

ExportPending ─► columns of some parts ─► rows ─► row group ─► FILE.unfinished ─► FILE
                 (protobuf, loop)         (one thread)          renamed once the end is there
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tarry.client.bulk.record_columns import columns_of
from tarry.client.bulk.schema import COLUMNS, FORMAT
from tarry.client.bulk.values import Exported
from tarry.client.errors import OutcomeUnknown
from tarry.proto.message_id import LENGTH, format_id_octets
from tarry.proto.tarry_log_pb2 import ExportedColumns, PendingColumns
from tarry.proto.tarry_operator_pb2 import PendingEnd, PendingHead

FILE_ROWS_MAX: Final = 1_000_000
"""Of a file in a folder; the last part of it may exceed that."""
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 32 << 20
"""A row group is written once its rows have reached one of these."""
PARTS_WAITING_MAX: Final = 6
"""Parts that have come and are not written: so parts come on while a row group is written."""
UNFINISHED: Final = ".unfinished"

T = TypeVar("T")


async def written(responses: AsyncGenerator[ExportedColumns], path: Path) -> AsyncGenerator[Exported]:
    """Write what a node sends to a file, or where the path has no suffix to a folder; yield how far it is.

    Raises FileExistsError where the path is there, OSError, what the call raises, and OutcomeUnknown where it
    ended without its end. What was written of an export that does not end is removed.
    """
    if await asyncio.to_thread(path.exists):
        raise FileExistsError(17, "it is there already: name another, or remove it", str(path))
    run = _Run(path)
    try:
        async with aclosing(responses):
            async for state in run.states(responses):
                yield state
    finally:
        await run.end()


class _Run:
    """One export, until it is finished. All that it writes is written by one thread, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target: Target | None = None
        self._writer = ThreadPoolExecutor(1, "tarry-export")
        self._waiting: deque[asyncio.Future[int]] = deque()

    def _written(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def end(self) -> None:
        """Remove what has not been finished, behind the write that is under way."""
        for waiting in self._waiting:
            waiting.cancel()
        if self._target is not None:
            await self._written(self._target.remove)
        self._writer.shutdown(wait=False)

    async def states(self, responses: AsyncIterator[ExportedColumns]) -> AsyncIterator[Exported]:
        first = await anext(responses, None)
        if first is None or not first.HasField("head"):
            raise OutcomeUnknown("UNAVAILABLE", "the export has no head: ask again")
        head = first.head
        state = Exported(str(self._path), head.cluster, head.node, head.index, head.now_ms, head.pending)
        self._target = target = await self._written(partial(Target, self._path, state))
        yield state
        async for response in responses:
            ended = response.HasField("end")
            most = 0 if ended else PARTS_WAITING_MAX - 1
            while self._waiting and (len(self._waiting) > most or self._waiting[0].done()):
                state = replace(state, messages=state.messages + await self._waiting[0])
                self._waiting.popleft()
                yield state
            if ended:
                if response.end.messages != state.messages:
                    break
                await self._written(target.finish)
                yield _ended(state, response.end)
                return
            self._waiting.append(self._written(partial(target.add, Rows(response.messages, head))))
        raise OutcomeUnknown("UNAVAILABLE", "the export ended before its end: ask again")


def _ended(state: Exported, end: PendingEnd) -> Exported:
    return replace(
        state,
        retries=end.retries,
        half_messages=end.half_messages,
        unreadable=end.unreadable,
        unreadable_ids=tuple(end.unreadable_ids),
        done=True,
    )


class Rows:
    """The rows of one part, made when asked for: in a thread."""

    def __init__(self, columns: PendingColumns, head: PendingHead) -> None:
        self._columns, self._head = columns, head

    def made(self) -> pa.RecordBatch:
        """Return them. Raises InvalidRecords."""
        columns = self._columns
        hour, index = (np.frombuffer(one, "<u4") for one in (columns.hour, columns.global_index))
        place = np.frombuffer(columns.topic, "<u4")
        due_ms = np.frombuffer(columns.due_ms, "<i8")
        topic = pa.array(list(self._head.topics), pa.string()).take(pa.array(place))
        ids = _texts(format_id_octets(self._head.shard, hour, index))
        fields = columns_of(list(columns.records))
        return pa.RecordBatch.from_arrays([ids, topic, pa.array(due_ms), *fields], schema=COLUMNS)


def _texts(octets: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.StringArray:
    """Return texts of equal length, ASCII of shape (n, LENGTH)."""
    ends = np.arange(0, LENGTH * (len(octets) + 1), LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(ends), pa.py_buffer(octets))


class Target:
    """Writer of one file or a folder of several, under a name of its own until it is finished."""

    def __init__(self, path: Path, state: Exported) -> None:
        told = {name: str(value) for name, value in asdict(state).items() if name in _TOLD}
        self._schema = COLUMNS.with_metadata({"format": FORMAT, **told})
        self._path = path
        self._side = path.with_name(path.name + UNFINISHED)
        self._is_folder = not path.suffix
        self._files = 0
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self.remove()
        if self._is_folder:
            self._side.mkdir(parents=True)
        else:
            self._side.parent.mkdir(parents=True, exist_ok=True)

    def add(self, rows: Rows) -> int:
        """Write rows; return how many. Raises OSError, InvalidRecords."""
        made = rows.made()
        self._waiting.append(made)
        self._waiting_rows += len(made)
        self._waiting_bytes += made.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write()
        return len(made)

    def _write(self) -> None:
        if self._writer is None:
            name = self._side / f"part-{self._files:05}.parquet" if self._is_folder else self._side
            self._files += 1
            self._writer = pq.ParquetWriter(
                name, self._schema, compression="zstd", compression_level=1, use_dictionary=["topic"],
                write_statistics=["topic", "due_ms"],
            )  # fmt: skip
        self._writer.write_table(pa.Table.from_batches(self._waiting, COLUMNS), row_group_size=GROUP_ROWS)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if self._is_folder and self._rows >= FILE_ROWS_MAX:
            self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._rows = None, 0

    def finish(self) -> None:
        """Write the rest, and give it its name. Raises OSError."""
        if self._waiting or not self._files:
            self._write()
        self._close()
        self._side.rename(self._path)

    def remove(self) -> None:
        """Remove what has not been finished."""
        self._close()
        if self._side.is_dir():
            shutil.rmtree(self._side)
        else:
            self._side.unlink(missing_ok=True)


_TOLD: Final = {"cluster", "node", "index", "now_ms"}
"""In the metadata of each file."""
