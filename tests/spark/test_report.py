"""What is written beside the tables."""

from __future__ import annotations

import json

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
