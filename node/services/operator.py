"""OperatorService: what a cluster is doing, who leads it, and who its members are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final, cast

import grpc

from tarry.node.assembly import Core
from tarry.node.config import ADDRESS, NODE_NAME
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, M, ServiceHandler, parse, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls, Local, parsed
from tarry.node.leader.leftovers import pending_of_live
from tarry.node.leader.settings_watch import differing
from tarry.node.loop_watchdog import turns
from tarry.node.recovery.checkpoints import in_turns
from tarry.node.recovery.rejoin_service import ADD_DEADLINE_MS, too_few_left
from tarry.node.services.audit_log import AuditCalls
from tarry.node.services.backup import BackupCalls
from tarry.node.services.cancel_matching import PurgeCalls
from tarry.node.services.cluster_settings import ClusterCalls
from tarry.node.services.ledger_export import LedgerCalls
from tarry.node.services.pending_export import ExportCalls
from tarry.node.services.topic_admin import TopicCalls
from tarry.node.services.topic_status import TopicStatuses
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.version import VERSION
from tarry.replication.blocking import in_thread
from tarry.replication.errors import LevelRefused, MembershipRefused, NotLeader, TransferRefused
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.status import Hello, PeerStatus
from tarry.wheel.state import SECOND_MS

SERVICE: Final = "tarry.v1.OperatorService"
TRANSFER_DEADLINE_MS: Final = 5_000
AHEAD_S_MAX: Final = 3_600
"""Of which a status says what is due: two hours' slots are looked at."""


