"""Mark of a node that went on alone, from its recovery until its ledger tells of it.

    data/recovered-alone   index, time and incarnation: `120 1764288000000 171`

It is written before the journal is that of the incarnation, so that no crash leaves a hole of which nothing
tells; until then, and where the recovery is never finished, it counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tarry.proto.files import replace_file

RECOVERED: Final = "recovered-alone"
"""Its file in the data folder."""


@dataclass(frozen=True, slots=True)
class WentAlone:
    """A node went on alone."""

    index: int
    """Behind it may be a hole."""
    at_ms: int
    """By the node's clock: what others have behind the index and from before is given up."""
    incarnation: int
    """Of the cluster that it is since then."""


def mark(data: Path, alone: WentAlone) -> None:
    """Mark a data folder, durably. Raises OSError."""
    replace_file(data / RECOVERED, f"{alone.index} {alone.at_ms} {alone.incarnation}".encode())


def marked(data: Path, incarnation: int) -> WentAlone | None:
    """Return the mark of a node whose journal is of that incarnation; delete one of another.

    Raises OSError.
    """
    file = data / RECOVERED
    if not file.exists():
        return None
    alone = WentAlone(*map(int, file.read_bytes().split()))
    if alone.incarnation == incarnation:
        return alone
    file.unlink()
    return None


def forget(data: Path) -> None:
    """Delete the mark: the ledger tells of it. Raises OSError."""
    (data / RECOVERED).unlink(missing_ok=True)
