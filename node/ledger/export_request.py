"""Requests for an export of the ledger, checked before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarry.node.ledger.writer import Disk
from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.segment import Closed, OpenSegment
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import ExportLedgerRequest
from tarry.replication.state_machine.refusal import Refusal

INDEX_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Progress of an export: so many rows of a segment, whether they were asked for or not."""

    segment: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.segment}.{self.rows}"


def check(request: ExportLedgerRequest) -> Place | Refusal:
    """Return where to begin, or what is wrong with the request."""
    unknown = sorted(set(request.kinds) - set(Kind))
    if unknown:
        text = f"there is no kind {unknown[0]!r}: use some of {', '.join(Kind)}"
        return Refusal(Reason.EXPORT_INVALID, text)
    if max(request.from_index, request.to_index) > INDEX_MAX:
        return Refusal(Reason.EXPORT_INVALID, f"from_index and to_index are at most {INDEX_MAX}")
    if not request.resume:
        return Place()
    segment, point, rows = request.resume.partition(".")
    if not (segment.isdecimal() and point and rows.isdecimal() and max(len(segment), len(rows)) < 16):
        return Refusal(Reason.EXPORT_INVALID, f"resume is {request.resume!r}: give what an export answered")
    return Place(int(segment), int(rows))


def sources(disk: Disk, request: ExportLedgerRequest) -> list[Closed | OpenSegment]:
    """Return what there is to read now, oldest first; to be called on the event loop."""
    found: list[Closed | OpenSegment] = list(disk.segments)
    if request.open:
        found += disk.sealed
        found += [disk.open] if disk.open is not None else []
    return found
