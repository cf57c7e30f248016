"""Each guard taken out in turn: `python -m tests.simulation.ablation_table [seeds]`.

Prints guard → the first random seed and the scenario that fail without it; a guard that is the second line
behind another is taken out together with it. Fails where nothing notices. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
from functools import partial

from tests.simulation.ablations import ABLATIONS, ablated
from tests.simulation.seeds import simulate
from tests.simulation.test_ablations import PAIRS
from tests.simulation.whole_seeds import simulate_whole

SECONDS = 8.0
WHOLE = {
    "checksums of indices",
    "checksums of ready queues",
    "proof of a state",
    "reserve",
    "checkpoint before trimming",
    "every member's level",
    "lanes",
    "level of a newcomer",
    "levels said anew",
    "misfires",
    "retries close their lane",
    "rows of retries",
}
"""Guards that consensus alone does not have."""


def scenario_fails(guard: str) -> str:
    """Return the name of the scenario that fails without the guard, '' where it passes."""
    with ablated(guard):
        try:
            PAIRS[guard]()
        except BaseException:  # noqa: BLE001 - however it fails, the guard was missed
            return PAIRS[guard].__name__.removeprefix("test_")
    return ""


def first_seed(guard: str, seeds: int) -> int | None:
    """Return the first seed, from 1, that fails without the guard."""
    play = (
        partial(simulate_whole, seconds=SECONDS / 2) if guard in WHOLE else partial(simulate, seconds=SECONDS)
    )
    with ablated(guard):
        return next((seed for seed in range(1, seeds + 1) if play(seed).failure), None)


def row(guard: str, seeds: int) -> tuple[str, str, int | None]:
    logging.disable()  # the engine says what it notices
    return guard, scenario_fails(guard), first_seed(guard, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Takes each guard out in turn; prints what notices.")
    parser.add_argument("seeds", type=int, nargs="?", default=4, help="random seeds tried for each guard")
    seeds = parser.parse_args().seeds
    guards = [guard for guard in ABLATIONS if guard]
    table = {}
    print(f"{'guard':41} {'seed':>4}  scenario")
    with multiprocessing.Pool() as pool:
        for guard, scenario, seed in pool.imap(partial(row, seeds=seeds), guards):
            print(f"{guard:41} {seed or '-':>4}  {scenario or '-'}", flush=True)
            table[guard] = {"seed": seed, "scenario": scenario}
    unnoticed = [guard for guard, found in table.items() if not any(found.values())]
    print(json.dumps({"guards": len(table), "unnoticed": unnoticed, "table": table}))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    raise SystemExit(main())
