"""ReadAudit: the node's own audit log for operators, whoever leads."""

from __future__ import annotations

from functools import partial
from typing import Final

import grpc

from tarry.node.config import AuditSettings
from tarry.node.edge.audit import Audit
from tarry.node.edge.audit_pages import CURSOR, LINES, LINES_MAX, Piece, Wanted, read_piece
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse, unknown_field
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.state_machine.refusal import Refusal

READS_MAX: Final = 2
"""Under way at once."""
TIME_MS_MAX: Final = 2**62


class AuditCalls:
    """Answers from the audit log; each reading is a call that it has."""

    def __init__(self, settings: AuditSettings, node: str, authorizer: Authorizer, audit: Audit) -> None:
        self._settings, self._node = settings, node
        self._authorizer, self._audit = authorizer, audit
        self._under_way = 0

    def methods(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        return {
            "ReadAudit": grpc.unary_unary_rpc_method_handler(self._audit.answers("ReadAudit", self._read))
        }

    async def _read(self, raw: bytes, context: CallContext) -> bytes:
        request = parse(pb.ReadAuditRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE) or self._nonsense(request)
        if refusal is not None:
            await abort(context, refusal)
        piece = Piece()
        if (file := self._settings.file) is not None:
            wanted = Wanted(
                request.from_ms,
                request.to_ms,
                request.token,
                request.method,
                min(request.lines_max or LINES, LINES_MAX),
            )
            self._under_way += 1
            try:
                read = partial(read_piece, file, self._settings.files_max, wanted, request.cursor)
                piece = await in_thread(read)
            except OSError as error:
                text = f"the audit log cannot be read ({error.strerror}): mend that and ask again"
                await abort(context, Refusal(Reason.AUDIT_UNREADABLE, text, retry_ms=1_000))
            finally:
                self._under_way -= 1
        return pb.ReadAuditResponse(
            node=self._node,
            has_audit=file is not None,
            lines=piece.lines,
            cursor=piece.cursor,
            looked_to_ms=piece.looked_to_ms,
            unreadable=piece.unreadable,
        ).SerializeToString()

    def _nonsense(self, request: pb.ReadAuditRequest) -> Refusal | None:
        if (unknown := unknown_field(request)) is not None:
            return unknown
        if not 0 <= request.from_ms <= TIME_MS_MAX or not 0 <= request.to_ms <= TIME_MS_MAX:
            return Refusal(Reason.QUERY_INVALID, f"times are ms since the epoch, from 0 to {TIME_MS_MAX}")
        if request.cursor and CURSOR.fullmatch(request.cursor) is None:
            return Refusal(Reason.QUERY_INVALID, "the cursor is none that ReadAudit has answered with")
        if self._under_way >= READS_MAX:
            text = f"{READS_MAX} readings of this node's audit log are under way: try again"
            return Refusal(Reason.OVERLOADED, text, retry_ms=1_000)
        return None
