import asyncio
from functools import partial

import pytest

from tarry.bench.side_by_side import workloads
from tarry.bench.side_by_side.__main__ import measure
from tarry.bench.side_by_side.peers import chosen
from tarry.bench.side_by_side.rows import Row, row_of


@pytest.mark.cluster
def test_rows_measured_on_a_real_cluster_come_out_once_unchanged_and_not_early() -> None:
    kept = Row(
        "kept", "", "restart_s", "s",
        partial(workloads.pending, count=25_000, seconds=5),
        seconds_max=300,
    )  # fmt: skip
    few = Row("few", "", "s", "s", partial(workloads.mass, count=10_000))
    found = asyncio.run(
        measure(
            [row_of("schedule_1000x100"), kept, row_of("cancel"), few],
            chosen("tarry", quick=True),
            turns=1,
            minutes=5,
            share=0.02,
            everywhere=True,
            skipped={},
        )
    )
    assert [found[name] for name in ("lost", "early", "duplicates", "changed")] == [0, 0, 0, 0]
    assert min(found["schedule_1000x100_per_s"], found["cancel_per_s"]) > 0
    delivered = found["rows"]["few"]["tarry"]
    assert delivered["turns"] == 1 or "longer than foreseen" in delivered["failed"]  # a busy machine
    restarted = found["rows"]["kept"]["tarry"]
    assert restarted["turns"] == 1, restarted["failed"]
    assert restarted["figures"]["messages"]["min"] >= 10_000
    assert found["skipped"] == {}
