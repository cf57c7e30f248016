"""A process that was forked from one that had used a client: gRPC has no thread there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tarry.client.cluster.forks import FORKED

FORKS = """
import os, sys
import tarry.client.sync as sync
from tarry.client.errors import Unavailable

def status():
    with sync.connect("127.0.0.1:1", deadline_ms=50) as client:
        client.operator().status()

def used():
    try:
        status()
    except Unavailable:
        return 0
    except RuntimeError as refused:
        print(refused)
        return 7
    return 1

before = "{when}" == "before"
if not before:
    assert used() == 0
child = os.fork()
if child == 0:
    os._exit(used() if not sys.stdout.flush() else 1)
_, status_of_child = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status_of_child))
"""


@pytest.mark.parametrize(("when", "code"), [("before", 0), ("after", 7)])
def test_a_client_is_refused_in_a_child_of_a_process_that_has_used_one(when: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKS.format(when=when)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (FORKED in done.stdout) == (code == 7)
