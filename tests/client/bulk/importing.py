"""Imports into a node of this process, by its own services, which end at a point that a test names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from shutil import copyfile
from threading import Lock
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarry.client.bulk import progress
from tarry.client.bulk.files import FileSource
from tarry.client.bulk.import_run import Import
from tarry.client.bulk.mapping import Fault
from tarry.client.bulk.progress import Progress
from tarry.client.bulk.values import Columns, Imported
from tarry.client.errors import CLASS_OF_REASON, Refused
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_log_pb2 import CancelCommand, ScheduledColumns
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import Leader
from tests.simulation.edge import Context

HOUR_MS = 3_600_000
BATCH_ROWS = 3


class Killed(Exception):
    """Where a test ends an import."""


class Killer:
    """Counts the points at which an import may be killed, and kills it at one: behind it nothing is done."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.points = at, 0
        self._counts = Lock()

    def point(self) -> None:
        """Be one of the points."""
        with self._counts:
            self.points += 1
            if 0 < self.at <= self.points:
                raise Killed


P = ParamSpec("P")


def _around(method: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[KilledProgress, P], None]:
    """Have points before and behind a write."""

    @wraps(method)
    def written(self: KilledProgress, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.killer.point()
        method(self, *args, **kwargs)
        self.killer.point()

    return written


class KilledProgress(Progress):
    """Progress that may be killed before and behind each of its writes; inside them: ``killed_inside``."""

    def __init__(self, folder: Path, killer: Killer) -> None:
        super().__init__(folder)
        self.killer = killer

    begin = _around(Progress.begin)
    begin_step = _around(Progress.begin_step)
    end_step = _around(Progress.end_step)
    finish = _around(Progress.finish)
    keep_copy = _around(Progress.keep_copy)

    @_around
    def refuse(self, faults: Iterable[Fault]) -> None:
        """Also with half a line written."""
        noted = list(faults)
        with self._writes:
            try:
                self.killer.point()
            except Killed:
                line = json.dumps(noted[0]._asdict())
                with (self.folder / "refused.jsonl").open("a") as file:
                    file.write(line[: len(line) // 2])
                raise
            super().refuse(noted)


@contextmanager
def killed_inside(folder: Path, killer: Killer) -> Iterator[None]:
    """Have points inside the writes of a folder: before each file has its name, is gone or is on disk."""

    def before(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(path: Path, *more: Any, **options: Any) -> Any:
            if path.is_relative_to(folder):
                killer.point()
            return change(path, *more, **options)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "unlink"):
            patch.setattr(Path, name, before(getattr(Path, name)))
        patch.setattr(progress, "_sync", before(progress._sync))
        yield


class Target:
    """The node that is imported into."""

    def __init__(self, lead: Leader) -> None:
        self.lead = lead
        self.sent = 0

    async def send(self, octets: bytes, killer: Killer) -> ScheduledColumns:
        """As ScheduleBatch, of a client."""
        killer.point()
        answer = await self.lead.edge.schedule(octets)
        self.sent += 1
        if isinstance(answer, Refusal):
            kind = CLASS_OF_REASON.get(answer.reason, Refused)
            raise kind(answer.reason, answer.text, answer.facts)
        killer.point()
        return ScheduledColumns.FromString(answer)

    async def cancel(self, name: str, killer: Killer) -> None:
        """As Cancel."""
        killer.point()
        found = MessageId.parse(name)
        hour, index = (number.to_bytes(4, "little") for number in (found.hour, found.global_index))
        now_ms = self.lead.node.time.now_ms()
        await self.lead.propose(CancelCommand(hour=hour, global_index=index, now_ms=now_ms))
        killer.point()

    async def pending(self, topic: str) -> list[Record]:
        """Return the records of all that is pending in a topic."""
        context: Any = Context()
        raw = operator_pb.ExportPendingRequest(topics=[topic]).SerializeToString()
        records: list[Record] = []
        async for part in self.lead._operator._export_calls._export(raw, context):
            messages = operator_pb.ExportPendingResponse.FromString(part).messages
            records += map(Record.FromString, messages.records)
        return records

    async def bodies(self, topic: str) -> Counter[bytes]:
        """Return how often each body is pending."""
        return Counter(record.body for record in await self.pending(topic))


async def imported(
    target: Target, path: Path, folder: Path, topic: str, killer: Killer | None = None, **more: Any
) -> list[Imported]:
    """Import a copy of a file once. Raises Killed."""
    killer = killer or Killer()
    held = KilledProgress(folder, killer)
    try:
        with killed_inside(folder, killer):
            if held.told is None:
                side = held.copy.with_suffix(".unfinished")
                copyfile(path, side)
                held.keep_copy(side)
            source = FileSource(held.copy, Columns(topic=topic), more.pop("overdue_before_ms", None))
            run = Import(
                source, held, lambda octets: target.send(octets, killer),
                lambda name: target.cancel(name, killer),
                **{"what": {"of": "test"}, "batch_rows": BATCH_ROWS, **more},
            )  # fmt: skip
            return [state async for state in run.steps()]
    finally:
        held.close()


def source_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows to a Parquet file."""
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
