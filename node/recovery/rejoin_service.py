"""MembershipService: nodes that lost their data leave and come back. Nodes alone may call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import grpc

from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, ServiceHandler
from tarry.node.edge.leader_calls import refusal_of
from tarry.node.edge.peer_auth import PeerCalls
from tarry.node.recovery.rejoin import SERVICE
from tarry.proto import tarry_peer_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.driver.driver import Driver
from tarry.replication.errors import MembershipRefused, NotLeader, Overloaded, Unknown
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.status import ReplicationStatus, loses_quorum

ADD_DEADLINE_MS: Final = 60_000


class MembershipService:
    """Answers nodes, where this one leads."""

    def __init__(
        self,
        driver: Driver,
        not_here: Callable[[], Refusal | None],
        peers: PeerCalls,
    ) -> None:
        self._driver = driver
        self._not_here = not_here
        self._peers = peers

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        # who is no member any more may be told so
        leave = self._peers.unary(pb.LeaveRequest, self._leave, strangers=True)
        join = self._peers.unary(pb.JoinRequest, self._join)
        return grpc.method_handlers_generic_handler(SERVICE, {"Leave": leave, "Join": join})

    async def _leave(self, request: pb.LeaveRequest, context: CallContext) -> pb.LeaveResponse:
        await self._check_here(context)
        if refusal := too_few_left(self._driver.status(), request.node):
            await abort(context, refusal)
        await self._done(context, self._driver.leave(request.node, request.incarnation))
        return pb.LeaveResponse()

    async def _join(self, request: pb.JoinRequest, context: CallContext) -> pb.JoinResponse:
        await self._check_here(context)
        joining = self._driver.join(request.node, request.address, ADD_DEADLINE_MS, request.incarnation)
        await self._done(context, joining)
        return pb.JoinResponse()

    async def _check_here(self, context: CallContext) -> None:
        refusal = self._not_here()
        if refusal is not None:
            await abort(context, refusal)

    async def _done(self, context: CallContext, change: Awaitable[None]) -> None:
        try:
            await change
        except MembershipRefused as refused:
            await abort(context, Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000))
        except NotLeader:
            text = "leadership was lost meanwhile: ask again"
            await abort(context, self._not_here() or Refusal(Reason.NO_LEADER, text, retry_ms=100))
        except (Overloaded, Unknown) as error:
            await abort(context, refusal_of(error))


def too_few_left(status: ReplicationStatus, node: str) -> Refusal | None:
    """Return why a node cannot be removed: of the others no majority can be reached."""
    if node not in status.members or not loses_quorum(status, node):
        return None
    text = f"without {node} too few of the members left can be reached: start them first"
    return Refusal(Reason.MEMBERSHIP_REFUSED, text, retry_ms=1_000)
