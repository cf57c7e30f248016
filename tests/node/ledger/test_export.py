"""An export of the ledger: what was asked for, each row once, also from where it was cut off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.node.ledger.export import export
from tarry.node.ledger.export_request import Place, check, sources
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import ExportLedgerRequest, ExportLedgerResponse
from tarry.replication.state_machine.refusal import Refusal
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, ack, release, schedule


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    """Two closed segments, indices 1 and 2, and an open one, index 3."""
    made = Replica(tmp_path, segment_rows_max=3)
    made.apply(schedule([NOW_MS + 1] * 4))
    await made.ledger.write()
    made.apply(release(NOW_MS + 9, now_ms=NOW_MS + 1_000))
    await made.ledger.until_closed()
    await made.ledger.write()
    await made.ledger.until_closed()
    made.apply(schedule([NOW_MS + 10_000], now_ms=NOW_MS + 2_000))
    await made.ledger.write()
    yield made
    made.machine.close()


def told(replica: Replica, rows_max: int = 100, **only: Any) -> list[ExportLedgerResponse]:
    request = ExportLedgerRequest(**only)
    begin = check(request)
    assert isinstance(begin, Place)
    return list(export(sources(replica.ledger.disk, request), request, begin, rows_max))


def rows(responses: list[ExportLedgerResponse]) -> list[tuple[str, int, int]]:
    found = []
    for response in responses:
        table = pa.ipc.open_stream(response.rows).read_all()
        assert len(table) == response.count
        found += [(row["kind"], row["index"], row["position"]) for row in table.to_pylist()]
    return found


FIRST = [("scheduled", 1, position) for position in range(4)]
SECOND = [("released", 2, position) for position in range(4)]
OPEN = [("scheduled", 3, 0)]


async def test_closed_segments_are_told_and_the_open_one_if_it_is_asked_for(replica: Replica) -> None:
    assert rows(told(replica)) == FIRST + SECOND
    assert rows(told(replica, open=True)) == FIRST + SECOND + OPEN


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ({"kinds": ["released"]}, SECOND),
        ({"from_index": 2, "to_index": 3}, SECOND),
        ({"from_ms": NOW_MS + 1, "to_ms": NOW_MS + 1_001}, SECOND),
        ({"to_ms": NOW_MS + 1_000}, FIRST),
        ({"from_index": 3}, OPEN),
    ],
)
async def test_only_what_is_asked_for_is_told(
    replica: Replica, only: dict[str, Any], expected: list[tuple[str, int, int]]
) -> None:
    assert rows(told(replica, open=True, **only)) == expected


async def test_an_export_goes_on_behind_any_part_of_it_even_once_the_segment_is_closed(
    replica: Replica,
) -> None:
    parts = told(replica, rows_max=3, open=True)
    assert [part.count for part in parts] == [3, 1, 3, 1, 1]
    await replica.ledger.close()
    for at, part in enumerate(parts, 1):
        assert rows(told(replica, rows_max=2, resume=part.resume)) == rows(parts[at:])


async def test_a_segment_that_is_closed_while_others_are_told_is_told_as_it_is_then(replica: Replica) -> None:
    """Left out, it would look lost: what goes on behind the export never comes back to it."""
    request = ExportLedgerRequest(open=True)
    begin, found = check(request), sources(replica.ledger.disk, request)
    assert isinstance(begin, Place)
    await replica.ledger.close()
    assert rows(list(export(found, request, begin, 100))) == FIRST + SECOND + OPEN


async def test_a_segment_in_which_nothing_happened_is_told_too_unless_only_some_rows_are_asked_for(
    tmp_path: Path,
) -> None:
    replica = Replica(tmp_path, segment_rows_max=1)
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.write()
    replica.apply(ack([1]))  # of no group: no row
    await replica.ledger.close()
    _, empty = told(replica)
    assert (rows([empty]), empty.count, json.loads(empty.segment)["last_index"]) == ([], 0, 2)
    assert told(replica, resume=empty.resume) == told(replica, kinds=["acked"]) == []
    replica.machine.close()


@pytest.mark.parametrize("fault", [{"kinds": ["sold"]}, {"resume": "7"}, {"resume": "a.b"}])
def test_a_request_that_cannot_be_met_is_refused(fault: dict[str, Any]) -> None:
    refusal = check(ExportLedgerRequest(**fault))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.EXPORT_INVALID
