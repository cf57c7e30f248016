"""Fuzzing for as long as one likes: `make fuzz MINUTES=30`; what fails prints how to do it again."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time

TESTS = ("tests/fuzz", "tests/cluster/test_fuzzed_calls.py")


def run(seed: int) -> subprocess.CompletedProcess[str]:
    """Run the tests of one seed, longer than `make test` does."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    environment = {**os.environ, "FUZZ_SEED": str(seed)}
    command.append(f"--hypothesis-seed={seed}")
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="this one alone")
    given = parser.parse_args()
    ends, first = time.monotonic() + 60 * given.minutes, random.randrange(2**31)
    seeds = [given.seed] if given.seed is not None else range(first, first + 1_000_000)
    for done, seed in enumerate(seeds):
        if done and time.monotonic() > ends:
            break
        begun = time.monotonic()
        ran = run(seed)
        if ran.returncode:
            print(ran.stdout, ran.stderr, f"seed {seed} failed. Again: make fuzz SEED={seed}", sep="\n")
            raise SystemExit(1)
        left = max(0, ends - time.monotonic()) / 60
        took = time.monotonic() - begun
        print(
            f"seed {seed}: nothing found in {took:.0f} s; {done + 1} done, {left:.1f} minutes left",
            flush=True,
        )


if __name__ == "__main__":
    main()
