"""CPU time of a system's processes and of its client, from /proc by way of psutil."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from tarry.bench.side_by_side.system import System

MESSAGES: Final = 100_000
"""Figures are seconds for so many messages."""
CLIENT: Final = "client"
ROLES: Final = ("leader", "followers", "servers", CLIENT)


class Meter:
    """CPU seconds since this was made, by role: of the system's processes with their children, of the client.

    The client is this process and what the system names as its client. Threads that have ended count, and
    children that their parent has waited for.
    """

    def __init__(self, system: System) -> None:
        self._pids = system.processes()
        self._before = self._trees()
        self._own_before = _own_s()  # after looking at the others, which is not the client's work

    def _trees(self) -> dict[str, float]:
        return {CLIENT: 0.0, **{role: sum(map(_tree_s, pids)) for role, pids in self._pids.items()}}

    def figures(self, messages: int) -> dict[str, float]:
        """Return `cpu_s` and its parts `cpu_ROLE_s`, for MESSAGES each; none where a process has ended."""
        own = _own_s() - self._own_before
        try:
            now = self._trees()
        except psutil.NoSuchProcess:
            return {}
        now[CLIENT] += own
        share = MESSAGES / max(1, messages)
        parts = {role: (now[role] - self._before[role]) * share for role in ROLES if role in now}
        return {"cpu_s": sum(parts.values()), **{f"cpu_{role}_s": value for role, value in parts.items()}}


def _own_s() -> float:
    times = os.times()
    return times.user + times.system


def _tree_s(pid: int) -> float:
    """Return what a process has spent with all below it, ended children too."""
    process = psutil.Process(pid)
    spent = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            if each is process:
                raise
            continue  # it has ended since: its parent has its time once it has waited for it
        spent += times.user + times.system + times.children_user + times.children_system
    return float(spent)
