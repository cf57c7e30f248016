"""Parts of an export come while others are written, few at once, and are written in order or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tarry.client.bulk import export
from tarry.client.errors import OutcomeUnknown
from tarry.client.records import body_records
from tarry.proto.tarry_log_pb2 import ExportedColumns, PendingColumns
from tarry.proto.tarry_operator_pb2 import PendingEnd, PendingHead

PARTS = 2 * export.PARTS_WAITING_MAX
ROWS = 5


class Node:
    """Sends an export, and counts the parts that were taken."""

    def __init__(self, *, ends: bool = True) -> None:
        self.taken, self._ends = 0, ends
        self.many = asyncio.Event()

    async def responses(self) -> AsyncGenerator[ExportedColumns]:
        yield ExportedColumns(head=PendingHead(cluster="c", topics=["t"], pending=PARTS * ROWS))
        for part in range(PARTS):
            index = np.arange(part * ROWS, (part + 1) * ROWS)
            numbers = {name: index.astype("<u4").tobytes() for name in ("hour", "global_index")}
            self.taken += 1
            if self.taken > export.PARTS_WAITING_MAX:
                self.many.set()
            yield ExportedColumns(
                messages=PendingColumns(
                    topic=bytes(4 * ROWS), due_ms=index.astype("<i8").tobytes(), **numbers,
                    records=body_records([b"%d" % row for row in index.tolist()]),
                )
            )  # fmt: skip
        if self._ends:
            yield ExportedColumns(end=PendingEnd(messages=PARTS * ROWS, half_messages=3))


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def written(node: Node, path: Path) -> list[Any]:
    return [state async for state in export.written(node.responses(), path)]


async def test_parts_come_while_one_is_written_and_few_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, add, node = threading.Event(), export.Target.add, Node()

    def waits(self: Any, rows: Any) -> int:
        assert go.wait(60)
        return add(self, rows)

    monkeypatch.setattr(export.Target, "add", waits)
    path = tmp_path / "out.parquet"
    running = asyncio.ensure_future(written(node, path))
    async with asyncio.timeout(60):
        await node.many.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert node.taken == export.PARTS_WAITING_MAX + 1
    go.set()
    *_, last = await running
    assert (last.done, last.messages, last.half_messages) == (True, PARTS * ROWS, 3)
    assert pq.read_table(path).column("body").to_pylist() == [b"%d" % row for row in range(PARTS * ROWS)]


async def test_what_does_not_end_or_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutcomeUnknown, match="before its end"):
        await written(Node(ends=False), tmp_path / "out.parquet")
    assert not names(tmp_path)

    def full(self: Any, rows: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.Target, "add", full)
    with pytest.raises(OSError, match="No space"):
        await written(Node(), tmp_path / "folder")
    assert not names(tmp_path)


async def test_a_write_under_way_is_over_before_the_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun, add, remove = threading.Event(), threading.Event(), export.Target.add, export.Target.remove
    done: list[str] = []

    def waits(self: Any, rows: Any) -> int:
        begun.set()
        assert go.wait(60)
        count = add(self, rows)
        done.append("added")
        return count

    def noted(self: Any) -> None:
        done.append("removed")
        remove(self)

    monkeypatch.setattr(export.Target, "add", waits)
    running = asyncio.ensure_future(written(Node(), tmp_path / "out.parquet"))
    await asyncio.to_thread(begun.wait, 60)
    monkeypatch.setattr(export.Target, "remove", noted)
    running.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert done == ["added", "removed"] and not names(tmp_path)
