"""CancelMatching and PurgeTopic: cancels by what messages have in common, a piece a call."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tarry.node.assembly import Core
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls, Local, parsed
from tarry.node.edge.names import unknown_topic
from tarry.node.services import bulk_cursor
from tarry.node.services.bulk_cancel import BulkCancels
from tarry.node.services.message_filter import checked
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.replication.state_machine.refusal import Refusal

RECORDED_MAX: Final = 256
"""Purges of which the audit log of this node has the beginning."""


class CancelCalls:
    """Answers CancelMatching."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._machine, self._limits = core.machine, core.config.limits
        self._authorizer, self._calls = authorizer, calls
        self._bulk = BulkCancels(core)

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        local = parsed(pb.CancelMatchingRequest, self._cancel)
        return {"CancelMatching": self._calls.unary(f"/{service}/CancelMatching", local)}

    async def _cancel(self, request: pb.CancelMatchingRequest, context: CallContext) -> Answer:
        topic = request.filter.topic
        may = self._authorizer.refusal(context, Right.PRODUCE, [topic])
        if request.dry_run and may is not None:  # to look, any right on the topic is enough
            may = None if self._authorizer.sees(context)(topic) else unknown_topic(topic)
        if refusal := may or unknown_field(request):
            return refusal
        wanted = checked(request.filter, self._machine.queues, self._limits)
        if isinstance(wanted, Refusal):
            return wanted
        exact = self._authorizer.refusal(context, Right.OPERATE) is None
        done = await self._bulk.step(request, wanted, dry_run=request.dry_run, exact=exact)
        if isinstance(done, Refusal):
            return done
        return pb.CancelMatchingResponse(progress=done).SerializeToString()


class PurgeCalls:
    """Answers PurgeTopic; the audit log gets each call that does not go on from the last answer here."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls, audit: Audit) -> None:
        self._machine, self._limits = core.machine, core.config.limits
        self._authorizer, self._calls = authorizer, calls
        self._bulk = BulkCancels(core)
        local: Local = parsed(operator_pb.PurgeTopicRequest, self._purge)
        self._local, self._recorded = local, audit.unary("PurgeTopic", local)
        self._journal = core.journal
        self._given: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        """Hashes of the cursors of the last answers, by caller, queue and request."""

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        return {"PurgeTopic": self._calls.unary(f"/{service}/PurgeTopic", self._told)}

    async def _told(self, raw: bytes, context: CallContext) -> Answer:
        """Answer a call; record it unless its cursor is that of the last answer here, which was recorded."""
        request = parse(operator_pb.PurgeTopicRequest, raw)
        if isinstance(request, Refusal):
            return request
        queue = self._machine.queues.find(request.topic)
        number = -1 if queue is None else queue.queue
        asked = bulk_cursor.hash_of(request, self._journal.cluster_incarnation)
        purge = self._authorizer.name(context), number, asked
        goes_on = bool(request.cursor) and self._given.get(purge) == hash(request.cursor)
        answer = await (self._local if goes_on else self._recorded)(raw, context)
        if isinstance(answer, bytes):
            told = operator_pb.PurgeTopicResponse.FromString(answer).progress
            self._given.pop(purge, None)
            if not told.done:
                self._given[purge] = hash(told.cursor)
            if len(self._given) > RECORDED_MAX:
                self._given.popitem(last=False)
        return answer

    async def _purge(self, request: operator_pb.PurgeTopicRequest, context: CallContext) -> Answer:
        refusal = self._authorizer.refusal(context, Right.OPERATE) or unknown_field(request)
        if refusal is not None:
            return refusal
        wanted = checked(pb.MessageFilter(topic=request.topic), self._machine.queues, self._limits)
        if isinstance(wanted, Refusal):
            return wanted
        done = await self._bulk.step(request, wanted, dry_run=request.dry_run, purge=True)
        if isinstance(done, Refusal):
            return done
        return operator_pb.PurgeTopicResponse(progress=done).SerializeToString()
