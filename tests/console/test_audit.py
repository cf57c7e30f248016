"""The page *Audit*: what an address asks for, and a row for each call."""

from __future__ import annotations

from urllib.parse import parse_qs

from tarry.client.operators.audit_log import AuditLine
from tarry.console.views.audit import OPEN, call_rows, choice_of


def line(at_ms: int, stage: str, call: str = "n1-a-1", **more: object) -> AuditLine:
    named = {"method": "DeleteTopic", "token": "ops", "address": "ipv4:10.0.0.1:1", **more}
    return AuditLine(at_ms, "n1", stage, call, **named)  # type: ignore[arg-type]


def test_the_two_lines_of_a_call_are_a_row_at_the_time_it_was_asked_for() -> None:
    answered, asked = line(1_002, "answered", result="OK"), line(1_001, "asked", arguments={"topic": "<b>"})
    [row] = call_rows([answered, asked])
    assert "1970-01-01T00:00:01.001Z" in str(row[0])
    assert (row[1:4], row[5]) == (("n1", "DeleteTopic", "ops"), '{"topic": "<b>"}')
    assert ">OK<" in str(row[6])


def test_a_line_without_its_other_one_is_a_row_too() -> None:
    [row] = call_rows([line(2, "answered", result="NOT_FOUND", text="<i>gone", left_out=7)])
    assert "NOT_FOUND: &lt;i&gt;gone (7 more)" in str(row[6])
    [row] = call_rows([line(1, "asked")])
    assert OPEN in str(row[6])
    [row] = call_rows([AuditLine(3, "n2", "started")])
    assert (row[2], row[6]) == ("the node started", "")


def test_calls_of_one_id_on_two_nodes_are_two_rows() -> None:
    rows = call_rows([line(2, "answered", result="OK"), AuditLine(1, "n2", "asked", "n1-a-1", "DeleteTopic")])
    assert [row[1] for row in rows] == ["n1", "n2"]


def test_readings_of_the_log_are_shown_only_where_they_are_asked_for() -> None:
    lines = [line(2, "asked", method="ReadAudit"), line(1, "asked", call="n1-a-2")]
    assert [row[2] for row in call_rows(lines)] == ["DeleteTopic"]
    assert len(call_rows(lines, "ReadAudit")) == 2


def test_an_address_asks_for_calls_and_what_cannot_be_read_is_said() -> None:
    choice = choice_of({"who": " ops ", "what": "x" * 999, "from": "2026-11-26T08:00:00Z", "to": ""})
    assert (choice.who, len(choice.what), choice.to_ms, choice.faults) == ("ops", 200, 0, {})
    assert choice.from_ms == 1_795_680_000_000
    assert parse_qs(choice.older(1_795_680_000_007)[1:])["to"] == ["2026-11-26T08:00:00.007Z"]
    assert choice_of({"from": "soon", "to": "9" * 30}).faults.keys() == {"from", "to"}
