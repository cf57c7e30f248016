"""The part of OperatorService that looks after topics, groups and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from tarry.node.assembly import Core
from tarry.node.defaults import whole
from tarry.node.delivery.policy import described, described_of_topic
from tarry.node.delivery.redrive import redrive
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, M, MethodHandler, parse, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls, Local, parsed, refusal_of
from tarry.node.edge.names import (
    check_group,
    check_name,
    check_topic,
    no_more_queues,
    unknown_group,
    unknown_topic,
)
from tarry.node.leader.letter_retention import LetterRetention
from tarry.node.services.policy_faults import policy_fault
from tarry.node.services.topic_status import TopicStatuses
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.proto.reasons import Reason
from tarry.proto.tarry_consumer_pb2 import StartAt
from tarry.replication.errors import NotLeader, Overloaded, Unknown
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.outcomes import Changed
from tarry.replication.state_machine.ready_queue import ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal

GROUPS_AT_ONCE: Final = 200
"""Deleted in one turn of the event loop."""

SCHEDULES_AT_ONCE: Final = 500
"""Schedules that recur, likewise."""

RETENTION_MS_MAX: Final = 100 * 365 * 86_400_000


class TopicCalls:
    """Answers operators about topics and groups."""

    def __init__(
        self,
        core: Core,
        authorizer: Authorizer,
        calls: LeaderCalls,
        statuses: TopicStatuses,
        audit: Audit,
    ) -> None:
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._leadership = core.leadership
        self._config, self._limits, self._damage = core.config, core.config.limits, core.damage
        self._authorizer, self._calls = authorizer, calls
        self._statuses = statuses
        self._audit = audit

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        unary = {
            "CreateTopic": self._unary(pb.CreateTopicRequest, self._create_topic),
            "DescribeTopic": self._unary(pb.DescribeTopicRequest, self._describe_topic),
            "DeleteTopic": self._unary(pb.DeleteTopicRequest, self._delete_topic),
            "CreateGroup": self._unary(pb.CreateGroupRequest, self._create_group),
            "DeleteGroup": self._unary(pb.DeleteGroupRequest, self._delete_group),
            "SetGroup": self._unary(pb.SetGroupRequest, self._set_group),
            "DescribeGroup": self._unary(pb.DescribeGroupRequest, self._describe_group),
            "SeekGroup": self._unary(pb.SeekGroupRequest, self._seek_group),
        }
        handlers = {
            name: self._calls.unary(f"/{service}/{name}", self._audit.unary(name, local))
            for name, local in unary.items()
        }
        handlers["Redrive"] = grpc.unary_stream_rpc_method_handler(
            self._audit.stream("Redrive", self._redrive)
        )
        return handlers

    def _unary(self, kind: type[M], answer: Callable[[M], Awaitable[Message | Refusal]]) -> Local:
        async def local(request: M, context: CallContext) -> Answer:
            refusal = self._authorizer.refusal(context, Right.OPERATE)
            refusal = refusal or unknown_field(request) or self._names(request)
            try:
                result = refusal or await answer(request)
            except UnitsDamaged as damage:
                result = self._mends(damage)
            return result if isinstance(result, Refusal) else result.SerializeToString()

        return parsed(kind, local)

    def _mends(self, damage: UnitsDamaged) -> Refusal:
        """Have units mended that a call could not read; what is delivered meanwhile is not its concern."""
        self._damage.queues.report(damage)
        return Refusal(Reason.NO_LEADER, "a ready queue of the topic is being mended", retry_ms=1_000)

    def _names(self, request: Any) -> Refusal | None:
        refusal = check_topic(request.topic, self._limits)
        if refusal is None and "group" in request.DESCRIPTOR.fields_by_name:
            group, _, member = request.group.partition("~")
            refusal = check_group(group, self._limits)
            if refusal is None and member:
                limit = self._limits.group_chars_max
                refusal = check_name(member, limit, Reason.GROUP_INVALID, "broadcast consumer")
        return refusal

    async def _propose_now(self, payload: Any) -> Changed | Refusal:
        payload.now_ms = self._time.now_ms()
        return await self._propose(payload)

    async def _propose(self, payload: Message) -> Changed | Refusal:
        moves = isinstance(payload, log_pb.SubscribeCommand | log_pb.SeekCommand)
        propose = self._leadership.group_moves.propose if moves else self._driver.propose
        outcome: Changed | Refusal = await propose(self._machine.encode(payload), cost_us(payload))
        return outcome

    async def _create_topic(self, request: pb.CreateTopicRequest) -> Message | Refusal:
        settings = request.settings
        longest_ms = max(settings.retention_ms, settings.retention_max_ms)
        if longest_ms > RETENTION_MS_MAX or settings.body_bytes_max > self._limits.body_bytes_max:
            text = f"at most retention_ms and retention_max_ms {RETENTION_MS_MAX}"
            text += f", body_bytes_max {self._limits.body_bytes_max}"
            return Refusal(Reason.SETTING_INVALID, text)
        if text := _misfire_fault(settings) or policy_fault(
            self._config, settings.group_policy, topic=request.topic
        ):
            return Refusal(Reason.SETTING_INVALID, text)
        queues = self._machine.queues
        if queues.find(request.topic) is None and (full := no_more_queues(queues, self._limits)):
            return full
        await self._propose_now(log_pb.TopicCommand(topic=request.topic, settings=settings))
        return await self._describe_topic(pb.DescribeTopicRequest(topic=request.topic))

    async def _describe_topic(self, request: pb.DescribeTopicRequest) -> Message | Refusal:
        await self._driver.read_barrier()
        queue = self._machine.queues.find(request.topic)
        if queue is None:
            return unknown_topic(request.topic)
        status = await self._statuses.one(queue)
        policy, set_by = described_of_topic(self._machine.queues, self._config, request.topic)
        kept_ms, set_by["retention_ms"] = await self._retention(queue)
        return pb.DescribeTopicResponse(
            topic=status, settings=queue.settings, policy=policy, retention_ms=kept_ms, set_by=set_by
        )

    async def _retention(self, queue: ReadyQueue) -> tuple[int, str]:
        """Return how long a topic's released messages are kept, and who says so."""
        if queue.settings.retention_ms:
            return queue.settings.retention_ms, "topic"
        if queue.topic.startswith(DEAD_LETTERS):
            letters = LetterRetention(self._machine, self._config)
            await letters.read()
            if (of_letters := letters.of(queue.topic)) is not None:
                return of_letters, "groups"
        settings, set_by = whole(self._machine.queues.defaults, self._config)
        return settings.retention_ms, set_by["retention_ms"]

    async def _delete_topic(self, request: pb.DeleteTopicRequest) -> Message | Refusal:
        groups, pending = await self._delete_groups(request.topic)
        recurring = await self._delete_recurring(request.topic)
        done = await self._propose_now(log_pb.DeleteTopicCommand(topic=request.topic))
        return (
            done
            if isinstance(done, Refusal)
            else pb.DeleteTopicResponse(
                released=done.count,
                groups=groups + done.groups,
                pending=pending + done.pending,
                recurring=recurring + done.recurring,
            )
        )

    async def _delete_recurring(self, topic: str) -> int:
        """Delete what schedules a topic has beyond those that go with it in one command; return how many."""
        numbers = self._machine.recurring.numbers_of(topic)[SCHEDULES_AT_ONCE:]
        for start in range(0, len(numbers), SCHEDULES_AT_ONCE):
            some = numbers[start : start + SCHEDULES_AT_ONCE]
            change = log_pb.RECURRING_CHANGE_DELETE
            command = log_pb.RecurringCommand(change=change, numbers=some, topics=[topic])
            await self._propose_now(command)
        return len(numbers)

    async def _delete_groups(self, topic: str) -> tuple[int, int]:
        """Delete what groups a topic has beyond those that go with it in one command.

        Return how many, and how many retries of theirs were pending.
        """
        queue, deleted, pending = self._machine.queues.find(topic), 0, 0
        groups = self._machine.queues.groups_of(queue.queue)[GROUPS_AT_ONCE:] if queue else []
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            done = await asyncio.gather(
                *(
                    self._propose_now(log_pb.DeleteGroupCommand(topic=topic, group=group))
                    for group in groups[start : start + GROUPS_AT_ONCE]
                )
            )
            deleted += sum(not isinstance(one, Refusal) for one in done)
            pending += sum(one.pending for one in done if not isinstance(one, Refusal))
        return deleted, pending

    async def _create_group(self, request: pb.CreateGroupRequest) -> Message | Refusal:
        if request.expiry_ms > RETENTION_MS_MAX:
            return Refusal(Reason.SETTING_INVALID, f"expiry_ms is at most {RETENTION_MS_MAX}")
        queues = self._machine.queues
        if queues.find(request.topic, request.group) is None and (
            full := no_more_queues(queues, self._limits)
        ):
            return full
        await self._propose_now(
            log_pb.SubscribeCommand(
                topic=request.topic,
                group=request.group,
                start=request.start,
                life=log_pb.GROUP_LIFE_EXPIRES if request.expiry_ms else log_pb.GROUP_LIFE_UNSPECIFIED,
                expiry_ms=request.expiry_ms,
                asked=True,
            )
        )
        queues = self._machine.queues
        queue = queues.find(request.topic)
        known = None if queue is None else queues.acknowledged.get((request.group, queue.queue))
        if known is None:
            return Refusal(
                Reason.GROUP_UNKNOWN, f"group {request.group!r} has just been deleted: create it again"
            )
        return pb.CreateGroupResponse(offset=known.floor)

    async def _delete_group(self, request: pb.DeleteGroupRequest) -> Message | Refusal:
        done = await self._propose_now(log_pb.DeleteGroupCommand(topic=request.topic, group=request.group))
        return done if isinstance(done, Refusal) else pb.DeleteGroupResponse(unacknowledged=done.count)

    async def _set_group(self, request: pb.SetGroupRequest) -> Message | Refusal:
        if text := policy_fault(self._config, request.policy, request.unset, request.topic):
            return Refusal(Reason.SETTING_INVALID, text)
        done = await self._propose_now(
            log_pb.GroupPolicyCommand(
                topic=request.topic, group=request.group, policy=request.policy, unset=request.unset
            )
        )
        return done if isinstance(done, Refusal) else await self._described(request.topic, request.group)

    async def _describe_group(self, request: pb.DescribeGroupRequest) -> Message | Refusal:
        await self._driver.read_barrier()
        return await self._described(request.topic, request.group)

    async def _described(self, topic: str, group: str) -> Message | Refusal:
        consumers, left_out = await self._statuses.consumers(topic, group)
        queue = self._machine.queues.find(topic)
        if queue is None:
            return unknown_topic(topic)
        status = self._statuses.group(queue, group)
        if status is None:
            return unknown_group(topic, group)
        policy, own, set_by = described(self._machine.queues, self._config, topic, group)
        return pb.DescribeGroupResponse(
            group=status,
            policy=policy,
            own=own,
            set_by=set_by,
            consumers=consumers,
            consumers_left_out=left_out,
        )

    async def _seek_group(self, request: pb.SeekGroupRequest) -> Message | Refusal:
        await self._driver.read_barrier()
        queue = self._machine.queues.find(request.topic)
        if queue is None:
            return unknown_topic(request.topic)
        known = self._machine.queues.acknowledged.get((request.group, queue.queue))
        if known is None:
            return unknown_group(request.topic, request.group)
        offset = _target(queue, request)
        if isinstance(offset, Refusal):
            return offset
        above = known.acked.range_cardinality(known.floor, max(offset, known.floor))
        response = pb.SeekGroupResponse(
            from_offset=known.floor,
            to_offset=offset,
            delivered_again=max(0, known.floor - offset) + (len(known.acked) if offset < known.floor else 0),
            skipped=max(0, offset - known.floor) - above,
        )
        if not request.dry_run:
            seek = log_pb.SeekCommand(topic=request.topic, group=request.group, offset=offset)
            done = await self._propose_now(seek)
            if isinstance(done, Refusal):
                return done
        return response

    async def _redrive(self, raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
        request = parse(pb.RedriveRequest, raw)
        if isinstance(request, Refusal):
            await abort(context, request)
        refusal = self._authorizer.refusal(context, Right.OPERATE)
        refusal = refusal or unknown_field(request) or self._calls.not_here()
        if refusal is not None:
            await abort(context, refusal)
        try:
            machine, most = self._machine, self._limits.retries_bytes_max
            async for progress in redrive(
                machine, self._damage, self._propose, self._time.now_ms, request, most
            ):
                if isinstance(progress, Refusal):
                    await abort(context, progress)
                yield progress.SerializeToString()
        except NotLeader:
            await abort(context, self._calls.not_here() or refusal_of(Overloaded(100)))
        except (Overloaded, Unknown) as error:
            await abort(context, refusal_of(error))
        except UnitsDamaged as damage:
            await abort(context, self._mends(damage))


def _misfire_fault(settings: pb.TopicSettings) -> str:
    catches_up = settings.misfire == pb.MisfirePolicy.MISFIRE_POLICY_CATCH_UP
    if settings.misfire not in pb.MisfirePolicy.values():
        return f"there is no misfire policy {settings.misfire}: use one of {pb.MisfirePolicy.keys()}"
    if settings.misfire and not settings.misfire_after_ms:
        return "a misfire policy needs misfire_after_ms: from when on a message counts as misfired"
    if settings.misfire_after_ms > RETENTION_MS_MAX:
        return f"misfire_after_ms is at most {RETENTION_MS_MAX}"
    if catches_up != bool(settings.catch_up_per_s_max):
        return "MISFIRE_POLICY_CATCH_UP and catch_up_per_s_max go together: give both or none"
    return ""


def _target(queue: ReadyQueue, request: pb.SeekGroupRequest) -> int | Refusal:
    if request.WhichOneof("to") == "offset":
        return max(queue.first, min(request.offset, queue.units))
    match request.start.at:
        case StartAt.START_AT_EARLIEST:
            return queue.first
        case StartAt.START_AT_LATEST:
            return queue.units
        case StartAt.START_AT_TIME:
            return queue.find_released(request.start.time_ms)
        case _:
            return Refusal(Reason.SEEK_INVALID, "say where to: an offset, earliest, latest or a time")
