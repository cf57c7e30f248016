"""A process answers what is on its heap, whatever its main thread does at that moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tarry.chaos.cluster.heap import HOOK

TIMES = 12
PROGRAM = f"""
{HOOK}
import threading
from concurrent.futures import ThreadPoolExecutor

file = os.environ["SOAK_HEAP"]

def ask():
    for _ in range({TIMES}):
        os.kill(os.getpid(), signal.SIGUSR1)
        while not os.path.exists(file):
            pass
        os.rename(file, file + ".seen")

asking = threading.Thread(target=ask)
asking.start()
with ThreadPoolExecutor(1) as executor:
    while asking.is_alive():
        executor.submit(int)
print("answered")
"""


def test_a_process_that_is_handing_work_to_threads_answers(tmp_path: Path) -> None:
    file = tmp_path / "heap.json"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"SOAK_HEAP": str(file)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.stdout == "answered\n", ran.stderr
    found = json.loads(file.with_name("heap.json.seen").read_text())
    assert sum(found.values()) > 0
