"""Search of a ledger for one message: what was told of it, each row once, and how far the search came."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.node.ledger import history, history_search
from tarry.node.ledger.export import export
from tarry.node.ledger.export_request import Place
from tarry.node.ledger.history import Part, Row, Wanted, search
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.tarry_operator_pb2 import ExportLedgerRequest
from tarry.replication.state_machine import commands
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, release, schedule, subscribe

EVER = (0, 2**62)
COUNT = 60


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    """Several closed segments and an open one, of messages that are released, and acknowledged in part."""
    made = Replica(tmp_path, segment_rows_max=3)
    made.apply(subscribe())
    for step in range(COUNT // 4):
        now_ms = NOW_MS + 1_000 * step
        made.apply(schedule([now_ms + 1 + n % 2 for n in range(4)], now_ms=now_ms))
        made.apply(release(now_ms + 500, now_ms=now_ms + 500))
        made.apply(acked(4 * step, now_ms + 600))
        await made.ledger.write()
        if step % 3:
            await made.ledger.until_closed()
    await made.ledger.write()
    yield made
    await made.ledger.until_closed()
    made.machine.close()


def acked(offset: int, now_ms: int) -> bytes:
    column = np.array([offset], "<u8").tobytes()
    return commands.encode(log_pb.AckCommand(group="g", queue=0, offset=column, now_ms=now_ms))


def sources(replica: Replica) -> list[Any]:
    disk = replica.ledger.disk
    return [*disk.segments, *disk.sealed, disk.open]


def copied(one: Any) -> Any:
    """As the process that searches is told it."""
    return history_search._found(json.loads(json.dumps(history_search._plain(one))))


def all_rows(replica: Replica) -> list[Row]:
    """What an export tells, in its order."""
    found = []
    responses = export(sources(replica), ExportLedgerRequest(open=True), Place(), 10_000)
    for response in responses:
        rows = pa.ipc.open_stream(response.rows).read_all().to_pylist()
        found += [{name: value for name, value in row.items() if value is not None} for row in rows]
    return found


def found(replica: Replica, hour: int, index: int, times: tuple[int, int] = EVER) -> tuple[list[Row], Part]:
    parts = list(search(sources(replica), Wanted(hour, index, *times)))
    assert all(before.since_ms >= after.since_ms for before, after in pairwise(parts))
    rows = [row for part in parts for row in part.rows]
    return sorted(rows, key=lambda row: (row["index"], row["position"])), parts[-1]


async def test_of_every_message_all_rows_are_found_and_no_others(replica: Replica) -> None:
    rows = all_rows(replica)
    messages = {(row["hour"], row["global_index"]) for row in rows if "hour" in row}
    assert len(messages) == COUNT
    for message in messages:
        expected = [row for row in rows if (row.get("hour"), row.get("global_index")) == message]
        told, last = found(replica, *message)
        assert told == expected
        assert last.complete
        assert last.from_beginning
        assert [row["kind"] for row in told][:2] == [Kind.SCHEDULED, Kind.RELEASED]


async def test_the_search_ends_at_the_scheduling_of_the_message(replica: Replica) -> None:
    rows = [row for row in all_rows(replica) if row["kind"] == Kind.SCHEDULED]
    newest, oldest = rows[-1], rows[0]
    _, of_newest = found(replica, newest["hour"], newest["global_index"])
    _, of_oldest = found(replica, oldest["hour"], oldest["global_index"])
    assert of_newest.rows_looked < of_oldest.rows_looked / 3
    assert of_newest.from_beginning


async def test_an_unknown_message_has_no_rows_and_all_is_looked_through(replica: Replica) -> None:
    told, last = found(replica, 1, 1)
    assert (told, last.complete, last.from_beginning, last.rows_left) == ([], True, False, 0)
    assert last.rows_looked == len(all_rows(replica))


async def test_only_rows_of_the_time_asked_for_are_told(replica: Replica) -> None:
    first = all_rows(replica)[1]
    times = first["at_ms"] + 1, first["at_ms"] + 550
    told, last = found(replica, first["hour"], first["global_index"], times)
    assert [row["kind"] for row in told] == [Kind.RELEASED]
    assert last.complete
    assert not last.from_beginning


async def test_a_message_with_more_rows_than_the_bound_is_told_in_parts(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = all_rows(replica)[1]
    whole, _ = found(replica, first["hour"], first["global_index"])
    monkeypatch.setattr(history, "ROWS_MAX", 2)
    told, until_ms = [], EVER[1]
    for _ in range(len(whole) + 2):
        parts, last = found(replica, first["hour"], first["global_index"], (0, until_ms))
        told += parts
        if last.complete:
            break
        until_ms = last.since_ms
    assert {(row["index"], row["position"]) for row in told} == {
        (row["index"], row["position"]) for row in whole
    }


async def test_a_segment_that_is_closed_meanwhile_with_more_rows_is_read_where_it_is(
    replica: Replica,
) -> None:
    replica.apply(schedule([NOW_MS + 900_000], now_ms=NOW_MS + 90_000))
    await replica.ledger.write()
    last = all_rows(replica)[-1]
    before = [copied(one) for one in sources(replica)]
    replica.apply(acked(2, NOW_MS + 91_000))
    await replica.ledger.close()
    assert before[-1].covered == last["index"] < replica.ledger.disk.segments[-1][1]["last_index"]
    parts = list(search(before, Wanted(last["hour"], last["global_index"], *EVER)))
    assert [row["index"] for part in parts for row in part.rows] == [last["index"]]
    assert parts[-1].complete


async def test_closed_segments_that_are_deleted_meanwhile_are_passed_over(replica: Replica) -> None:
    last = all_rows(replica)[-1]
    await replica.ledger.close()
    before = sources(replica)[:-1]
    for path, _ in replica.ledger.disk.segments:
        path.unlink()
    parts = list(search(before, Wanted(last["hour"], last["global_index"], *EVER)))
    assert [row for part in parts for row in part.rows] == []


@pytest.mark.parametrize("apart", [False, True])
async def test_where_the_open_segment_is_closed_and_deleted_meanwhile_the_search_says_so(
    replica: Replica, apart: bool
) -> None:
    replica.apply(schedule([NOW_MS + 900_000], now_ms=NOW_MS + 90_000))
    await replica.ledger.write()
    last = all_rows(replica)[-1]
    before = [copied(one) for one in sources(replica)]
    await replica.ledger.close()
    for path, _ in replica.ledger.disk.segments:
        path.unlink()
    with pytest.raises(history_search.SearchFailed, match="try again"):
        async for part in history_search.parts(
            before, (last["hour"], last["global_index"]), EVER, apart=apart
        ):
            assert not part["complete"]


async def test_a_process_of_its_own_tells_the_same(replica: Replica) -> None:
    last = all_rows(replica)[-1]
    message = last["hour"], last["global_index"]
    own = [part async for part in history_search.parts(sources(replica), message, EVER, apart=False)]
    apart = [part async for part in history_search.parts(sources(replica), message, EVER, apart=True)]
    assert own == apart
    assert own[-1]["complete"]


async def test_many_rows_are_told_in_pieces_that_together_are_all(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = all_rows(replica)[1]
    message = first["hour"], first["global_index"]
    whole, last = found(replica, *message)
    monkeypatch.setattr(history_search, "PIECE_ROWS", 1)
    parts = [part async for part in history_search.parts(sources(replica), message, EVER, apart=False)]
    assert max(len(part["rows"]) for part in parts) == 1
    assert sorted((row["index"], row["position"]) for part in parts for row in part["rows"]) == [
        (row["index"], row["position"]) for row in whole
    ]
    assert [part["complete"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1]["rows_looked"] == last.rows_looked


async def test_what_the_ledger_lacks_is_told(tmp_path: Path) -> None:
    made = Replica(tmp_path, segment_rows_max=100)
    made.apply(schedule([NOW_MS + 1]))
    made.ledger._buffer.gap(1, 1, "SNAPSHOT", NOW_MS, 1)
    await made.ledger.write()
    _, last = found(made, 1, 1)
    parts = list(search(sources(made), Wanted(1, 1, *EVER)))
    assert [gap for part in parts for gap in part.gaps] == ["all 1..1 SNAPSHOT"]
    assert last.complete
    made.machine.close()
