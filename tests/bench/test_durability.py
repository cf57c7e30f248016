"""Sync and async in pairs: what becomes of the turns."""

from __future__ import annotations

import pytest

from tarry.bench.durability import WORKS, compared, figures


def test_a_turn_has_a_rate_and_percentiles() -> None:
    done = figures([0.001] * 99 + [0.101], messages=500, all_s=2.0)
    assert done == pytest.approx({"per_s": 25_000.0, "p50_ms": 1.0, "p99_ms": 2.0})


def test_a_ratio_is_of_async_to_sync_within_a_pair() -> None:
    pairs = [({"per_s": of}, {"per_s": of * ratio}) for of, ratio in ((100.0, 2.0), (10.0, 3.0), (1.0, 4.0))]
    assert compared(pairs)["per_s"] == {
        "sync": 10.0, "async": 30.0, "ratio": 3.0, "ratio_q1": 2.5, "ratio_q3": 3.5,
    }  # fmt: skip


def test_the_work_has_what_is_aimed_at() -> None:
    assert {name: work.tasks for name, work in WORKS.items()} == {"single": 1, "tasks32": 32, "entry": 1}
