"""What ``tarry status`` prints of nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarry.client.cli.output import Output
from tarry.client.cli.status import print_status
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.tarry_operator_pb2 import ClusterStatusResponse, Hold, LedgerStatus, TurnStatus

FAULTS: dict[str, Any] = {
    "damaged_found": 7,
    "damaged_repaired": 4,
    "damaged_left": 3,
    "ledger": LedgerStatus(
        enabled=True, segments=2, bytes=9, dropped=11, failure="disk full", last_segment=2
    ),
    "turns": TurnStatus(
        longest=Hold(cause="apply schedule", held_us=431_700, cpu_us=430_000, at_ms=1_767_225_600_000),
        over_20_ms=12,
        over_100_ms=3,
    ),
}


def status(**more: Any) -> ClusterStatus:
    return ClusterStatus.of(ClusterStatusResponse(node="n1", leader="n1", lease=True, **more))


def test_damage_and_a_ledger_that_loses_rows_are_shown_where_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_status({"a:1": status(), "b:2": status(**FAULTS)}, Output.TABLE)
    shown = capsys.readouterr().out
    assert "3 left (7 found, 4 repaired)" in shown
    assert "11 rows dropped; disk full" in shown
    assert "432 ms by apply schedule at " in shown
    assert "(12 over 20 ms, 3 over 100)" in shown


def test_a_healthy_cluster_has_no_columns_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    print_status({"a:1": status()}, Output.TABLE)
    shown = capsys.readouterr().out
    assert "damaged" not in shown
    assert "ledger" not in shown
    assert "turn" not in shown


def test_programs_are_told_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_status({"b:2": status(**FAULTS)}, Output.JSON)
    told = json.loads(capsys.readouterr().out)["b:2"]
    assert (told["damaged_found"], told["damaged_repaired"], told["damaged_left"]) == (7, 4, 3)
    assert told["turns"]["longest"]["held_ms"] == pytest.approx(431.7)
    assert told["ledger"] == {
        "enabled": True,
        "segments": 2,
        "bytes": 9,
        "dropped": 11,
        "covered_index": 0,
        "failure": "disk full",
        "last_segment": 2,
    }
