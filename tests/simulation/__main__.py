"""Run many seeds, on all cores: `SEEDS=200 SECONDS=20 python -m tests.simulation [first seed]`.

`WORLD=node` runs whole nodes with producers and consumers, otherwise consensus alone.
`ABLATE=<guard>` switches a guard off: then failures are what is wanted. The last line is JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial

from tests.simulation.ablations import ABLATIONS, ablated
from tests.simulation.seeds import Outcome, simulate
from tests.simulation.whole_seeds import WholeOutcome, simulate_whole


def run(seed: int, seconds: float, ablation: str) -> Outcome:
    with ablated(ablation):
        return simulate(seed, seconds)


def run_whole(first: int, count: int, seconds: float) -> int:
    """Whole nodes; one line for each failure with how to see it again."""
    began, failed, lost, hours = time.monotonic(), list[WholeOutcome](), 0, 0.0
    total: Counter[str] = Counter()
    with multiprocessing.Pool() as pool:
        outcomes = pool.imap_unordered(partial(simulate_whole, seconds=seconds), range(first, first + count))
        for done, outcome in enumerate(outcomes, 1):
            total.update(outcome.counts)
            total["acknowledged"] += outcome.acknowledged
            lost += outcome.lost
            hours += outcome.virtual_hours
            if outcome.failure:
                failed.append(outcome)
                print("\n".join(outcome.history[-60:]))
                print(f"seed {outcome.seed}: {outcome.failure}")
                print(
                    f"again: WORLD=node SEEDS=1 SECONDS={seconds:g} python -m tests.simulation {outcome.seed}"
                )
            if done % 10 == 0:
                print(f"{done} of {count} seeds, {len(failed)} failed", flush=True)
    summary = {
        "seeds": count,
        "violations": len(failed),
        "failed": sorted(outcome.seed for outcome in failed),
        "lost": lost,
        **total,
        "virtual_hours": round(hours, 2),
        "wall_s": round(time.monotonic() - began, 1),
    }
    print(json.dumps(summary))
    return 1 if failed else 0


def main() -> int:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    count, seconds = int(os.environ.get("SEEDS", "20")), float(os.environ.get("SECONDS", "20"))
    if os.environ.get("WORLD") == "node":
        return run_whole(first, count, seconds)
    ablation = os.environ.get("ABLATE", "")
    if ablation and ablation not in ABLATIONS:
        print(f"no such guard; there are: {', '.join(ABLATIONS)}")
        return 2
    failures: list[Outcome] = []
    total: Counter[str] = Counter()
    sometimes: Counter[str] = Counter()
    with multiprocessing.Pool() as pool:
        work = partial(run, seconds=seconds, ablation=ablation)
        for outcome in pool.imap_unordered(work, range(first, first + count)):
            total.update(acknowledged=outcome.acknowledged, terms=outcome.terms, faults=outcome.faults)
            sometimes.update(outcome.sometimes)
            if outcome.failure:
                failures.append(outcome)
                print("\n".join(outcome.history[-30:]))
                print(f"seed {outcome.seed}: {outcome.failure}")
                print(
                    f"again: SEEDS=1 SECONDS={seconds:g} ABLATE='{ablation}' "
                    f"python -m tests.simulation {outcome.seed}"
                )
    summary = {
        "seeds": count,
        "failed": sorted(outcome.seed for outcome in failures),
        "kinds": Counter((outcome.failure or "").split(":")[1].strip()[:3] for outcome in failures),
        **total,
        "sometimes": sometimes,
    }
    print(json.dumps(summary))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
