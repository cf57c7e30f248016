"""An export has what is pending as of one entry, whatever comes meanwhile, and is bounded as a backup is."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import BackupSettings, Limits
from tarry.node.edge.request_bytes import EXPORT_TOPICS_MAX
from tarry.node.services import pending_export
from tarry.node.services.backup import CATCH_UP_ENTRIES_MAX
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_transaction_pb2 as transaction_pb
from tarry.proto.message_id import MessageId, format_ids
from tarry.proto.record_times import STORED_BYTES, TIMES
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.loop_holds import Holds
from tests.node.lone_leader import RECORD, Leader, leader, until
from tests.simulation.edge import Context, StreamEnded

HOUR_MS = 3_600_000
BODY = Record.FromString(RECORD).body


def export(lead: Leader, **request: Any) -> AsyncIterator[bytes]:
    context: Any = Context()
    raw = pb.ExportPendingRequest(**request).SerializeToString()
    return lead._operator._export_calls._export(raw, context)


async def all_of(
    parts: AsyncIterator[bytes],
) -> tuple[pb.PendingHead, list[tuple[str, int, str]], pb.PendingEnd]:
    """Return the head, (id, due_ms, topic) of each message, and the end."""
    head, *messages, end = [pb.ExportPendingResponse.FromString(part) async for part in parts]
    rows = []
    for part in messages:
        columns = part.messages
        for record in columns.records:
            assert record.startswith(RECORD) and TIMES.fullmatch(record, len(RECORD))
        for row in range(len(columns.records)):
            name = str(MessageId(head.head.shard, columns.hour[row], columns.global_index[row]))
            rows.append((name, columns.due_ms[row], head.head.topics[columns.topic[row]]))
    assert end.end.messages == len(rows)
    return head.head, sorted(rows), end.end


def expected(answer: log_pb.ScheduledColumns, topics: list[str]) -> list[tuple[str, int, str]]:
    hour, index = (np.frombuffer(column, "<u4").tolist() for column in (answer.hour, answer.global_index))
    due_ms = np.frombuffer(answer.due_ms, "<i8").tolist()
    rows = zip(hour, index, due_ms, strict=True)
    return sorted(
        (str(MessageId(0, at, number)), due, topics[row % len(topics)])
        for row, (at, number, due) in enumerate(rows)
    )


async def test_it_is_of_one_entry_whole_whatever_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_export, "PART_BYTES", 10 * (len(RECORD) + STORED_BYTES))
    async with leader(tmp_path, Holds()) as lead:
        now_ms = lead.node.time.now_ms()
        due_ms = now_ms + HOUR_MS * (1 + np.arange(300) % 40)
        answer = await lead.schedule(300, due_ms, ["a", "b"])
        parts = export(lead)
        head = await anext(parts)
        index = lead.machine.applied_index
        await lead.schedule(50, due_ms[:50], ["a", "c"])
        cancel = np.frombuffer(answer.hour, "<u4"), np.frombuffer(answer.global_index, "<u4")
        await lead.propose(
            log_pb.CancelCommand(hour=cancel[0].tobytes(), global_index=cancel[1].tobytes(), now_ms=now_ms)
        )

        async def begun() -> AsyncIterator[bytes]:
            yield head
            async for part in parts:
                yield part

        told, rows, end = await all_of(begun())
        assert rows == expected(answer, ["a", "b"])
        assert (told.index, told.node, told.pending, list(told.topics)) == (index, "n1", 300, ["a", "b"])
        assert (end.retries, end.unreadable) == (0, 0)
        assert lead.machine.snapshots == 0
        told, rows, end = await all_of(export(lead))
        assert (told.pending, len(rows), list(told.topics)) == (50, 50, ["a", "c"])


class Model:
    """What is pending at a node: the topic, the due time and the body of each id."""

    def __init__(self, lead: Leader, seed: int) -> None:
        self.pending: dict[str, tuple[str, int, bytes]] = {}
        self._lead, self._rng = lead, random.Random(seed)
        self._number = 0

    async def change(self) -> None:
        """Schedule some, or cancel, reschedule, update or release one."""
        rng = self._rng
        works = (self._schedule, self._schedule, self._cancel, self._reschedule, self._update, self._release)
        work = rng.choice(works) if self.pending else self._schedule
        await work(rng.choice(list(self.pending)) if self.pending else "")

    async def _schedule(self, _: str) -> None:
        now_ms, topics, count = self._lead.node.time.now_ms(), ["a", "b"], self._rng.randint(2, 20)
        due_ms = now_ms + HOUR_MS + np.array([self._rng.randrange(50 * HOUR_MS) for _ in range(count)])
        answer = await self._lead.schedule(count, due_ms, topics)
        for name, due, topic in expected(answer, topics):
            self.pending[name] = topic, due, BODY

    async def _cancel(self, name: str) -> None:
        request = producer_pb.CancelRequest(ids=[name])
        assert isinstance(await self._lead.edge.cancel(request.SerializeToString()), bytes)
        del self.pending[name]

    async def _reschedule(self, name: str) -> None:
        due_ms = self._lead.node.time.now_ms() + HOUR_MS + self._rng.randrange(50 * HOUR_MS)
        request = producer_pb.RescheduleRequest(ids=[name], due_ms=[due_ms])
        assert isinstance(await self._lead.edge.reschedule(request.SerializeToString()), bytes)
        topic, _, body = self.pending[name]
        self.pending[name] = topic, due_ms, body

    async def _update(self, name: str) -> None:
        self._number += 1
        body = b"%d" % self._number
        request = producer_pb.UpdateRequest(id=name, body=body)
        assert isinstance(await self._lead.edge.update(request.SerializeToString()), bytes)
        topic, due_ms, _ = self.pending[name]
        self.pending[name] = topic, due_ms, body

    async def _release(self, name: str) -> None:
        request = producer_pb.RescheduleRequest(ids=[name], due_ms=[self._lead.node.time.now_ms() - 1])
        before = self._lead.machine.wheel.pending
        assert isinstance(await self._lead.edge.reschedule(request.SerializeToString()), bytes)
        del self.pending[name]
        await until(lambda: self._lead.machine.wheel.pending < before)


@pytest.mark.parametrize("seed", range(6))
async def test_it_equals_the_model_as_of_its_entry_whatever_is_changed_between_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(pending_export, "PART_BYTES", 5 * (len(RECORD) + STORED_BYTES))
    async with leader(tmp_path, Holds()) as lead:
        await until(lambda: lead.machine.level == 2)
        model = Model(lead, seed)
        for _ in range(4):
            for _ in range(12):
                await model.change()
            wanted, applied = dict(model.pending), lead.machine.applied_index
            found, head = {}, pb.PendingHead()
            async for raw in export(lead):
                part = pb.ExportPendingResponse.FromString(raw)
                if part.HasField("head"):
                    head = part.head
                columns = part.messages
                ids = format_ids(
                    0, np.array(columns.hour, np.uint32), np.array(columns.global_index, np.uint32)
                )
                for row, name in enumerate(ids):
                    body = Record.FromString(columns.records[row]).body
                    found[name] = head.topics[columns.topic[row]], columns.due_ms[row], body
                await model.change()
            assert head.index >= applied
            assert found == wanted


async def test_half_messages_are_left_out_and_counted_by_their_topics(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await until(lambda: lead.machine.level == 2)
        now_ms = lead.node.time.now_ms()
        for name, topic in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a")):
            prepare = log_pb.PrepareCommand(
                producer_group="shop", transaction=name, topic=topic, record=RECORD, delay_ms=HOUR_MS
            )
            prepare.check_ms, prepare.now_ms = now_ms + HOUR_MS, now_ms
            await lead.propose(prepare)
        row = lead.machine.transactions.named("shop", "4")
        assert row is not None
        one = row.state()
        commit = log_pb.EndCommand(number=4, end=transaction_pb.TRANSACTION_END_COMMIT, record=RECORD)
        commit.place_hour, commit.place_index, commit.now_ms = one.place_hour, one.place_index, now_ms
        await lead.propose(commit)
        for topics, halves in (((), 3), (("a",), 2), (("b",), 1)):
            _, rows, end = await all_of(export(lead, topics=topics))
            assert ([row[2] for row in rows], end.half_messages) == (["a"] * ("b" not in topics), halves)
            assert end.retries == 0
        await lead.delete_topic("b")
        _, _, end = await all_of(export(lead))
        assert end.half_messages == 3  # a commit makes the topic again


async def test_it_is_of_topics_and_due_times_that_are_asked_for(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        now_ms = lead.node.time.now_ms()
        due_ms = now_ms + HOUR_MS + np.arange(100)
        answer = await lead.schedule(100, due_ms, ["a", "b"])
        rows = expected(answer, ["a", "b"])
        _, found, _ = await all_of(export(lead, topics=["b"]))
        assert found == [row for row in rows if row[2] == "b"]
        begin, end = int(due_ms[10]), int(due_ms[20])
        _, found, _ = await all_of(export(lead, due_from_ms=begin, due_to_ms=end))
        assert found == [row for row in rows if begin <= row[1] < end]
        with pytest.raises(StreamEnded, match="there is no topic 'other'"):
            await all_of(export(lead, topics=["other"]))


async def test_a_damaged_record_that_no_peer_has_is_left_out_and_named(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        due_ms = np.full(5, lead.node.time.now_ms() + HOUR_MS)
        answer = await lead.schedule(5, due_ms)
        damage_the_last_record(tmp_path)
        _, found, end = await all_of(export(lead))
        rows = expected(answer, ["t"])
        assert (found, end.unreadable, list(end.unreadable_ids)) == (rows[:-1], 1, [rows[-1][0]])


@pytest.mark.parametrize(
    ("request_fields", "text"),
    [
        ({"topics": [f"t{number}" for number in range(EXPORT_TOPICS_MAX + 1)]}, "name 128 at most"),
        ({"topics": ["t", "t"]}, "named twice"),
        ({"topics": ["dlq.g.t"]}, "dead letters"),
        ({"due_from_ms": -1}, "0 or more"),
        ({"due_to_ms": -1}, "0 or more"),
        ({"index_min": CATCH_UP_ENTRIES_MAX + 1_000}, "far before"),
    ],
)
async def test_what_cannot_be_exported_is_refused(
    tmp_path: Path, request_fields: dict[str, Any], text: str
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        with pytest.raises(StreamEnded, match=text):
            await all_of(export(lead, **request_fields))
        assert lead.machine.snapshots == 0


async def test_so_many_topics_may_be_named(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        names = [f"t{number:03}" for number in range(EXPORT_TOPICS_MAX)]
        due_ms = np.full(EXPORT_TOPICS_MAX, lead.node.time.now_ms() + HOUR_MS)
        await lead.schedule(EXPORT_TOPICS_MAX, due_ms, names)
        head, rows, _ = await all_of(export(lead, topics=names))
        assert list(head.topics) == sorted(row[2] for row in rows) == names


async def test_so_many_are_under_way_and_one_that_is_not_taken_ends_and_lets_files_be_deleted(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds(), backup=BackupSettings(stall_ms=50)) as lead:
        await lead.schedule(3, np.full(3, lead.node.time.now_ms() + HOUR_MS))
        first = export(lead)
        await anext(first)
        assert lead.machine.snapshots == 1
        with pytest.raises(StreamEnded, match=r"1 exports are under way at this node \(backup.exports_max\)"):
            await anext(export(lead))
        await lead_lets_go(lead)
        await anext(export(lead))  # there is room again, though the first one's call is still open
        with pytest.raises(StreamEnded, match="was not taken within"):
            await anext(first)


async def test_one_that_takes_too_long_ends_however_steadily_it_is_taken(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), backup=BackupSettings(duration_ms_max=1)) as lead:
        await lead.schedule(3, np.full(3, lead.node.time.now_ms() + HOUR_MS))
        with pytest.raises(StreamEnded, match=r"backup\.duration_ms_max"):
            parts = export(lead)
            await anext(parts)
            await lead_lets_go(lead)
            await all_of(parts)


async def test_a_part_is_read_while_the_one_before_is_taken_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_export, "PART_BYTES", 10 * (len(RECORD) + STORED_BYTES))
    read: list[int] = []
    columns = pending_export._columns

    def noted(part: Any, of: Any) -> bytes:
        read.append(len(part.records))
        return columns(part, of)

    monkeypatch.setattr(pending_export, "_columns", noted)
    async with leader(tmp_path, Holds()) as lead:
        await lead.schedule(50, np.full(50, lead.node.time.now_ms() + HOUR_MS))
        parts = export(lead)
        await anext(parts)
        for taken in range(1, 5):
            await anext(parts)
            await until(lambda taken=taken: len(read) > taken)  # type: ignore[misc]
            assert len(read) == taken + 1
        _, end = [pb.ExportPendingResponse.FromString(part) async for part in parts]
        assert (end.end.messages, read) == (50, [10] * 5)


async def test_it_is_refused_where_the_disk_is_full(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    least = Limits(disk_free_bytes_min=2 * disk.f_blocks * disk.f_frsize)
    async with leader(tmp_path, Holds(), limits=least) as lead:
        with pytest.raises(StreamEnded, match="no export: the node's disk has"):
            await all_of(export(lead))


def damage_the_last_record(folder: Path) -> None:
    (log,) = [path for path in folder.glob("**/hours/*/delay.log") if path.stat().st_size]
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1
    log.write_bytes(octets)


async def lead_lets_go(lead: Leader) -> None:
    await until(lambda: lead.machine.snapshots == 0)
