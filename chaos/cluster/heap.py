"""A node's Python memory by the line that allocated it: tracemalloc in the node, asked by a signal.

A copy of the process (fork) writes the answer, so the node does not stand still for it. Tracing makes every
allocation slower.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tarry.client.local.cluster import LocalNode

HOOK: Final = """
import json, os, signal, threading, tracemalloc

def write():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)  # so that the node has no child to wait for
    os.nice(19)  # the nodes go first
    file = os.environ["SOAK_HEAP"]
    found = {}
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()  # of the copy: else what follows is traced as well, and takes ten times as long
    for stat in snapshot.statistics("lineno"):
        found[str(stat.traceback[0])] = stat.size
    with open(file + ".new", "w") as out:
        json.dump(found, out)
    os.rename(file + ".new", file)
    os._exit(0)

def wait():
    while True:
        signal.sigwait([signal.SIGUSR1])
        write()

tracemalloc.start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=wait, daemon=True).start()
"""
"""A thread of its own forks: a signal handler would run in the middle of anything, also where the main thread
holds a lock that fork waits for, such as that of the standard library's executors.
"""


PATIENCE_S: Final = 180
"""For an answer, on a busy machine: all nodes are asked together."""


def traced(node: LocalNode) -> None:
    """Have the node's next process trace its allocations from its start on."""
    folder = node.folder.with_name(f"{node.name}-heap")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    node.environment |= {"PYTHONPATH": path, "SOAK_HEAP": str(_file(node))}


async def heap(node: LocalNode) -> dict[str, int]:
    """Return the bytes allocated now, by the line that allocated them. Raises TimeoutError."""
    file = _file(node)
    file.unlink(missing_ok=True)
    assert node.process is not None
    node.process.send_signal(signal.SIGUSR1)
    async with asyncio.timeout(PATIENCE_S):
        while not file.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    found: dict[str, int] = json.loads(file.read_text())
    return found


def grown(before: Mapping[str, int], after: Mapping[str, int], count: int = 10) -> dict[str, int]:
    """Return by how many bytes the lines grew that grew most."""
    more = {line: size - before.get(line, 0) for line, size in after.items()}
    largest = sorted(more, key=more.__getitem__, reverse=True)[:count]
    return {line: more[line] for line in largest if more[line] > 0}


def _file(node: LocalNode) -> Path:
    return node.folder.with_name(f"{node.name}-heap") / "heap.json"
