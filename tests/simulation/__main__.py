"""Run many seeds on all cores: `make simulate SEEDS=1000`. The last line is JSON; --help says the rest."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from tests.simulation.ablations import ABLATIONS
from tests.simulation.many import SEEDS_ENOUGH, classes, missing, outcomes, summary, world_of
from tests.simulation.outcome import COUNTED, Outcome

PROGRESS_S = 10.0
HISTORY_LINES = 60


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Simulates clusters, everything in them by seed. Odd seeds are consensus with a "
        "toy state, even ones whole nodes with producers and consumers.",
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of faults, virtual; whole nodes half (6)")
    parser.add_argument("--world", choices=("both", "consensus", "node"), default="both", help="(both)")
    parser.add_argument("--ablate", choices=sorted(ABLATIONS), default="", help="a guard to take out")
    asked = parser.parse_args()
    began, seen, told = time.monotonic(), list[Outcome](), 0.0
    seeds = range(asked.first, asked.first + asked.seeds)
    for outcome in outcomes(seeds, asked.world, asked.seconds, asked.ablate):
        seen.append(outcome)
        wall_s = time.monotonic() - began
        if outcome.failure is not None:
            print(*outcome.history[-HISTORY_LINES:], sep="\n")
            print(f"seed {outcome.seed}: {outcome.failure}")
            ablate = f" ABLATE={asked.ablate!r}" if asked.ablate else ""
            print(
                f"again: make simulate SEEDS=1 FIRST={outcome.seed} SECONDS={asked.seconds:g}"
                f" WORLD={world_of(outcome.seed, asked.world)}{ablate}",
                flush=True,
            )
        if wall_s - told > PROGRESS_S:
            told = wall_s
            failed = sum(outcome.failure is not None for outcome in seen)
            left_s = wall_s / len(seen) * (asked.seeds - len(seen))
            print(
                f"{len(seen)} of {asked.seeds} seeds, {failed} failed, {left_s:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
    counts: Counter[str] = Counter()
    for outcome in seen:
        counts.update(outcome.counts)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if name not in COUNTED))
    print(*classes(seen), sep="\n")
    numbers = summary(seen, time.monotonic() - began)
    print(json.dumps(numbers))
    lacking = missing(seen) if len(seen) >= SEEDS_ENOUGH and not asked.ablate else []
    if lacking:
        print(f"no seed had: {'; '.join(lacking)}", file=sys.stderr)
    return 1 if numbers["violations"] or lacking else 0


if __name__ == "__main__":
    raise SystemExit(main())
