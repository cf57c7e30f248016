from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tarry.chaos.demo import LOAD, Result, Times, main

pytestmark = pytest.mark.beside

KEPT = Result(
    scheduled=10,
    acknowledged=10,
    delivered=10,
    lost=0,
    early=0,
    duplicates=0,
    unmarked_duplicates=0,
    unexpected=0,
    lateness_p50_ms=1,
    lateness_p99_ms=2,
    lateness_max_ms=3,
    steady_p50_ms=1,
    steady_p99_ms=2,
    failover_ms=400,
    transfer_ms=20,
    transfer_pause_ms=10,
    elections=2,
    shares={"one": 5, "two": 5},
    dead_letter_attempts=16,
    seconds=1.0,
)


def test_a_small_demo_ends_with_what_was_seen_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    load = replace(LOAD, messages=600, spread_ms=5_000, delay_ms_max=3_000)
    code = main(load, Times(kill_s=1, restart_s=2, transfer_s=4))
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 0
    assert last.keys() == asdict(KEPT).keys()
    assert (last["scheduled"], last["acknowledged"], last["delivered"]) == (600, 600, 600)
    assert (last["lost"], last["early"], last["unexpected"]) == (0, 0, 0)
    assert last["failover_ms"] > 0
    assert sum(last["shares"].values()) >= 600
    assert last["dead_letter_attempts"] == 16
    assert last["elections"] >= 2


@pytest.mark.parametrize("broken", [{"lost": 1}, {"early": 1}])
def test_a_broken_promise_is_seen(broken: dict[str, Any]) -> None:
    assert KEPT.kept
    assert not replace(KEPT, **broken).kept
