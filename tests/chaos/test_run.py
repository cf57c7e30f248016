"""What a container's quota leaves of the machine's processors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarry.chaos.run import cores

ALL = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("quota", "left"), [("50000 100000", 0.5), ("max 100000", ALL), ("99900000 100000", ALL), (None, ALL)]
)
def test_a_quota_counts_where_it_is_less_than_the_machine_has(
    tmp_path: Path, quota: str | None, left: float
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(f"{quota}\n")
    assert cores(file) == left
