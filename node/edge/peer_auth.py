"""Authentication of nodes: by a name of the cluster's and, where TLS is mutual, a certificate with that name.

Without it, whoever holds any certificate of the authority, a client's too, could speak for a node, or as one
more, and with a node's voice vote.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Any, Final, NoReturn

import grpc
import structlog
from google.protobuf.message import Message

from tarry.node.config import Tls
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, M, MethodHandler, parse
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.transport.interface import PeerGate

log = structlog.get_logger()

NAMES = ("x509_common_name", "x509_subject_alternative_name")
LOG_PERIOD_S: Final = 5.0
CLAIMED_CHARS_MAX: Final = 100
"""Of a claimed name in refusals and the log."""


def peer_gate(tls: Tls | None, admits: Callable[[str], bool]) -> PeerGate:
    """Return the gate for nodes; certificates count where they are mutual, and are to be asked.

    ``admits``: whether there is, or may be, a node of that name in the cluster.
    """
    asked = tls is not None and tls.authority is not None and tls.bind_peers
    refuse = Refusing("peer refused", _not_certified).refuse
    refuse_stranger = Refusing("stranger refused", _unknown).refuse
    return PeerGate(certified_names if asked else _any_name, admits, refuse, refuse_stranger)


class Refusing:
    """Ends calls, and writes one of them to the log now and then: anybody may call as often as they like."""

    def __init__(self, event: str, refusal: Callable[[CallContext, str], Refusal]) -> None:
        """Take ``refusal``, which returns that of a call that claims to be of a node."""
        self._event = event
        self._refusal = refusal
        self._refused = 0
        self._told_s = -LOG_PERIOD_S

    async def refuse(self, context: CallContext, claimed: str) -> NoReturn:
        """End the call of one who claimed to be a node."""
        refusal = self._refusal(context, claimed[:CLAIMED_CHARS_MAX])
        self._refused += 1
        if time.monotonic() - self._told_s >= LOG_PERIOD_S:
            self._told_s = time.monotonic()
            log.warning(self._event, **refusal.facts, peer=context.peer(), so_far=self._refused)
        await abort(context, refusal)
        raise AssertionError("abort returned")


def _unknown(_: CallContext, claimed: str) -> Refusal:
    text = f"{claimed!r} is no node of this cluster: add it first, with `tarry member add`"
    return Refusal(Reason.PEER_UNKNOWN, text, {"claimed": claimed})


def _not_certified(context: CallContext, claimed: str) -> Refusal:
    names = ", ".join(sorted(certified_names(context))) or "nobody"
    text = (
        f"the certificate is of {names}, not of {claimed}: give each node one with its name as common or "
        f"alternative name, or set tls.bind_peers = false"
    )
    return Refusal(Reason.PEER_NOT_CERTIFIED, text, {"claimed": claimed, "certified": names})


def _any_name(_: CallContext) -> Set[str] | None:
    return None


def log_strangers(ended: Mapping[str, int]) -> None:
    """Write to the log what became of connections to the nodes' port that were not of nodes."""
    log.warning("connections to the nodes' port came to nothing", so_far=dict(ended))


class PeerCalls:
    """Checks calls of the node's own services, which only nodes of its cluster may use."""

    def __init__(self, cluster: Callable[[], str], gate: PeerGate) -> None:
        """Take ``cluster``, which returns the name that callers have to give."""
        self._cluster = cluster
        self._gate = gate

    def unary(
        self,
        kind: type[M],
        answer: Callable[[M, CallContext], Awaitable[Message]],
        *,
        strangers: bool = False,
    ) -> MethodHandler:
        """Return the handler of a call whose request names the caller's cluster and node.

        It ends the call of one who is not the node that it claims to be or, without ``strangers``, no node
        of the cluster.
        """
        check = self._gate.check_name if strangers else self._gate.check

        async def handle(raw: bytes, context: CallContext) -> bytes:
            request = parse(kind, raw)
            if isinstance(request, Refusal):
                await abort(context, request)
            caller: Any = request
            await check(context, caller.node)
            if caller.cluster != self._cluster():
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not of {caller.cluster[:100]}")
            return (await answer(request, context)).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(handle)


def certified_names(context: CallContext) -> frozenset[str]:
    """Return the common name and the alternative names of the caller's certificate."""
    shown = context.auth_context()
    return frozenset(name.decode(errors="replace") for key in NAMES for name in shown.get(key, ()))
