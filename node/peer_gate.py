"""Which node a caller may speak for: the one whose name its certificate carries.

Without it, whoever holds any certificate of the authority, a client's too, could speak for a node, and with a
node's voice vote.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

import structlog

from tarry.node.calls import CallContext, metadata_value
from tarry.node.config import Tls
from tarry.node.status import abort
from tarry.replication.refusal import Reason, Refusal
from tarry.replication.transport_protocol import ANYBODY, PeerGate

log = structlog.get_logger()

NAMES = ("x509_common_name", "x509_subject_alternative_name")


def peer_gate(tls: Tls | None) -> PeerGate:
    """Return the gate for nodes; everybody passes where certificates are not mutual, or not to be asked."""
    asked = tls is not None and tls.authority is not None and tls.bind_peers
    return PeerGate(certified_names, refuse) if asked else ANYBODY


class Peers:
    """Tells nodes from others, on calls of the node's own services."""

    def __init__(self, token: str, gate: PeerGate) -> None:
        self._token = token
        self._gate = gate

    async def check(self, context: CallContext, claimed: str) -> None:
        """End the call of one who is not the node that it claims to be."""
        shown = metadata_value(context.invocation_metadata(), "authorization")
        given = shown.removeprefix("Bearer ") if isinstance(shown, str) else ""
        if self._token and not hmac.compare_digest(self._token.encode(), given.encode()):
            await abort(context, Refusal(Reason.UNAUTHENTICATED, "only nodes of the cluster are answered"))
        names = self._gate.names(context)
        if names is not None and claimed not in names:
            await self._gate.refuse(context, claimed)


def certified_names(context: CallContext) -> frozenset[str]:
    """Return the common name and the alternative names of the caller's certificate."""
    shown = context.auth_context()
    return frozenset(name.decode(errors="replace") for key in NAMES for name in shown.get(key, ()))


async def refuse(context: CallContext, claimed: str) -> NoReturn:
    """End the call of a caller that claims to be another node than its certificate says."""
    names = ", ".join(sorted(certified_names(context))) or "nobody"
    log.error("peer refused", claimed=claimed, certified=names, peer=context.peer())
    text = (
        f"the certificate is of {names}, not of {claimed}: give each node one with its name as common or "
        f"alternative name, or set tls.bind_peers = false"
    )
    await abort(context, Refusal(Reason.PEER_NOT_CERTIFIED, text, {"claimed": claimed}))
    raise AssertionError("abort returned")
