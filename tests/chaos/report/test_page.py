"""The HTML page of a set of runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tarry.chaos.history import History
from tarry.chaos.report.page import COLUMNS, Report
from tarry.chaos.scenario import Scenario
from tarry.chaos.verdict import Verdict


async def nothing(run: Any) -> None:
    """Do nothing."""


def test_the_page_shows_each_run_and_escapes_what_was_found(tmp_path: Path) -> None:
    report = Report("runs")
    sound = Verdict("sound", 1, acknowledged=4711, failovers_ms=[420, 430], failovers_from_majority_ms=[7])
    broken = Verdict("broken", 2, broken=["1 lost: <script>alert(1)</script>"], unjudged=["244 ms > 200 ms"])
    run = cast(Any, SimpleNamespace(history=History()))
    for verdict in (sound, broken):
        report.add(Scenario(name=verdict.scenario, play=nothing, what="a & b"), verdict, run)
    report.skipped(Verdict("absent", 1, skipped="no <root>\nmore"))
    report.write(tmp_path / "out" / "page.html")
    page = (tmp_path / "out" / "page.html").read_text()
    head, _, body = page.partition("<h1>runs</h1>")
    assert '<script src="http' not in head
    assert "<td>4711</td>" in body
    assert "<td>420, 430, 7 from a majority</td>" in body
    assert body.count("<p>a &amp; b</p>") == body.count("Plotly.newPlot") == 2
    assert '<tr class="broken">\n<td><a href="#broken-2">broken</a></td>' in body
    assert '<pre class="broken">1 lost: &lt;script&gt;alert(1)&lt;/script&gt;</pre>' in body
    assert "<pre>not judged: 244 ms &gt; 200 ms</pre>" in body
    assert f'<td colspan="{len(COLUMNS) + 1}">not played: no &lt;root&gt;</td>' in body
    assert 'id="absent-1"' not in body
