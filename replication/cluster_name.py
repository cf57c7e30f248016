"""Name under which nodes of one cluster know each other: the configured one and the cluster's incarnation.

A cluster that is restored from a backup, or that a survivor goes on with alone, becomes another: it draws a
random incarnation, and from then on carries it in its name. Every message between nodes bears that name, so
nothing that a member of before says counts, and none of its data comes in.
"""

from __future__ import annotations

import re
from typing import Final

_FULL: Final = re.compile(r"(.*)#([0-9a-f]{16})", re.DOTALL)


def full_name(cluster: str, incarnation: int) -> str:
    """Return the name of a cluster; its first incarnation, 0, bears the configured one alone."""
    return f"{cluster}#{incarnation:016x}" if incarnation else cluster


def parts_of(full: str) -> tuple[str, int]:
    """Return the configured name and the incarnation in a full one."""
    found = _FULL.fullmatch(full)
    return (full, 0) if found is None else (found[1], int(found[2], 16))
