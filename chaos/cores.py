"""How many processors this process may use, in a container too."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "microseconds period", or "max period": of the container we are in


def cores(quota: Path = QUOTA) -> float:
    """Return how many affinity and the container's quota leave of the machine's; 0.5 is half of one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not quota.exists():
        return allowed
    share, period = quota.read_text().split()
    return allowed if share == "max" else min(allowed, int(share) / int(period))
