"""A few of `make chaos`'s scenarios: whole runs with faults, and what clients saw of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.chaos.__main__ import play
from tarry.chaos.report.page import Report
from tarry.chaos.scenario import SCENARIOS


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.fast])
def test_every_promise_is_kept_through(name: str, tmp_path: Path) -> None:
    report = Report("chaos")
    verdict = play(SCENARIOS[name], seed=1, folder=tmp_path / name, report=report, kept=True)
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.broken == []
    assert [*tmp_path.glob("*/*/ledger/*/*.parquet")]
    assert not [*tmp_path.glob("*/*/ledger/open/*")], "a node was killed before it had closed its ledger"
    report.write(tmp_path / "chaos.html")
    assert name in (tmp_path / "chaos.html").read_text()
