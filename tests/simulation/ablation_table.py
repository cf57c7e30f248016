"""Each guard taken out in turn: `python -m tests.simulation.ablation_table [seeds]`.

Prints guard → the scenario that fails without it, and the first random seed that does. A guard that
is the second line behind another is taken out together with it. The last line is JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time

from tests.simulation.ablations import ABLATIONS, ablated
from tests.simulation.seeds import simulate
from tests.simulation.test_ablations import PAIRS

SECONDS = 12.0


def scenario_fails(guard: str) -> str:
    """Return the name of the scenario that fails without the guard, '' where there is none or it passes."""
    scenario = PAIRS.get(guard)
    if scenario is None:
        return ""
    with ablated(guard):
        try:
            scenario()
        except BaseException:  # noqa: BLE001 - however it fails, the guard was missed
            return scenario.__name__.removeprefix("test_")
    return ""


def first_seed(guard: str, seeds: int) -> int | None:
    """Return the first seed, from 1, that fails without the guard."""
    with ablated(guard):
        return next((seed for seed in range(1, seeds + 1) if simulate(seed, SECONDS).failure), None)


def row(work: tuple[str, int]) -> tuple[str, str, int | None, float]:
    guard, seeds = work
    started = time.monotonic()
    return guard, scenario_fails(guard), first_seed(guard, seeds), time.monotonic() - started


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    guards = [guard for guard in ABLATIONS if guard]
    unnoticed = []
    table = {}
    print(f"{'guard':42} {'first seed':>10}  scenario")
    with multiprocessing.Pool() as pool:
        for guard, scenario, seed, took_s in pool.imap(row, [(guard, seeds) for guard in guards]):
            print(f"{guard:42} {seed or '-':>10}  {scenario or '-'}  ({took_s:.0f} s)", flush=True)
            table[guard] = {"seed": seed, "scenario": scenario}
            behind = any(guard in other and other != guard and ABLATIONS[other] for other in ABLATIONS)
            if not scenario and seed is None and not behind:
                unnoticed.append(guard)
    print(json.dumps({"guards": len(table), "unnoticed": unnoticed, "table": table}))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main())
