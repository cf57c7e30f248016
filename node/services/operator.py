"""OperatorService: what a cluster is doing, and who leads it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Final

import grpc

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Limits
from tarry.node.delivery.delivery import Delivery
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, ServiceHandler, parse
from tarry.node.edge.leader_calls import Answer, LeaderCalls
from tarry.node.ledger.ledger import Ledger
from tarry.node.loop_watchdog import turns
from tarry.node.recovery.checkpoints import in_turns
from tarry.node.repair.records import Damage
from tarry.node.services.ledger_export import LedgerCalls
from tarry.node.services.member_admin import MemberCalls
from tarry.node.services.topic_admin import TopicCalls
from tarry.node.services.topic_status import TopicStatuses
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.driver.driver import Driver
from tarry.replication.errors import TransferRefused
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.status import PeerStatus

SERVICE: Final = "tarry.v1.OperatorService"
VERSION: Final = version("tarry")
TRANSFER_DEADLINE_MS: Final = 5_000


class OperatorService:
    """Answers operators."""

    def __init__(
        self,
        machine: Machine,
        driver: Driver,
        time: ClusterTime,
        authorizer: Authorizer,
        delivery: Callable[[], Delivery | None],
        calls: LeaderCalls,
        limits: Limits,
        damage: Damage,
        ledger: Ledger,
        holds: Holds,
    ) -> None:
        self._ledger = ledger
        self._holds = holds
        self._ledger_calls = LedgerCalls(ledger, authorizer)
        self._damage = damage
        self._machine = machine
        self._driver = driver
        self._time = time
        self._authorizer = authorizer
        self._delivery = delivery
        self._calls = calls
        self._member_calls = MemberCalls(driver, authorizer, calls, self._members)
        self._topics = TopicStatuses(machine, time, delivery)
        self._topic_calls = TopicCalls(
            machine, driver, time, authorizer, limits, calls, damage, self._topics.one
        )

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        path = f"/{SERVICE}/TransferLeadership"
        methods = {
            "ClusterStatus": grpc.unary_unary_rpc_method_handler(self._cluster_status),
            "TransferLeadership": self._calls.unary(path, self._transfer),
            **self._topic_calls.methods(SERVICE),
            **self._member_calls.methods(SERVICE),
            **self._ledger_calls.methods(),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _cluster_status(self, raw: bytes, context: CallContext) -> bytes:
        request = parse(pb.ClusterStatusRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE if request.digest else None)
        if refusal is not None:
            await abort(context, refusal)
        if request.brief:
            return self._brief().SerializeToString()
        topics = await self._topics.all(self._authorizer.sees(context))
        if not request.digest:
            return self._full().SerializeToString() + topics
        await in_turns(self._machine.build, self._holds)
        full, digest = self._full(), self._machine.digested()
        full.state_digest = await in_thread(digest)
        return full.SerializeToString() + topics

    def _brief(self) -> pb.ClusterStatusResponse:
        status = self._driver.status()
        return pb.ClusterStatusResponse(
            node=status.node,
            leader=status.leader or "",
            term=status.term,
            members=self._members(),
            version=VERSION,
            lease=status.may_serve and self._delivery() is not None,
        )

    def _full(self) -> pb.ClusterStatusResponse:
        status = self._driver.status()
        wheel, queues = self._machine.wheel, self._machine.queues
        return pb.ClusterStatusResponse(
            node=status.node,
            leader=status.leader or "",
            term=status.term,
            commit_index=status.commit_index,
            applied_index=self._machine.applied_index,  # the digest's, also as a peer's state is swapped in
            members=self._members(),
            pending=wheel.pending,
            ready=queues.unacknowledged(),
            frontier_ms=self._machine.frontier_ms,
            tick=wheel.tick,
            local_index=wheel.local_index,
            now_ms=self._time.now_ms(),
            version=VERSION,
            lease=status.may_serve and self._delivery() is not None,
            damaged_found=self._damage.found,
            damaged_repaired=self._damage.repaired,
            damaged_left=self._damage.left,
            ledger=self._ledger.status(),
            turns=turns(self._holds),
        )

    def _members(self) -> list[pb.Member]:
        status = self._driver.status()
        peers = status.peers
        return [
            pb.Member(
                node=node,
                address=address,
                connected=node == status.node or peers[node].connected,
                match_index=status.last_index if node == status.node else peers[node].match_index,
                clock_offset_ms=0 if node == status.node else _offset_ms(peers[node]),
            )
            for node, address in sorted(status.members.items())
        ]

    async def _transfer(self, raw: bytes, context: CallContext) -> Answer:
        refusal = self._authorizer.refusal(context, Right.OPERATE)
        if refusal is not None:
            return refusal
        request = parse(pb.TransferLeadershipRequest, raw)
        if isinstance(request, Refusal):
            return request
        deadline_ms = request.deadline_ms or TRANSFER_DEADLINE_MS
        try:
            done = await self._driver.transfer(request.target or None, deadline_ms)
        except TransferRefused as refused:
            facts = {"cause": refused.reason.value}
            return Refusal(Reason.TRANSFER_REFUSED, str(refused), facts, retry_ms=200)
        return pb.TransferLeadershipResponse(
            leader=done.leader, term=done.term, pause_ms=done.pause_ms
        ).SerializeToString()


def _offset_ms(peer: PeerStatus) -> int:
    """Return the peer's clock minus this node's; 0 where the difference may be one of measuring alone."""
    offset_ms = peer.clock_offset_ms or 0.0
    return 0 if abs(offset_ms) <= peer.clock_error_ms else round(offset_ms)