class OperatorService:
    """Answers operators."""

    def __init__(
        self, core: Core, authorizer: Authorizer, calls: LeaderCalls, audit: Audit | None = None
    ) -> None:
        """Take `audit`, where calls are recorded; None: nowhere."""
        self._audit = audit or Audit.none(authorizer)
        self._audit_status = core.audit
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._damage, self._ledger, self._holds = core.damage, core.ledger, core.holds
        self._leadership, self._blocked, self._reload = core.leadership, core.blocked, core.reload
        self._finish = core.config.upgrade.finish
        self._authorizer, self._calls = authorizer, calls
        self._ledger_calls = LedgerCalls(core.ledger, authorizer, self._audit)
        self._audit_calls = AuditCalls(core.config.audit, core.config.node, authorizer, self._audit)
        self._backup_calls = BackupCalls(core, authorizer, self._audit)
        self._export_calls = ExportCalls(core, authorizer, self._audit)
        self._cluster_calls = ClusterCalls(core)
        self._purge_calls = PurgeCalls(core, authorizer, calls, self._audit)
        self._topics = TopicStatuses(core)
        self._topic_calls = TopicCalls(core, authorizer, calls, self._topics, self._audit)

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        unary = {
            "TransferLeadership": self._operated(pb.TransferLeadershipRequest, self._transfer),
            "AddMember": self._operated(pb.AddMemberRequest, self._add_member),
            "RemoveMember": self._operated(pb.RemoveMemberRequest, self._remove_member),
            "FinishUpgrade": self._operated(pb.FinishUpgradeRequest, self._finish_upgrade),
            "SetCluster": self._operated(pb.SetClusterRequest, self._cluster_calls.set),
            "DescribeCluster": self._operated(pb.DescribeClusterRequest, self._cluster_calls.describe),
        }
        methods = {
            "ClusterStatus": grpc.unary_unary_rpc_method_handler(self._cluster_status),
            **{
                name: self._calls.unary(f"/{SERVICE}/{name}", self._audit.unary(name, local))
                for name, local in unary.items()
            },
            **self._topic_calls.methods(SERVICE),
            **self._purge_calls.methods(SERVICE),
            **self._ledger_calls.methods(),
            **self._backup_calls.methods(),
            **self._audit_calls.methods(),
            **self._export_calls.methods(),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _operated(self, kind: type[M], answer: Callable[[M], Awaitable[Answer]]) -> Local:
        async def local(request: M, context: CallContext) -> Answer:
            refusal = self._authorizer.refusal(context, Right.OPERATE) or unknown_field(request)
            return refusal or await answer(request)

        return parsed(kind, local)

    async def _cluster_status(self, raw: bytes, context: CallContext) -> bytes:
        request = parse(pb.ClusterStatusRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        if request.digest:
            return await self._audit.answers("ClusterStatus", self._digested_status)(raw, context)
        if (refusal := self._authorizer.refusal(context, None)) is not None:
            await abort(context, refusal)
        if request.brief:
            return self._brief().SerializeToString()
        full = self._full()
        full.rights.CopyFrom(self._rights(context))
        full.pending_ahead.extend(self._pending_ahead(full.now_ms, min(request.seconds_ahead, AHEAD_S_MAX)))
        return full.SerializeToString() + await self._topics.all(self._authorizer.sees(context))

    async def _digested_status(self, raw: bytes, context: CallContext) -> bytes:
        if (refusal := self._authorizer.refusal(context, Right.OPERATE)) is not None:
            await abort(context, refusal)
        topics = await self._topics.all(self._authorizer.sees(context))
        await in_turns(self._machine.build, self._holds)
        full, digest = self._full(), self._machine.digested()
        full.state_digest = await in_thread(digest)
        full.rights.CopyFrom(self._rights(context))
        return full.SerializeToString() + topics

    def _rights(self, context: CallContext) -> pb.Rights:
        of = self._authorizer.rights(context)
        return pb.Rights(token=of.name, produce=of.produce, consume=of.consume, operate=of.operate)

    def _pending_ahead(self, now_ms: int, seconds: int) -> list[int]:
        """Return what is pending of each of so many seconds; nothing where it is not known."""
        pending = self._machine.wheel.pending_seconds(now_ms // SECOND_MS, seconds) if seconds else None
        return [] if pending is None else cast(list[int], pending.tolist())

    def _brief(self) -> pb.ClusterStatusResponse:
        status = self._driver.status()
        return pb.ClusterStatusResponse(
            node=status.node,
            leader=status.leader or "",
            term=status.term,
            members=self._members(),
            version=VERSION,
            lease=status.may_serve and self._leadership.delivery is not None,
        )

    def _full(self) -> pb.ClusterStatusResponse:
        wheel, queues, now_ms = self._machine.wheel, self._machine.queues, self._time.now_ms()
        overdue, oldest_overdue_ms = wheel.overdue(now_ms)
        lateness = self._leadership.lateness
        full = pb.ClusterStatusResponse(
            commit_index=self._driver.status().commit_index,
            applied_index=self._machine.applied_index,  # the digest's, also as a peer's state is swapped in
            pending=pending_of_live(self._machine),
            ready=queues.unacknowledged(),
            frontier_ms=self._machine.frontier_ms,
            tick=wheel.tick,
            local_index=wheel.local_index,
            now_ms=now_ms,
            damaged_found=self._damage.found,
            damaged_repaired=self._damage.repaired,
            damaged_left=self._damage.left,
            ledger=self._ledger.status(),
            turns=turns(self._holds),
            reload=pb.ReloadStatus(**asdict(self._reload)),
            audit=pb.AuditStatus(**asdict(self._audit_status)),
            level=self._machine.level,
            level_max=self._driver.status().hello.level,
            upgrade_finish=self._finish,
            differing=[pb.SettingDifference(**asdict(one)) for one in differing(self._driver)],
            flush_ms=queues.defaults.flush_ms,
            unflushed=self._driver.status().unflushed,
            no_boot_id=not self._driver.status().may_defer,
            overdue=overdue,
            oldest_overdue_ms=oldest_overdue_ms,
            lateness=None if lateness is None else lateness.of_all(now_ms),
        )
        full.MergeFrom(self._brief())
        return full

    def _members(self) -> list[pb.Member]:
        status = self._driver.status()
        peers, blocked = status.peers, self._blocked()
        return [
            pb.Member(
                node=node,
                address=address,
                connected=node == status.node or peers[node].connected,
                match_index=status.last_index if node == status.node else peers[node].match_index,
                clock_offset_ms=0 if node == status.node else _offset_ms(peers[node]),
                blocked=f"{blocked[node].address}: {blocked[node].why}" if node in blocked else "",
                **_said(status.hello if node == status.node else peers[node].hello),
            )
            for node, address in sorted(status.members.items())
        ]

    async def _transfer(self, request: pb.TransferLeadershipRequest) -> Answer:
        deadline_ms = request.deadline_ms or TRANSFER_DEADLINE_MS
        try:
            done = await self._driver.transfer(request.target or None, deadline_ms)
        except TransferRefused as refused:
            facts = {"cause": refused.reason.value}
            return Refusal(Reason.TRANSFER_REFUSED, str(refused), facts, retry_ms=200)
        return pb.TransferLeadershipResponse(
            leader=done.leader, term=done.term, pause_ms=done.pause_ms
        ).SerializeToString()

    async def _add_member(self, request: pb.AddMemberRequest) -> Answer:
        if NODE_NAME.fullmatch(request.node) is None or ADDRESS.fullmatch(request.address) is None:
            text = "name the node (lower-case letters, digits, '-') and its address, host:port"
            return Refusal(Reason.MEMBER_INVALID, text)
        try:
            await self._driver.add(request.node, request.address, request.deadline_ms or ADD_DEADLINE_MS)
        except MembershipRefused as refused:
            return Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000)
        return self._members_answer()

    async def _remove_member(self, request: pb.RemoveMemberRequest) -> Answer:
        status = self._driver.status()
        if refusal := too_few_left(status, request.node):
            return refusal
        try:
            if request.node == status.node:
                done = await self._driver.transfer(None, TRANSFER_DEADLINE_MS)
                raise NotLeader(done.leader)  # which is asked in turn
            await self._driver.remove(request.node)
        except (MembershipRefused, TransferRefused) as refused:
            return Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000)
        return self._members_answer()

    async def _finish_upgrade(self, _: pb.FinishUpgradeRequest) -> Answer:
        try:
            level = await self._leadership.upgrade.finish()
        except LevelRefused as refused:
            return Refusal(Reason.UPGRADE_REFUSED, str(refused), retry_ms=1_000)
        except MembershipRefused as refused:
            return Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000)
        return pb.FinishUpgradeResponse(level=level).SerializeToString()

    def _members_answer(self) -> bytes:
        return pb.MembersResponse(members=self._members()).SerializeToString()


def _said(hello: Hello | None) -> dict[str, Any]:
    return {"version": hello.version, "level_max": hello.level} if hello is not None else {}


def _offset_ms(peer: PeerStatus) -> int:
    """Return the peer's clock minus this node's; 0 where the difference may be one of measuring alone."""
    offset_ms = peer.clock_offset_ms or 0.0
    return 0 if abs(offset_ms) <= peer.clock_error_ms else round(offset_ms)
