"""A network of the bench's own (Linux): RocketMQ's proxy listens on all addresses, whatever it is told.

The command runs itself again in a network namespace that has nothing but loopback.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

MARK: Final = "BENCH_HAS_A_NETWORK"  # no name of the node's own: those that are no setting are refused
TOOLS: Final = ("unshare", "ip")


def missing() -> str:
    """Return why there can be no network of its own here; empty: there can."""
    if os.environ.get(MARK):
        return ""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not installed: {' '.join(absent)} (util-linux, iproute2)"
    done = subprocess.run([*_namespace(), "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def enter(module: str) -> None:
    """Return in such a network; what runs is this command, begun anew. Raises OSError."""
    if os.environ.get(MARK):
        return
    sys.stdout.flush()
    script = 'ip link set lo up && exec "$@"'
    command = [*_namespace(), "sh", "-c", script, "sh", sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, MARK: "1"})


def _namespace() -> list[str]:
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
