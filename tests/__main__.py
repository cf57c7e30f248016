"""`make test`: first tests that run in one process, on several cores at once, then those of real clusters.

Tests of real clusters wait for real clocks, so they have the machine to themselves. Every argument is
pytest's; an expression of `-m` narrows both parts. Exit code: pytest's, of the first part that failed.
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

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "not cluster": ("-n", "logical", "--maxprocesses", "4"),
    "cluster": (),
}


def main(arguments: Sequence[str]) -> int:
    """Run both parts and return the exit code; a part without tests counts only if the other has none too."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="marks", default="")
    given, others = parser.parse_known_args(arguments)
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest gets it too, and ends its clusters first
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # or every process compiles all of it anew
    codes = []
    for part, options in PARTS.items():
        if given.marks in PARTS and given.marks != part:
            continue
        marks = f"({given.marks}) and {part}" if given.marks else part
        command = [sys.executable, "-m", "pytest", *options, *others, "-m", marks]
        codes.append(subprocess.run(command, check=False, env=environment).returncode)
        if codes[-1] == pytest.ExitCode.INTERRUPTED:
            break
    ran = [code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED]
    return next(
        (code for code in ran if code), pytest.ExitCode.OK if ran else pytest.ExitCode.NO_TESTS_COLLECTED
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
