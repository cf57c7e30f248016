"""What ``tarry status`` prints of nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarry.client.cli.output import Output
from tarry.client.cli.status import print_status
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.tarry_operator_pb2 import (
    ClusterStatusResponse,
    GroupStatus,
    Hold,
    Lateness,
    LedgerStatus,
    TopicStatus,
    TurnStatus,
)

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


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_what_is_overdue_and_how_late_releases_were_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    late = Lateness(released=1_234, p50_ms=0, p99_ms=36, max_ms=1_250)
    lag = {"overdue": 4_321, "oldest_overdue_ms": 3_250, "lateness": late}
    print_status({"a:1": status(level_max=2, pending=9_000, **lag)}, Output.TABLE)
    said = words(capsys)
    assert (
        "9,000 pending, 0 ready; overdue 4,321, oldest 3.250s; lateness p50 0ms, p99 36ms, max 1.250s" in said
    )
    assert "released up to" not in said
    print_status({"a:1": status(level_max=2)}, Output.TABLE)
    said = words(capsys)
    assert said.endswith("0 pending, 0 ready; overdue 0")
    print_status({"a:1": status(level_max=2, **lag)}, Output.JSON)
    told = json.loads(capsys.readouterr().out)["a:1"]
    assert (told["overdue"], told["oldest_overdue_ms"]) == (4_321, 3_250)
    assert told["lateness"] == {"released": 1_234, "p50_ms": 0, "p99_ms": 36, "max_ms": 1_250}


def test_a_node_of_a_version_that_does_not_say_what_is_overdue_is_not_said_to_have_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_status({"a:1": status()}, Output.TABLE)
    assert words(capsys).endswith("0 pending, 0 ready")


def test_a_topics_row_has_what_is_overdue_and_what_waits_for_its_retry(
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = GroupStatus(group="g", backing_off=77, credit=500)
    topic = TopicStatus(topic="t", overdue=55, oldest_overdue_ms=8, lateness=Lateness(released=1, max_ms=3))
    topic.groups.append(group)
    print_status({"a:1": status(topics=[topic])}, Output.TABLE)
    row = next(line for line in capsys.readouterr().out.splitlines() if "77" in line)
    assert "55" in row
    print_status({"a:1": status(topics=[topic])}, Output.JSON)
    [told] = json.loads(capsys.readouterr().out)["a:1"]["topics"]
    assert (told["overdue"], told["oldest_overdue_ms"], told["lateness"]["max_ms"]) == (55, 8, 3)
    assert (told["groups"][0]["backing_off"], told["groups"][0]["credit"]) == (77, 500)
