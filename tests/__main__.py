"""`make test`: first tests that run in one process, on several cores at once, then those of real clusters.

Tests of real clusters wait for real clocks, so they have the machine to themselves. But those that are marked
`beside` may take longer than they do: nothing in them has to happen sooner than in tens of seconds, and no
leadership has to last. They run three at a time. Those marked `mutant`, which show that others can fail, are
left to `make mutants-containers`. Of either kind, RERUNS tests that failed run once more: one
that failed only because the machine was slow passes then, and is printed with its first failure.

Every argument is pytest's; an expression of `-m` narrows all parts. Exit code: pytest's, of the first part
that failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

RERUNS: Final = 2
"""Failed tests of real clusters, in each part, that run a second time; one more, and it is not by chance."""
AGAIN: Final = ("--reruns", "1", "--max-suite-reruns", str(RERUNS), "--rerun-show-tracebacks")
PARTS: Final[Mapping[str, Sequence[str]]] = {
    "not cluster": ("-n", "logical", "--maxprocesses", "4"),
    # on two cores too, where two take a fifth longer; not the largest files first: Spark's come first
    "cluster and beside": ("-n", "3", "--no-loadscope-reorder", *AGAIN),
    "cluster and not beside": AGAIN,
}
ONE_PROCESS: Final = next(iter(PARTS))


def main(arguments: Sequence[str]) -> int:
    """Run all parts and return the exit code; a part without tests counts only if no other has any."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="marks", default="")
    given, others = parser.parse_known_args(arguments)
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest gets it too, and ends its clusters first
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # or every process compiles all of it anew
    codes = []
    for part, options in PARTS.items():
        if given.marks in {ONE_PROCESS, "cluster"} and (part == ONE_PROCESS) != (given.marks == ONE_PROCESS):
            continue
        marks = f"({given.marks}) and {part}" if given.marks else part
        command = [sys.executable, "-m", "pytest", *options, *others, "-m", f"{marks} and not mutant"]
        codes.append(subprocess.run(command, check=False, env=environment).returncode)
        if codes[-1] == pytest.ExitCode.INTERRUPTED:
            break
    ran = [code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED]
    return next(
        (code for code in ran if code), pytest.ExitCode.OK if ran else pytest.ExitCode.NO_TESTS_COLLECTED
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
