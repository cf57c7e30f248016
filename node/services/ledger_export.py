"""ExportLedger: this node's ledger for whoever reconciles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse
from tarry.node.ledger.export_request import check, sources
from tarry.node.ledger.ledger import Ledger
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.state_machine.refusal import Refusal


def _reader() -> Any:
    """Import what needs pyarrow only now: most nodes are never asked, and it takes 40 MB."""
    from tarry.node.ledger.export import export

    return export


class LedgerCalls:
    """Answers for the ledger of the node itself, whoever leads."""

    def __init__(self, ledger: Ledger, authorizer: Authorizer, audit: Audit) -> None:
        self._ledger = ledger
        self._audit = audit
        self._authorizer = authorizer
        self._under_way = 0

    def methods(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        export = self._audit.stream("ExportLedger", self._export)
        return {"ExportLedger": grpc.unary_stream_rpc_method_handler(export)}

    async def _export(self, raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
        request = parse(pb.ExportLedgerRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE) or self._refusal()
        begin = check(request)
        if refusal is not None or isinstance(begin, Refusal):
            await abort(context, refusal or begin)  # type: ignore[arg-type]
        settings = self._ledger.settings
        self._under_way += 1
        try:
            if request.open:
                await self._ledger.write()
            found = sources(self._ledger.disk, request)
            export = await in_thread(_reader)
            responses = export(found, request, begin, settings.export_rows_max)
            while (response := await in_thread(lambda: next(responses, None))) is not None:
                yield response.SerializeToString()
        finally:
            self._under_way -= 1

    def _refusal(self) -> Refusal | None:
        most = self._ledger.settings.exports_max
        if not self._ledger.enabled:
            return Refusal(Reason.EXPORT_INVALID, "this node writes no ledger: set ledger.enabled")
        if self._under_way >= most:
            return Refusal(
                Reason.OVERLOADED, f"{most} exports are under way (ledger.exports_max)", retry_ms=1_000
            )
        return None
