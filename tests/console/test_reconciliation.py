"""Runs of tarry reconcile: what they wrote is shown, and what somebody else wrote harms nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarry.console.views.json_values import TEXT_CHARACTERS_MAX
from tarry.console.views.reconciliation import (
    CHECK_COLUMNS,
    CHECKS_MAX,
    FIGURE_CHARACTERS_MAX,
    FOUND_COLUMNS,
    ROWS_MAX,
    check_rows,
    run_of,
    run_row,
)
from tarry.console.views.table import table_of
from tests.console.reports import FINDINGS, ROW, SUMMARY


def test_a_run_has_its_figures_and_what_each_check_found() -> None:
    run = run_of(json.dumps(FINDINGS).encode())
    assert run is not None
    assert (run.kept, run.made_ms, run.ledgers) == (False, 1_800_000_100_000, ("/ledgers/<i>",))
    assert dict(run.figures)["duplicates_by_cause"] == "failover 7"
    assert dict(run.figures)["remarks"] == "none"
    assert dict(run.figures)["wall_s"] == "3.5"
    assert [(one.name, one.promise, one.count, len(one.rows)) for one in run.checks] == [
        ("early", True, 2, 2),
        ("waiting", False, 9, 0),
    ]
    assert (run.checks[0].rows[0]["id"], run.checks[0].rows[1]["id"]) == ("0007wk3", "")
    row = run_row("one", json.dumps(SUMMARY).encode())
    assert (row["state"], row["broken"], row["missing"]) == ("broken", "early", 1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"summary": [], "checks": []}',
        b'{"summary": {}, "checks": 7}',
    ],
)
def test_what_is_no_run_is_none(text: bytes) -> None:
    assert run_of(text) is None
    assert run_row("one", text)["state"] == "not finished"
    assert run_row("one", None)["state"] == "not finished"


def test_what_is_in_a_run_and_should_not_be_is_cut_or_left_out() -> None:
    checks: list[Any] = [{"check": "x" * 9_999, "promise": 1, "count": 1e300, "rows": [ROW] * 9_999}]
    checks += [
        7,
        None,
        {"rows": [1, {"id": ["x"], "at_ms": 10**400, "index": True, "topic": "\ud800"}]},
    ] * 500
    run = run_of(
        json.dumps({"summary": {"kept": "yes", "a": None}, "checks": checks, "ledgers": {}}).encode()
    )
    assert run is not None
    assert (run.kept, run.made_ms, run.ledgers) == (None, None, ())
    first, second = run.checks[0], run.checks[1]
    assert (len(first.name), first.promise, first.count, len(first.rows)) == (
        TEXT_CHARACTERS_MAX,
        False,
        0,
        ROWS_MAX,
    )
    assert len(run.checks) <= CHECKS_MAX
    assert [second.rows[0][name] for name in ("id", "at_ms", "index", "topic")] == ["", None, None, "?"]


def test_a_figure_of_figures_has_a_bound_and_what_lies_deeper_is_left_out() -> None:
    deep = b'{"a": ' * 600 + b"1" + b"}" * 600
    wide = json.dumps({"x" * 400 + str(at): at for at in range(500)}).encode()
    run = run_of(b'{"summary": {"deep": %b, "wide": %b}, "checks": []}' % (deep, wide))
    assert run is not None
    figures = dict(run.figures)
    assert figures["deep"] == "a "
    assert len(figures["wide"]) == FIGURE_CHARACTERS_MAX


def test_each_row_has_an_id_of_its_own_also_where_a_check_finds_one_message_twice() -> None:
    check = {"check": "duplicate", "rows": [ROW, ROW]}
    run = run_of(json.dumps({"summary": {}, "checks": [check, check]}).encode())
    assert run is not None
    for columns, rows in (
        (FOUND_COLUMNS, run.checks[0].rows),
        (CHECK_COLUMNS, check_rows(run, "one")),
    ):
        table = table_of("found", "Found", columns, rows, {}, columns[0].name)
        assert len({table.row_id(row) for row in table.rows}) == 2
