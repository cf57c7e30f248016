"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].partition(":")[2].strip() if named else cpu
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Stolen:
    """Processor time that other guests of the same host took since this was made."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def percent(self) -> float | None:
        """Return its share of all cores' time; None where the system does not say, or not one tick passed."""
        now = psutil.cpu_times()
        counted_s = sum(now) - sum(self._before)  # in steps of the system's tick: nothing within one
        if not hasattr(now, "steal") or not counted_s:
            return None
        return float(round(100 * (now.steal - self._before.steal) / counted_s, 1))


def caption(found: Mapping[str, Any]) -> str:
    """Return a machine in a sentence."""
    stolen = found.get("stolen_percent")
    taken = "" if stolen is None else f", and its host took {stolen} % of the processors' time meanwhile"
    return (
        f"Measured at {found['at']} on {found['cores']} cores ({found['cpu']}), {found['system']}, "
        f"Python {found['python']}; the machine's load before was {found['load_before']:.1f}{taken}."
    )
