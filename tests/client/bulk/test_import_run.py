"""An import takes each row once, wherever it was killed, and accounts for every row."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tarry.client.aio import connect
from tarry.client.bulk import import_run
from tarry.client.bulk.import_run import ClusterDiffers, CountDiffers, UnsureSteps
from tarry.client.bulk.mapping import UNSURE, Fault
from tarry.client.bulk.progress import STEP_BATCHES, Progress, ProgressClosed, ProgressDiffers
from tarry.client.bulk.values import Columns, Files, InvalidSource
from tarry.client.errors import OutcomeUnknown, Refused
from tarry.node.config import Limits
from tarry.proto.tarry_log_pb2 import RaiseLevelCommand, ScheduleColumns
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.producer_answers import Producers
from tests.client.bulk.importing import (
    BATCH_ROWS,
    HOUR_MS,
    Killed,
    KilledProgress,
    Killer,
    Target,
    imported,
    source_file,
)
from tests.node.lone_leader import leader

ROWS = 2 * STEP_BATCHES * BATCH_ROWS + 5
FORGOTTEN_POINTS_MIN = 10
"""Of a start that asks a cluster which has forgotten it, with a choice: the probes and what it notes. They
are more where fewer batches of the first step have had their answer."""


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    async with leader(tmp_path / "node", Holds(), limits=Limits(tags_max=2, body_bytes_max=100)) as lead:
        await lead.propose(RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))  # for idempotency keys
        yield Target(lead)


def rows_of(target: Target, count: int = ROWS) -> list[dict[str, Any]]:
    """Return rows of which some have idempotency keys, and some are refused: at once, or by the cluster."""
    due_ms = target.lead.node.time.now_ms() + 24 * HOUR_MS
    rows = [{"id": f"job-{row}", "due": due_ms + 1_000 * row, "body": b"%d" % row} for row in range(count)]
    for row in rows:
        number = int(row["body"])
        row["idempotency_key"] = f"key-{number}" if number % 5 == 0 else ""
        row["tags"] = ["a", "b", "c"] if number % 17 == 4 else []
        if number % 19 == 7:
            row["due"] = None
        if number % 23 == 8:
            row["body"] = b"x" * 101
    return rows


def expected(rows: list[dict[str, Any]]) -> Counter[bytes]:
    return Counter(r["body"] for r in rows if r["due"] and len(r["tags"]) <= 2 and len(r["body"]) <= 100)


def id_map(folder: Path) -> list[dict[str, Any]]:
    return [
        row for path in sorted((folder / "ids").glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]


async def test_each_row_is_taken_or_refused_and_the_id_map_says_which(target: Target, tmp_path: Path) -> None:
    rows = rows_of(target)
    path = source_file(tmp_path / "jobs.parquet", rows)
    *_, last = await imported(target, path, tmp_path / "progress", "t")
    wanted = expected(rows)
    assert await target.bodies("t") == wanted
    assert (last.rows, last.total, last.taken, last.done) == (ROWS, ROWS, wanted.total(), True)
    assert (last.refused, last.skipped) == (ROWS - wanted.total(), 0)
    ids = id_map(tmp_path / "progress")
    assert sorted(row["row"] for row in ids) == list(range(ROWS))
    for row in ids:
        of = rows[row["row"]]
        taken = of["body"] in wanted and of["due"] is not None and len(of["tags"]) <= 2
        assert (row["new_id"] is not None, row["refused"] is None) == (taken, taken)
        if taken:
            assert (row["id"], row["due_ms"], row["overdue"]) == (of["id"], of["due"], False)
    reasons = Counter(str(row["refused"]).split(":")[0] for row in ids if row["refused"])
    assert set(reasons) == {"TOO_MANY_TAGS", "DUE_INVALID", "RECORD_TOO_LARGE"}


async def test_killed_at_any_point_it_goes_on_and_doubles_nothing(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_run, "STEP_BATCHES", 2)
    monkeypatch.setattr(import_run, "IN_FLIGHT_MAX", 3)
    rows = rows_of(target, 4 * BATCH_ROWS + 2)
    path = source_file(tmp_path / "jobs.parquet", rows)
    counting = Killer()
    await imported(target, path, tmp_path / "progress-all", "all", counting)
    assert counting.points > 60
    for at in range(1, counting.points + 1):
        topic, folder = f"at-{at}", tmp_path / f"progress-{at}"
        with pytest.raises(Killed):
            await imported(target, path, folder, topic, Killer(at))
        again = at if at % 2 else 1 + at % 7
        try:  # and at another point of the second start: soon, or behind what the first one had begun
            await imported(target, path, folder, topic, Killer(again))
        except Killed:
            await imported(target, path, folder, topic)
        assert await target.bodies(topic) == expected(rows), f"killed at {at}, then at {again}"


async def test_a_batch_is_serialized_once_where_no_row_of_it_is_refused(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    requests = import_run.requests

    def counted(batch: Any, *more: Any) -> Any:
        made.append(batch.number)
        return requests(batch, *more)

    monkeypatch.setattr(import_run, "requests", counted)
    due_ms = target.lead.node.time.now_ms() + HOUR_MS
    keys = [str(row) if row % 2 else "" for row in range(12)]
    rows = [{"due": due_ms, "body": b"x", "idempotency_key": key} for key in keys]
    await imported(target, source_file(tmp_path / "jobs.parquet", rows), tmp_path / "progress", "t")
    assert sorted(made) == [0, 1, 2, 3]


async def test_rows_that_the_same_bound_refuses_cost_no_request_each(target: Target, tmp_path: Path) -> None:
    now_ms = target.lead.node.time.now_ms()
    far_ms = now_ms + Limits().due_horizon_ms + HOUR_MS
    rows = [{"due": now_ms + HOUR_MS, "body": b"x" * (100 + row % 2 * row)} for row in range(40)]
    rows += [{"due": far_ms + row, "body": b"y"} for row in range(40)]
    rows.append({"due": now_ms + HOUR_MS, "body": b"z"})
    path, folder = source_file(tmp_path / "jobs.parquet", rows), tmp_path / "progress"
    *_, last = await imported(target, path, folder, "t", batch_rows=100)
    assert (last.taken, last.refused) == (21, 60)
    assert await target.bodies("t") == Counter({b"x" * 100: 20, b"z": 1})
    refused = {row["row"]: str(row["refused"]).split(":")[0] for row in id_map(folder) if row["refused"]}
    assert refused == {
        **dict.fromkeys(range(1, 40, 2), "RECORD_TOO_LARGE"),
        **dict.fromkeys(range(40, 80), "DUE_TOO_FAR"),
    }
    assert target.sent == 4  # the probe, one refused for each bound, and what is left
    progress = Progress(folder)
    assert not progress.refused  # no memory of what is done
    progress.close()


async def test_rows_that_are_overdue_are_scheduled_at_once_or_skipped(target: Target, tmp_path: Path) -> None:
    now_ms = target.lead.node.time.now_ms()
    rows = [{"due": now_ms + (HOUR_MS if row % 2 else -HOUR_MS), "body": b"%d" % row} for row in range(20)]
    path = source_file(tmp_path / "jobs.parquet", rows)
    *_, last = await imported(target, path, tmp_path / "all", "all")
    assert (last.taken, last.skipped) == (20, 0)
    assert Counter(row["overdue"] for row in id_map(tmp_path / "all")) == {True: 10, False: 10}
    *_, last = await imported(target, path, tmp_path / "some", "some", overdue_before_ms=now_ms)
    assert (last.rows, last.taken, last.skipped) == (20, 10, 10)
    assert await target.bodies("some") == Counter(b"%d" % row for row in range(20) if row % 2)


async def test_a_finished_import_is_not_repeated(target: Target, tmp_path: Path) -> None:
    path = source_file(tmp_path / "jobs.parquet", rows_of(target))
    *_, first = await imported(target, path, tmp_path / "progress", "t")
    sent, bodies = target.sent, await target.bodies("t")
    assert await imported(target, path, tmp_path / "progress", "t") == [first]
    assert (target.sent, await target.bodies("t")) == (sent + 1, bodies)  # the probe


@pytest.mark.parametrize("state", ["finished", "step done", "step begun"])
async def test_another_cluster_is_not_taken_for_the_one_that_has_what_is_done(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    path, folder = source_file(tmp_path / "jobs.parquet", rows_of(target)), tmp_path / "progress"
    if state == "finished":
        await imported(target, path, folder, "t")
    else:
        if state == "step done":
            monkeypatch.setattr(import_run, "IN_FLIGHT_MAX", 1)
        await stopped_behind_the_first_step(target, path, folder)
    before = await target.bodies("t")
    async with leader(tmp_path / "other", Holds(), limits=Limits(tags_max=2, body_bytes_max=100)) as lead:
        await lead.propose(RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
        other = Target(lead)
        kind = UnsureSteps if state == "step begun" else ClusterDiffers
        for _ in range(2):
            with pytest.raises(kind, match="give another folder with --progress"):
                await imported(other, path, folder, "t")
        assert not await other.bodies("t")
    *_, last = await imported(target, path, folder, "t")  # the first one knows it
    assert last.done and before and await target.bodies("t") == expected(rows_of(target))


async def stopped_behind_the_first_step(target: Target, path: Path, folder: Path) -> None:
    end_step = KilledProgress.end_step

    def killed(self: KilledProgress, *arguments: Any) -> None:
        end_step(self, *arguments)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KilledProgress, "end_step", killed)
        with pytest.raises(Killed):
            await imported(target, path, folder, "t")


async def test_a_source_without_a_message_is_accounted_for(target: Target, tmp_path: Path) -> None:
    path = source_file(tmp_path / "jobs.parquet", [{"due": "?", "body": b"x"}] * 5)
    *_, last = await imported(target, path, tmp_path / "progress", "t")
    assert (last.rows, last.taken, last.refused, target.sent) == (5, 0, 5, 0)


async def test_a_folder_of_another_import_or_in_use_is_refused(target: Target, tmp_path: Path) -> None:
    path = source_file(tmp_path / "jobs.parquet", rows_of(target, 5))
    await imported(target, path, tmp_path / "progress", "t")
    with pytest.raises(ProgressDiffers, match="with other of: 'test', now 'other'"):
        await imported(target, path, tmp_path / "progress", "t", what={"of": "other"})
    progress = Progress(tmp_path / "progress")
    with pytest.raises(ProgressDiffers, match="in use by another import"):
        await imported(target, path, tmp_path / "progress", "t")
    progress.close()


@pytest.mark.parametrize("told", [None, b"", b"[]", b'{"version": 0}'])
async def test_a_folder_that_does_not_say_what_is_imported_is_not_gone_on_with(
    target: Target, tmp_path: Path, told: bytes | None
) -> None:
    path = source_file(tmp_path / "jobs.parquet", rows_of(target, 5))
    await imported(target, path, tmp_path / "progress", "t")
    noted = tmp_path / "progress" / "import.json"
    before = noted.read_bytes()
    noted.unlink()
    if told is not None:
        noted.write_bytes(told)
    sent = target.sent
    with pytest.raises(ProgressDiffers, match="begin anew with another folder"):
        await imported(target, path, tmp_path / "progress", "t")
    assert target.sent == sent
    noted.write_bytes(before)
    assert (await imported(target, path, tmp_path / "progress", "t"))[-1].done  # it is not held any more


async def stopped_in_the_first_step(target: Target, path: Path, folder: Path, topic: str) -> None:
    send, begun = Target.send, target.sent

    async def killed(self: Target, octets: bytes, killer: Killer) -> Any:
        if self.sent - begun > STEP_BATCHES // 2:
            killer.at = killer.points
        return await send(self, octets, killer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "send", killed)
        with pytest.raises(Killed):
            await imported(target, path, folder, topic)
    await target.lead.schedule(1, np.array([2**42]), ["other"])  # behind what was under way


def forget_producers(target: Target) -> None:
    """Have the node know no producer, as a cluster that has forgotten them."""
    table: Any = target.lead.machine._scheduler._producers
    Producers.free(table)


@pytest.mark.parametrize("choice", ["send", "skip"])
async def test_a_cluster_that_has_forgotten_the_import_is_sent_nothing_that_is_unsure_unasked(
    target: Target, tmp_path: Path, choice: Any
) -> None:
    rows = [{**row, "idempotency_key": ""} for row in rows_of(target)]
    path = source_file(tmp_path / "jobs.parquet", rows)
    folder = tmp_path / "progress"
    await stopped_in_the_first_step(target, path, folder, "t")
    before = await target.bodies("t")
    assert before
    forget_producers(target)
    with pytest.raises(Killed):  # behind the probe, which the cluster knows again then
        await imported(target, path, folder, "t", Killer(2))
    for _ in range(2):
        with pytest.raises(UnsureSteps, match="--unsure skip to leave them out, or --unsure send"):
            await imported(target, path, folder, "t")
    assert await target.bodies("t") == before
    *_, last = await imported(target, path, folder, "t", unsure=choice)
    after = await target.bodies("t")
    marked = [record for record in await target.pending("t") if UNSURE in record.properties]
    if choice == "send":
        assert set(after) == set(expected(rows)) and set(after.values()) <= {1, 2}
        assert {record.body for record in marked} >= set(before)
        assert len(marked) <= 2 * STEP_BATCHES * BATCH_ROWS
    else:
        assert set(after.values()) == {1} and not marked
        unsure = [row for row in id_map(folder) if str(row["refused"]).startswith("UNSURE")]
        assert len(unsure) + last.taken + sum(len(r["tags"]) > 2 or not r["due"] for r in rows) >= ROWS - 12
    assert last.rows == last.taken + last.refused == ROWS


@pytest.mark.parametrize("choice", ["send", "skip"])
async def test_killed_while_it_notes_that_it_is_forgotten_it_sends_nothing_unasked_and_nothing_thrice(
    target: Target, tmp_path: Path, choice: Any
) -> None:
    rows = [{**row, "idempotency_key": ""} for row in rows_of(target, STEP_BATCHES * BATCH_ROWS)]
    path = source_file(tmp_path / "jobs.parquet", rows)
    for at in count(1):
        topic, folder = f"at-{at}", tmp_path / f"progress-{at}"
        await stopped_in_the_first_step(target, path, folder, topic)
        before = await target.bodies(topic)
        forget_producers(target)
        with pytest.raises((Killed, UnsureSteps)):
            await imported(target, path, folder, topic, Killer(at))
        with pytest.raises(UnsureSteps):
            await imported(target, path, folder, topic)
        assert await target.bodies(topic) == before
        try:
            await imported(target, path, folder, topic, Killer(at), unsure=choice)
        except Killed:
            pass
        else:
            assert at > FORGOTTEN_POINTS_MIN, at
            return
        *_, last = await imported(target, path, folder, topic, unsure=choice)
        after = await target.bodies(topic)
        assert last.rows == last.taken + last.refused == len(rows)
        if choice == "send":
            assert set(after) == set(expected(rows)) and max(after.values()) == 2, f"killed at {at}"
        else:
            assert set(after.values()) == {1}, f"killed at {at}"


@pytest.mark.parametrize("choice", ["send", "skip"])
async def test_rows_whose_keys_count_no_more_are_not_sent_again_unasked(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: Any
) -> None:
    rows = rows_of(target)
    path, folder = source_file(tmp_path / "jobs.parquet", rows), tmp_path / "progress"
    await stopped_in_the_first_step(target, path, folder, "t")
    before = await target.bodies("t")
    now_ms = import_run._now_ms()
    monkeypatch.setattr(import_run, "_now_ms", lambda: now_ms + 3 * 24 * HOUR_MS)
    with pytest.raises(UnsureSteps, match=r"rows with idempotency keys, from row \d+ on.*--unsure skip"):
        await imported(target, path, folder, "t")
    assert set((await target.bodies("t")).values()) == {1}
    *_, last = await imported(target, path, folder, "t", unsure=choice)
    bodies, ids = await target.bodies("t"), id_map(folder)
    assert before <= bodies <= expected(rows) and set(bodies.values()) == {1}
    assert last.rows == last.taken + last.refused == ROWS
    keyed = {row["row"] for row in ids if rows[row["row"]]["idempotency_key"]}
    reasons = {row["row"]: str(row["refused"]).split(":")[0] for row in ids}
    unkeyed = {row for row in reasons if row not in keyed and reasons[row] == "UNSURE"}
    assert not unkeyed
    if choice == "skip":
        assert any(reasons[row] == "UNSURE" for row in keyed)
    else:  # those that are there yet are not changed, the others are marked
        assert any(reasons[row] == "IDEMPOTENCY_CONFLICT" for row in keyed)
        marked = [record for record in await target.pending("t") if UNSURE in record.properties]
        assert all(record.idempotency_key for record in marked)


async def test_an_answer_that_is_forgotten_is_not_taken_for_a_refusal(target: Target, tmp_path: Path) -> None:
    path = source_file(tmp_path / "jobs.parquet", [{**row, "idempotency_key": ""} for row in rows_of(target)])
    folder = tmp_path / "progress"
    await stopped_in_the_first_step(target, path, folder, "t")
    table: Any = target.lead.machine._scheduler._producers
    for known in table._table.values():
        known.forget(max(known.answers))
    with pytest.raises(UnsureSteps):
        await imported(target, path, folder, "t")
    with pytest.raises(UnsureSteps):
        await imported(target, path, folder, "t")
    *_, last = await imported(target, path, folder, "t", unsure="send")
    assert last.done


async def test_a_refusal_of_no_row_stops_the_import_and_a_later_start_goes_on(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(target)
    path = source_file(tmp_path / "jobs.parquet", rows)
    send = Target.send

    async def full(self: Target, octets: bytes, killer: Killer) -> Any:
        if ScheduleColumns.FromString(octets).sequence >= 20:
            raise Refused("TOPIC_FULL", "the topic has its pending_max")
        return await send(self, octets, killer)

    monkeypatch.setattr(Target, "send", full)
    with pytest.raises(Refused, match="pending_max"):
        await imported(target, path, tmp_path / "progress", "t")
    monkeypatch.undo()
    *_, last = await imported(target, path, tmp_path / "progress", "t")
    assert last.done and await target.bodies("t") == expected(rows)


async def test_an_answer_for_other_messages_and_a_lost_row_of_the_id_map_are_noticed(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source_file(tmp_path / "jobs.parquet", rows_of(target))
    send = Target.send

    async def shorter(self: Target, octets: bytes, killer: Killer) -> Any:
        answer = await send(self, octets, killer)
        if len(answer.hour) > 8:
            answer.hour = answer.hour[4:]
        return answer

    monkeypatch.setattr(Target, "send", shorter)
    with pytest.raises(OutcomeUnknown, match="was answered for 2 messages, and has 3"):
        await imported(target, path, tmp_path / "progress", "t")
    monkeypatch.undo()
    await imported(target, path, tmp_path / "progress", "t")
    first = min((tmp_path / "progress" / "ids").glob("step-*"))
    pq.write_table(pq.read_table(first).slice(1), first)
    (tmp_path / "progress" / "result.json").unlink()
    with pytest.raises(CountDiffers):
        await imported(target, path, tmp_path / "progress", "t")


async def test_a_source_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    async with connect(["127.0.0.1:1"]) as client:
        with pytest.raises(InvalidSource, match="name one"):
            await anext(client.bulk().import_rows(Files(tmp_path / "none.csv"), tmp_path / "progress"))
    assert not (tmp_path / "progress").exists()


def test_half_a_line_of_a_refused_row_spoils_none_that_is_noted_later(tmp_path: Path) -> None:
    noted = [Fault(row, "TOPIC_INVALID", "no topic") for row in range(3)]
    for fault in noted:
        progress = Progress(tmp_path)
        progress.refuse([fault])
        progress.close()
        with (tmp_path / "refused.jsonl").open("a") as file:
            file.write('{"row": 7, "rea')
    progress = Progress(tmp_path)
    assert list(progress.refused.values()) == noted
    progress.close()


def test_threads_of_an_import_that_was_broken_off_write_nothing_behind_its_end(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.close()
    for late in (partial(progress.begin, {}), partial(progress.begin_step, 0), partial(progress.finish, {})):
        with pytest.raises(ProgressClosed):
            late()
    assert {path.name for path in tmp_path.iterdir()} == {"ids", "lock"}


class HeldWrites:
    """Holds all syncs until they may end, which is so behind the block."""

    def __init__(self) -> None:
        self.begun, self.may_end = Event(), Event()
        self.in_time: list[bool] = []

    def sync(self, _: int) -> None:
        self.begun.set()
        self.in_time.append(self.may_end.wait(10))

    def __enter__(self) -> HeldWrites:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_end.set()


class Asked:
    """A lock that says when somebody asks for it."""

    def __init__(self) -> None:
        self.lock, self.asked = Lock(), Event()

    def __enter__(self) -> None:
        self.asked.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_a_folder_is_nobody_elses_while_a_thread_is_in_the_middle_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(tmp_path)
    progress._writes = writes = Asked()  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as threads, HeldWrites() as held:
        monkeypatch.setattr("tarry.client.bulk.progress.os.fsync", held.sync)
        written = threads.submit(progress.begin, {})
        assert held.begun.wait(10)
        writes.asked.clear()
        closed = threads.submit(progress.close)
        assert writes.asked.wait(10)
        with pytest.raises(ProgressDiffers, match="in use"):
            Progress(tmp_path)
        held.may_end.set()
        written.result()
        closed.result()
    progress = Progress(tmp_path)
    assert progress.told == {"version": 1}
    progress.close()


async def test_an_import_that_is_broken_off_in_the_middle_of_a_write_holds_up_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = source_file(tmp_path / "jobs.parquet", [{"id": "a", "due": 1, "body": b"x"}])
    async with connect(["127.0.0.1:1"]) as client:
        with HeldWrites() as held:
            monkeypatch.setattr("tarry.client.bulk.progress.os.fsync", held.sync)
            states = client.bulk().import_rows(Files(path), tmp_path / "progress", Columns(topic="t"))
            importing = asyncio.ensure_future(anext(states))
            assert await asyncio.to_thread(held.begun.wait, 10)
            importing.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            with pytest.raises(ProgressDiffers, match="in use"):
                Progress(tmp_path / "progress")
        with pytest.raises(asyncio.CancelledError):
            await importing
    Progress(tmp_path / "progress").close()
    assert held.in_time and all(held.in_time) and not caplog.records


def test_a_folder_that_is_closed_twice_closes_no_file_of_others(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.close()
    with (tmp_path / "other").open("wb") as other:  # has the number that the lock had
        progress.close()
        other.write(b"x")
