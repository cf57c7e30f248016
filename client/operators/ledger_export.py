"""Parts and bounds of an export of a node's ledger over the network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from tarry.proto.ledger.schema import Manifest


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Rows of one segment of a node's ledger."""

    segment: Manifest
    rows: bytes
    """An Arrow IPC stream of one batch: ``pyarrow.ipc.open_stream(part.rows).read_all()``."""
    count: int
    resume: str
    """Gives an export that goes on behind this part."""


class Only(TypedDict, total=False):
    """Bounds of the rows of an export; an absent key is no bound."""

    resume: str  # behind the part that said so
    from_ms: int  # at_ms
    to_ms: int  # exclusive
    from_index: int
    to_index: int  # exclusive
    kinds: Iterable[str]
    open: bool  # also rows that are in no closed segment yet
