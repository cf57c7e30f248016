"""ExportPending: what is pending at the asked node as of one entry, streamed to an operator.

    wait for index_min ─► checkpoint ─► head ─► messages, as they are read ─► end, with what was left out

What is told is read in a thread from the files that the checkpoint names, a part while the one before is
taken. While an export is open no file is deleted, so it is closed where its operator takes too long, or the
disk has too little room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import numpy as np

from tarry.node.assembly import Core
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse, unknown_field
from tarry.node.edge.names import unknown_topic
from tarry.node.edge.request_bytes import EXPORT_TOPICS_MAX
from tarry.node.services.backup import caught_up, disk_refusal
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.proto.message_id import format_ids
from tarry.proto.reasons import Reason
from tarry.proto.version import VERSION
from tarry.replication.blocking import in_thread
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.state_machine.checkpoint import wheel_state
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.transaction_table import OPEN
from tarry.wheel.pending_records import PendingPart, PendingRecords
from tarry.wheel.state import Flags, Numbers, Times, UnknownMessage, WheelDamaged

PART_BYTES: Final = 2 << 20
"""Of the records in one response; a larger record is sent alone."""
UNREADABLE_IDS_MAX: Final = 1_000
"""Told at the end of an export; of more, how many there are."""
DISK_LOOK_PARTS: Final = 16
"""Parts between two looks at the free disk: 32 MiB."""
DUE_MS_MAX: Final = 2**62
TOO_SLOW: Final = (
    "was not taken within backup.stall_ms or backup.duration_ms_max, and files are deleted again"
)


@dataclass(slots=True)
class Hold:
    """The machine's files, none of which is deleted as long as it is open."""

    machine: Machine
    open: bool = True

    def close(self) -> None:
        """Let the files go."""
        if self.open:
            self.open = False
            self.machine.snapshots -= 1


class Export:
    """The messages that are asked for of a written checkpoint. For one thread at a time.

    Raises KeyError for a topic that the checkpoint has not got.
    """

    def __init__(self, folder: Path, written: bytes, asked: pb.ExportPendingRequest) -> None:
        stored = log_pb.Checkpoint.FromString(written)
        self.state = wheel_state(stored)
        self.index = stored.applied_index
        self._asked = asked
        self._folder = folder / "hours"
        live = [queue for queue in stored.queues if not queue.deleted]
        topics = {queue.topic: queue.queue for queue in live if not queue.group}
        names = asked.topics or sorted(name for name in topics if not name.startswith(DEAD_LETTERS))
        numbers = [topics[name] for name in names]
        count = max([len(self.state.topics), *(queue.queue + 1 for queue in stored.queues)])
        pending = np.zeros(count, np.int64)
        pending[: len(self.state.topics)] = self.state.topics
        kept = [place for place, number in enumerate(numbers) if pending[number]]
        self.topics = [names[place] for place in kept]
        self.pending = int(pending[numbers].sum()) if numbers else 0
        self._place = np.full(count, -1, np.int64)
        self._place[[numbers[place] for place in kept]] = np.arange(len(kept))
        of_topics = set(names)
        self.retries = sum(
            int(pending[queue.queue])
            for queue in live
            if (queue.group and queue.topic in of_topics)
            or (not asked.topics and queue.topic.startswith(DEAD_LETTERS))
        )
        states = map(log_pb.TransactionCheckpoint.FromString, stored.transactions)
        # Without topics also those of topics that were deleted: a commit makes one again.
        of_all = not asked.topics
        self.half_messages = sum(one.state == OPEN and (of_all or one.topic in of_topics) for one in states)

    def parts(self) -> Iterator[PendingPart]:
        """Yield what is asked for. Raises OSError, WheelDamaged."""
        return PendingRecords(self._folder, self.state).parts(self._wanted, PART_BYTES)

    def places(self, part: PendingPart) -> Numbers:
        """Return the positions of a part's topics among those of the head."""
        return self._place[queue_of(part.topic)].astype(np.uint32)

    def _wanted(self, topic: Numbers, due_ms: Times) -> Flags:
        asked = self._asked
        wanted: Flags = self._place[queue_of(topic)] >= 0
        return wanted & (due_ms >= asked.due_from_ms) & (due_ms < (asked.due_to_ms or DUE_MS_MAX))


