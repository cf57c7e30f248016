"""Imports into a node of this process, by its own services, which end at a point that a test names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarry.client.bulk.files import FileSource
from tarry.client.bulk.import_run import Import
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
    """Counts the points at which an import may be killed, and kills it at one."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.points = at, 0

    def point(self) -> None:
        """Be one of the points."""
        self.points += 1
        if self.points == self.at:
            raise Killed


class KilledProgress(Progress):
    """Progress that may be killed before and behind each of its writes."""

    def __init__(self, folder: Path, killer: Killer) -> None:
        super().__init__(folder)
        self._killer = killer

    def begin_step(self, number: int) -> None:
        self._killer.point()
        super().begin_step(number)
        self._killer.point()

    def end_step(self, *arguments: Any) -> None:
        self._killer.point()
        super().end_step(*arguments)
        self._killer.point()

    def refuse(self, *arguments: Any) -> None:
        self._killer.point()
        super().refuse(*arguments)
        self._killer.point()


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

    async def cancel(self, name: str) -> None:
        """As Cancel."""
        found = MessageId.parse(name)
        hour, index = (number.to_bytes(4, "little") for number in (found.hour, found.global_index))
        now_ms = self.lead.node.time.now_ms()
        await self.lead.propose(CancelCommand(hour=hour, global_index=index, now_ms=now_ms))

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
    """Import a file once. Raises Killed."""
    killer = killer or Killer()
    progress = KilledProgress(folder, killer)
    try:
        source = FileSource(path, Columns(topic=topic), more.pop("overdue_before_ms", None))
        run = Import(
            source, progress, lambda octets: target.send(octets, killer), target.cancel,
            **{"what": {"of": "test"}, "batch_rows": BATCH_ROWS, **more},
        )  # fmt: skip
        return [state async for state in run.steps()]
    finally:
        progress.close()


def source_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows to a Parquet file."""
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
