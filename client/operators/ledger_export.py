"""Export of a node's ledger over the network."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TypedDict

from grpc import aio

from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import InvalidSetting, error_of_call
from tarry.proto.ledger.schema import Manifest
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import ExportLedgerRequest


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


async def export(nodes: Nodes, address: str, only: Only) -> AsyncGenerator[LedgerPart]:
    """Yield what the node at an address has, oldest first; see ``Operator.export_ledger``."""
    try:
        request = ExportLedgerRequest(**only)
    except ValueError as error:
        raise InvalidSetting(
            Reason.EXPORT_INVALID, f"a bound is beyond what can be asked for: {error}"
        ) from None
    try:
        async for part in nodes.node(address).operator.ExportLedger(request, metadata=nodes.metadata):
            yield LedgerPart(json.loads(part.segment), part.rows, part.count, part.resume)
    except aio.AioRpcError as failure:
        raise error_of_call(failure) from failure
