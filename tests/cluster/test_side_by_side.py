import asyncio

import pytest

from tarry.bench.side_by_side.__main__ import measure
from tarry.bench.side_by_side.peers import chosen
from tarry.bench.side_by_side.rows import row_of


@pytest.mark.cluster
def test_rows_measured_on_a_real_cluster_come_out_once_unchanged_and_not_early() -> None:
    rows = [row_of(name) for name in ("schedule_1000x100", "cancel", "mass_100k")]
    found = asyncio.run(
        measure(
            rows, chosen("tarry", quick=True), turns=1, minutes=5, quick=True, everywhere=True, skipped={}
        )
    )
    assert [found[name] for name in ("lost", "early", "duplicates", "changed")] == [0, 0, 0, 0]
    for key in ("schedule_1000x100_per_s", "cancel_per_s", "mass_100k_s"):
        assert found[key] > 0
    assert found["skipped"] == {}
