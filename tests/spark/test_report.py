"""What is written beside the tables."""

from __future__ import annotations

import json

from tarry.proto.message_id import MessageId
from tarry.spark.findings import ROWS_MAX
from tests.spark.conftest import Reconciled


def test_the_report_is_one_file_that_needs_nothing_else_and_runs_nothing_that_tables_name(
    planted: Reconciled,
) -> None:
    summary = {**planted.summary, "remarks": {"<script>alert(1)</script>": 1}}
    planted.job.write(summary)
    assert json.loads((planted.out / "summary.json").read_text()) == summary
    page = (planted.out / "report.html").read_text()
    assert "Plotly.newPlot" in page
    assert '<script src="http' not in page
    assert "promises were broken" in page
    assert page.count('class="plotly-graph-div"') == 3
    assert "<script>alert" not in page


def test_findings_name_the_messages_of_each_check(planted: Reconciled) -> None:
    planted.job.write(planted.summary)
    told = json.loads((planted.out / "findings.json").read_text())
    assert (told["format"], told["summary"], told["ledgers"]) == (1, planted.summary, [str(planted.ledger)])
    counted = {one["check"]: one["count"] for one in told["checks"]}
    assert counted == planted.summary["violations"] | planted.summary["remarks"]
    assert [one["promise"] for one in told["checks"]] == sorted(
        (one["promise"] for one in told["checks"]), reverse=True
    )
    for one in told["checks"]:
        assert len(one["rows"]) == min(ROWS_MAX, one["count"]), one["check"]
    [early] = [one["rows"] for one in told["checks"] if one["check"] == "early"]
    ids = {MessageId.parse(row["id"]) for row in early}
    assert {(each.hour, each.global_index) for each in ids} == planted.found("early")
    assert [row["at_ms"] for row in early] == sorted(row["at_ms"] for row in early)