class ExportCalls:
    """Answers for what is pending at the node itself, whoever leads."""

    def __init__(self, core: Core, authorizer: Authorizer, audit: Audit) -> None:
        self._core, self._authorizer, self._audit = core, authorizer, audit
        self._settings = core.config.backup
        self._opened: list[Hold] = []

    def methods(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        export = self._audit.stream("ExportPending", self._export)
        return {"ExportPending": grpc.unary_stream_rpc_method_handler(export)}

    async def _export(self, raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
        request = parse(pb.ExportPendingRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE) or self._refusal(request)
        if refusal is not None:
            await abort(context, refusal)
        hold = Hold(self._core.machine)
        hold.machine.snapshots += 1  # before the checkpoint, so that no later one deletes what it names
        self._opened.append(hold)
        loop, settings = asyncio.get_running_loop(), self._settings
        ending = loop.call_later(settings.duration_ms_max / 1_000, hold.close)
        try:
            async with aclosing(self._responses(request)) as responses:
                async for response in responses:
                    stalling = loop.call_later(settings.stall_ms / 1_000, hold.close)
                    yield response
                    stalling.cancel()
                    if not hold.open:
                        raise SnapshotFailed(TOO_SLOW)
        except KeyError as unknown:
            await abort(context, unknown_topic(str(unknown.args[0])))
        except (SnapshotFailed, WheelDamaged, OSError) as failed:
            if isinstance(failed, WheelDamaged):
                self._core.damage.indices.report_path(failed)
            text = f"the export {failed}" if isinstance(failed, SnapshotFailed) else f"no export: {failed}"
            await abort(context, _unavailable(text))
        finally:
            ending.cancel()
            hold.close()
            self._opened.remove(hold)

    async def _responses(self, request: pb.ExportPendingRequest) -> AsyncGenerator[bytes]:
        """Yield the export, serialized. Raises KeyError, SnapshotFailed, WheelDamaged, OSError."""
        core, folder = self._core, self._core.machine.folder
        await caught_up(core.machine, request.index_min)
        now_ms = core.time.now_ms()
        written = await core.checkpoints.write()
        if core.machine.folder != folder:
            raise SnapshotFailed("is of a state that another has taken the place of")
        export = await in_thread(partial(Export, folder, written, request))
        yield self._head(export, now_ms)
        end, number = pb.PendingEnd(retries=export.retries, half_messages=export.half_messages), 0
        async with aclosing(_ahead(export)) as read:
            async for part, octets in read:
                if number % DISK_LOOK_PARTS == 0 and (refusal := disk_refusal(core, "export")) is not None:
                    raise SnapshotFailed(f"ends: {refusal.text}")
                number += 1
                if octets is None:
                    mended = await self._mended(part, end)
                    end.messages += len(mended.records)
                    yield await in_thread(partial(_columns, mended, export))
                else:
                    end.messages += len(part.records)
                    yield octets
        whole = not request.due_from_ms and not request.due_to_ms
        if whole and end.messages + end.unreadable != export.pending:
            text = f"found {end.messages + end.unreadable} messages where {export.pending} are pending"
            raise SnapshotFailed(text)
        yield pb.ExportPendingResponse(end=end).SerializeToString()

    async def _mended(self, part: PendingPart, end: pb.PendingEnd) -> PendingPart:
        """Return a part with the records that a peer has whole; note the others as unreadable."""
        records, sound = list(part.records), part.sound.copy()
        rows = np.flatnonzero(~sound)
        try:
            found: Sequence[bytes | None] = await self._core.damage.read(
                part.place_hour[rows], part.place_index[rows]
            )
        except UnknownMessage:  # its hour has been dropped since: it is read in no other way any more
            found = [None] * len(rows)
        for row, record in zip(rows.tolist(), found, strict=True):
            if record is not None:
                records[row], sound[row] = record, True
        lost = np.flatnonzero(~sound)
        end.unreadable += len(lost)
        told = lost[: UNREADABLE_IDS_MAX - len(end.unreadable_ids)]
        end.unreadable_ids.extend(
            format_ids(self._core.config.shard, part.hour[told], part.global_index[told])
        )
        kept = np.flatnonzero(sound)
        return PendingPart(
            part.hour[kept],
            part.global_index[kept],
            part.place_hour[kept],
            part.place_index[kept],
            part.due_ms[kept],
            part.topic[kept],
            [records[row] for row in kept.tolist()],
            sound[kept],
        )

    def _head(self, export: Export, now_ms: int) -> bytes:
        head = pb.PendingHead(
            cluster=self._core.driver.cluster,
            node=self._core.config.node,
            version=VERSION,
            shard=self._core.config.shard,
            index=export.index,
            now_ms=now_ms,
            topics=export.topics,
            pending=export.pending,
        )
        return pb.ExportPendingResponse(head=head).SerializeToString()

    def _refusal(self, request: pb.ExportPendingRequest) -> Refusal | None:
        most = self._settings.exports_max
        if (unknown := unknown_field(request)) is not None:
            return unknown
        if (count := len(request.topics)) > EXPORT_TOPICS_MAX:
            text = f"{count} topics are named: name {EXPORT_TOPICS_MAX} at most, or none for all"
            return Refusal(Reason.EXPORT_INVALID, text)
        if len(set(request.topics)) < count:
            return Refusal(Reason.EXPORT_INVALID, "a topic is named twice: name each once")
        if any(topic.startswith(DEAD_LETTERS) for topic in request.topics):
            text = f"dead letters (topics {DEAD_LETTERS}…) are not exported: consume or redrive them"
            return Refusal(Reason.EXPORT_INVALID, text)
        if request.due_from_ms < 0 or request.due_to_ms < 0:
            return Refusal(
                Reason.EXPORT_INVALID, "due_from_ms and due_to_ms are ms since the epoch, 0 or more"
            )
        if sum(hold.open for hold in self._opened) >= most:
            text = f"{most} exports are under way at this node (backup.exports_max): try another, or later"
            return Refusal(Reason.OVERLOADED, text, retry_ms=1_000)
        return disk_refusal(self._core, "export")


async def _ahead(export: Export) -> AsyncGenerator[tuple[PendingPart, bytes | None]]:
    """Yield the parts, each with its response where all of its records are sound; read ahead by one.

    So the disk and whoever takes the parts do not wait for each other. Raises WheelDamaged, OSError.
    """
    parts = export.parts()

    def made() -> tuple[PendingPart, bytes | None] | None:
        part = next(parts, None)
        if part is None:
            return None
        return part, _columns(part, export) if bool(part.sound.all()) else None

    reading = asyncio.ensure_future(in_thread(made))
    try:
        while (found := await reading) is not None:
            reading = asyncio.ensure_future(in_thread(made))
            yield found
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _columns(part: PendingPart, export: Export) -> bytes:
    """Return a response with a part's messages, serialized."""
    columns = log_pb.PendingColumns(
        topic=export.places(part).tobytes(),
        hour=part.hour.tobytes(),
        global_index=part.global_index.tobytes(),
        due_ms=part.due_ms.tobytes(),
        records=part.records,
    )
    return log_pb.ExportedColumns(messages=columns).SerializeToString()


def _unavailable(text: str) -> Refusal:
    return Refusal(Reason.EXPORT_UNAVAILABLE, f"{text}; ask again, or another node", retry_ms=1_000)
