"""`make mutants`: makes each mutant in a copy of the tree and runs the tests that must notice it.

Prints a line a mutant; the last line is JSON. Exit code 1 where fewer than 95 % are noticed, where one is neither
noticed nor argued, or where the tests fail without any mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant, PatternLost, locate, mutated, product_sources

NOTICED_MIN = 0.95
COPIED = (
    "bench",
    "chaos",
    "client",
    "console",
    "gateway",
    "node",
    "proto",
    "replication",
    "spark",
    "tests",
    "wheel",
)
NOTICED = (1, -signal.SIGBUS, -signal.SIGSEGV)
"""What pytest returns where a test fails, or the mutant ends the process: a file is shorter than its mapping."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


MEMORY_BYTES_MAX = 4 << 30
"""Of a process of tests: a mutant may well go round for ever, and take all there is."""


class Copy:
    """A copy of the tree, in which one mutant at a time is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(
            ROOT / ".src", folder / ".src", symlinks=True, ignore=shutil.ignore_patterns("*.egg-info")
        )
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, folder / path.name)
        self._texts = {path: path.read_text() for path in product_sources(folder)}
        self._written_at = time.time()

    def run(self, mutant: Mutant | None, tests: tuple[str, ...], seconds: float) -> tuple[str, str]:
        """Return how the tests end with the mutant, noticed, hangs, survives or invalid; and by which."""
        if mutant is None:
            return self._test(tests, seconds)
        try:
            path = locate(mutant, self._texts)
        except PatternLost as lost:
            return "invalid", str(lost)
        text = self._texts[path]
        try:
            self._write(path, mutated(mutant, text))
            compile(mutated(mutant, text), str(path), "exec")
            return self._test(tests, seconds)
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Python compares whole seconds and lengths: without a later time it would run the old bytecode."""
        path.write_text(text)
        self._written_at += 2
        os.utime(path, (self._written_at, self._written_at))

    def _test(self, tests: tuple[str, ...], seconds: float) -> tuple[str, str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "-p",
            "no:cacheprovider",
            *tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(self._folder / ".src"), "TURN_TOLERANCE": "1.5"}
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "hangs", f"over {seconds:.0f} s"
        by = FAILED.search(said)
        if process.returncode in NOTICED:
            return "noticed", by[1] if by else ""
        if process.returncode == 0:
            return "survives", ""
        return "invalid", said[-2_000:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes each mutant and runs the tests that must notice it.")
    parser.add_argument("names", nargs="*", help="mutants to make; none: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument(
        "--seconds", type=float, default=180, help="the longest that one mutant's tests may take"
    )
    parser.add_argument("--tests", nargs="*", help="these tests instead of the mutant's own: who notices it?")
    parser.add_argument("--list", action="store_true", help="name the mutants and what each would do")
    args = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not args.names or mutant.name in args.names]
    if unknown := set(args.names) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}; --list names them")
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name:48} {mutant.harm}")
        return 0
    return report(chosen, args.jobs, args.seconds, tuple(args.tests) if args.tests else None)


def report(chosen: list[Mutant], jobs: int, seconds: float, tests: tuple[str, ...] | None) -> int:
    """Run all; print a table and the summary; return the exit code."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    started = time.monotonic()

    def judge(mutant: Mutant | None) -> tuple[str, str, float]:
        every = tests or tuple(sorted({test for one in chosen for test in one.noticed_by}))
        wanted = tests or (mutant.noticed_by if mutant else every)
        copy, begun = copies.get(), time.monotonic()
        try:
            outcome = copy.run(mutant, wanted, seconds if mutant else 20 * seconds)
        finally:
            copies.put(copy)
        return *outcome, time.monotonic() - begun

    with tempfile.TemporaryDirectory(prefix="tarry-mutants-") as folder:
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            copies.put(Copy(Path(folder) / str(number)))
        outcome, by, took_s = judge(None)
        said = "the tests pass" if outcome == "survives" else f"{outcome} {by}"
        print(f"{'without any mutant':48} {said} {took_s:.0f} s", flush=True)
        if outcome != "survives":
            return 1
        counts = {"noticed": 0, "hangs": 0, "survives": 0, "invalid": 0}
        left = []
        with ThreadPoolExecutor(jobs) as pool:
            for mutant, (outcome, by, took_s) in zip(chosen, pool.map(judge, chosen), strict=True):
                counts[outcome] += 1
                if outcome in ("survives", "invalid") and not (outcome == "survives" and mutant.argued):
                    left.append(mutant.name)
                argued = f"argued: {mutant.argued}" if outcome == "survives" and mutant.argued else ""
                print(f"{mutant.name:48} {outcome:9} {took_s:5.1f} s  {by}{argued}", flush=True)
    noticed = counts["noticed"] + counts["hangs"]
    share = noticed / max(1, len(chosen))
    figures = {"mutants": len(chosen), **counts, "noticed_share": round(share, 3), "left": left}
    print(json.dumps({**figures, "seconds": round(time.monotonic() - started)}))
    return 0 if not left and share >= NOTICED_MIN else 1


if __name__ == "__main__":
    raise SystemExit(main())
