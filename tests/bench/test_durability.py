"""Sync and async in pairs: what becomes of the turns."""

from __future__ import annotations

import pytest

from tarry.bench.durability import AT_ROCKETMQ, WORKS, Figures, Work, compared, figures, measure


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
    assert set(AT_ROCKETMQ) < set(WORKS)


async def test_turns_go_to_either_first_and_the_first_pair_is_not_counted() -> None:
    turns: list[tuple[str, int]] = []

    async def act(durability: str, work: Work) -> Figures:
        turns.append((durability, work.tasks))
        return {"per_s": 1_000.0 if len(turns) < 5 else {"sync": 10.0, "async": 30.0}[durability]}

    found = await measure(act, ("single", "tasks32"), 2)
    assert [durability for durability, _ in turns] == ["async", "sync"] * 2 + ["sync", "async"] * 2 + [
        "async",
        "sync",
    ] * 2
    assert [tasks for _, tasks in turns] == [1, 1, 32, 32] * 3
    assert {name: of["per_s"]["ratio"] for name, of in found.items()} == {"single": 3.0, "tasks32": 3.0}
