"""ReadHistory: what the node's own ledger says of one message, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse
from tarry.node.ledger.history_search import SearchFailed, parts
from tarry.node.services.stored_message import id_of
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.ledger.segment import Closed, OpenSegment
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

SEARCHES_MAX: Final = 2
"""Under way at once."""
SEARCH_S_MAX: Final = 120.0
"""Of one; then it is told how far it has come, and the caller may go on from there."""
TIME_MS_MAX: Final = 2**62
TOLD: Final = ("since_ms", "rows_looked", "rows_left", "complete", "from_beginning", "gaps")
NOT_KNOWN: Final = {"from_beginning": False, "gaps": []}
"""Told to who may not operate, until a row is shown: else all would learn which ids there are."""
FIELDS: Final = (
    "kind",
    "source",
    "term",
    "index",
    "position",
    "at_ms",
    "topic",
    "group",
    "due_ms",
    "offset",
    "attempt",
    "maybe_duplicate",
    "consumer",
    "detail",
    "run",
)


class HistoryCalls:
    """Answers from the ledger."""

    def __init__(self, core: Core, authorizer: Authorizer) -> None:
        self._shard, self._node = core.config.shard, core.config.node
        self._ledger, self._authorizer = core.ledger, authorizer
        self._under_way = 0

    def methods(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        return {"ReadHistory": grpc.unary_stream_rpc_method_handler(self._read)}

    async def _read(self, raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
        request = parse(pb.ReadHistoryRequest, raw)
        named = request if isinstance(request, Refusal) else self._checked(request, context)
        if isinstance(request, Refusal) or isinstance(named, Refusal):
            await abort(context, request if isinstance(request, Refusal) else named)  # type: ignore[arg-type]
        if not self._ledger.enabled:
            yield pb.ReadHistoryResponse(node=self._node).SerializeToString()
            return
        self._under_way += 1
        try:
            await self._ledger.write()
            async for response in self._responses(named, request, context):
                yield response.SerializeToString()
        except SearchFailed as error:
            await abort(context, Refusal(Reason.OVERLOADED, str(error), retry_ms=1_000))
        finally:
            self._under_way -= 1

    def _checked(self, request: pb.ReadHistoryRequest, context: CallContext) -> MessageId | Refusal:
        refusal = self._authorizer.refusal(context, None)
        named = id_of(request.id, self._shard)
        if refusal is not None or isinstance(named, Refusal):
            return refusal or named
        if request.from_ms < 0 or not 0 <= request.until_ms <= TIME_MS_MAX:
            text = f"times are ms since the epoch, from 0 to {TIME_MS_MAX}; until_ms 0 is up to now"
            return Refusal(Reason.QUERY_INVALID, text)
        if self._under_way >= SEARCHES_MAX:
            text = f"{SEARCHES_MAX} searches of this node's ledger are under way: try again"
            return Refusal(Reason.OVERLOADED, text, retry_ms=1_000)
        return named

    async def _responses(
        self, message: MessageId, request: pb.ReadHistoryRequest, context: CallContext
    ) -> AsyncIterator[pb.ReadHistoryResponse]:
        disk = self._ledger.disk
        found: list[Closed | OpenSegment] = [
            *disk.segments,
            *disk.sealed,
            *([disk.open] if disk.open is not None else []),
        ]
        times = request.from_ms, request.until_ms or TIME_MS_MAX
        sees = self._authorizer.sees(context)
        may_know = self._authorizer.refusal(context, Right.OPERATE) is None
        gaps: list[str] = []
        rows_looked = 0
        ends = asyncio.get_running_loop().time() + SEARCH_S_MAX
        of = message.hour, message.global_index
        async with aclosing(parts(found, of, times, apart=disk.closer.apart)) as searched:
            async for part in searched:
                rows = [self._row(row) for row in part["rows"] if sees(row.get("topic", ""))]
                may_know = may_know or bool(rows)
                gaps += part["gaps"]
                rows_looked = max(rows_looked, part["rows_looked"] + part["rows_left"])
                if may_know:
                    yield self._response(part | {"gaps": gaps}, rows)
                    gaps = []
                elif not part["rows"] and not part["complete"]:
                    yield self._response(part | NOT_KNOWN, [])
                if asyncio.get_running_loop().time() >= ends:
                    return
        if not may_know:  # as if there were no such message: then all would have been looked through
            none = {"since_ms": times[0], "rows_looked": rows_looked, "rows_left": 0, "complete": True}
            yield self._response(none | NOT_KNOWN, [])

    def _response(self, part: dict[str, Any], rows: list[pb.HistoryRow]) -> pb.ReadHistoryResponse:
        told = {name: part[name] for name in TOLD}
        return pb.ReadHistoryResponse(node=self._node, has_ledger=True, rows=rows, **told)

    def _row(self, row: dict[str, Any]) -> pb.HistoryRow:
        told = {name: row[name] for name in FIELDS if name in row}
        return pb.HistoryRow(**told)
