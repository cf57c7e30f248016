from __future__ import annotations

import asyncio
from pathlib import Path

from tarry.chaos.soak import Plan, run
from tests.cluster.steady import STEADY


def test_a_short_soak_loses_nothing_and_looks_at_every_node(tmp_path: Path) -> None:
    result = asyncio.run(run(Plan(12, 300, STEADY), tmp_path, with_heap=True))
    assert (result.lost, result.early, result.repeated, result.elections) == (0, 0, 0, 0)
    assert result.acknowledged == result.received >= 3_000
    assert result.nodes.keys() == result.heap.keys() == {"n1", "n2", "n3"}
    for figures in result.nodes.values():
        for figure in ("rss", "anonymous", "open_files", "journal", "ready", "ledger"):
            assert min(figures[figure]) > 0, figure
    assert any("tarry" in line for lines in result.heap.values() for line in lines)
