"""RecurringService: schedules that recur are created, changed, looked at and triggered, at the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final, NamedTuple

import grpc
import numpy as np
from google.protobuf.message import Message

from tarry.node.assembly import Core
from tarry.node.defaults import delay_levels_ms
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext, M, ServiceHandler, unknown_field
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer, LeaderCalls, Local, parsed
from tarry.node.edge.names import check_name, check_topic, no_more_queues, unknown_topic
from tarry.node.recurring.timing import Timing, TimingInvalid, timing_of
from tarry.node.services.schedule_request import Intake, body_too_large
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.outcomes import Fired, Recurred
from tarry.replication.state_machine.recurring import TRIGGERED, unknown
from tarry.replication.state_machine.recurring_table import NONE_COMES, Entry
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX

SERVICE: Final = "tarry.v1.RecurringService"
COMES_WITHIN_MS: Final = 10 * 366 * 86_400_000
"""A schedule fires first within so long of its start: what never matches would be searched for each time."""
FIRES_MAX: Final = 1_000
"""Of one answer."""
FIRES: Final = 10
"""Where the caller asks for no number."""
PAGE_MAX: Final = 1_000
PAGE: Final = 100
PAGE_BYTES: Final = 1 << 20
"""Of schedules' states in a page."""
NAMES: Final = 20_000
"""Looked at for one page; of other topics, or that the caller may not know of, there may be more."""
ENTRIES: Final = 100
"""Told of in one turn of the event loop."""
SEARCHES_MAX: Final = 4
"""Computations of fires at once, in threads of their own."""
SEARCHES_WAITING_MAX: Final = 100
"""Calls that wait for one, each with its request in memory; beyond, they are refused."""
DECIDED_MS: Final = 1_000
"""In which a leader has decided fires that have come, before a change of their schedule."""
DECIDED_LOOK_MS: Final = 20
UNDECIDED_MAX: Final = 1_000
"""Calls that wait for that; beyond, they are refused."""
DECIDED_BEFORE: Final = (log_pb.RECURRING_CHANGE_PUT, log_pb.RECURRING_CHANGE_PAUSE)
"""Changes behind which fires that have come would be fires no more."""
ATTEMPTS_MAX: Final = 16
"""How often a trigger is proposed again for a schedule that changed meanwhile."""


class _Record(NamedTuple):
    """A schedule's record as it is stored."""

    record: bytes
    tag_mask: int
    lane: int


class RecurringService:
    """Answers about schedules; what they do is in the log and on the leader (`node/recurring`)."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._shard, self._config, self._limits = core.config.shard, core.config, core.config.limits
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._run_blocking = core.run_blocking
        self._authorizer, self._calls = authorizer, calls
        self._turns = IntakeTurns()
        self._searches, self._searching = asyncio.Semaphore(SEARCHES_MAX), 0
        self._undecided_calls = 0

    def locals(self) -> dict[str, Local]:
        """Return what answers each call from its bytes."""
        return {
            "PutRecurring": self._local(pb.PutRecurringRequest, self._put),
            "GetRecurring": self._local(pb.GetRecurringRequest, self._get),
            "ListRecurring": self._local(pb.ListRecurringRequest, self._list),
            "DeleteRecurring": self._local(pb.DeleteRecurringRequest, self._delete),
            "PauseRecurring": self._local(pb.PauseRecurringRequest, self._pause),
            "ResumeRecurring": self._local(pb.ResumeRecurringRequest, self._resume),
            "TriggerRecurring": self._local(pb.TriggerRecurringRequest, self._trigger),
            "NextFires": self._local(pb.NextFiresRequest, self._next_fires),
        }

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        methods = {
            name: self._calls.unary(f"/{SERVICE}/{name}", local) for name, local in self.locals().items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _local(
        self, kind: type[M], answer: Callable[[M, CallContext], Awaitable[Message | Refusal]]
    ) -> Local:
        async def local(request: M, context: CallContext) -> Answer:
            await self._turns.enter(request.ByteSize() / PAGE_BYTES)
            told = unknown_field(request) or await answer(request, context)
            return told if isinstance(told, Refusal) else told.SerializeToString()

        return parsed(kind, local)

    # -- changes -------------------------------------------------------------------------

    async def _put(self, request: pb.PutRecurringRequest, context: CallContext) -> Message | Refusal:
        spec = request.spec
        stored = self._name_fault(request.name) or self._spec_fault(spec) or self._record(spec)
        if isinstance(stored, Refusal):
            return stored
        await self._driver.read_barrier()
        known = self._machine.recurring.named(request.name)
        topics = [spec.topic] if known is None else [spec.topic, known.topic]
        refusal = self._authorizer.refusal(context, Right.PRODUCE, topics) or self._topic_fault(spec, stored)
        if refusal is not None:
            return refusal
        command = log_pb.RecurringCommand(
            name=request.name,
            topics=topics,
            change=log_pb.RECURRING_CHANGE_PUT,
            spec=_bare(spec).SerializeToString(deterministic=True),
            paused=request.paused,
            schedules_max=self._limits.recurring_max,
            bytes_max=self._limits.recurring_bytes_max,
            **stored._asdict(),
        )
        if known is None or known.state().spec != command.spec:
            now_ms = self._time.now_ms()
            begins_ms = max(now_ms, spec.start_ms - 1)
            fires = await self._fires(spec, now_ms, begins_ms, 1)
            if isinstance(fires, Refusal):
                return fires
            if not fires or fires[0] > begins_ms + max(COMES_WITHIN_MS, spec.interval_ms):
                text = "it names no time within ten years, or none before its end: change it"
                return Refusal(Reason.RECURRING_INVALID, text)
        return await self._changed(command, request)

    async def _delete(self, request: pb.DeleteRecurringRequest, context: CallContext) -> Message | Refusal:
        told = await self._change(request, log_pb.RECURRING_CHANGE_DELETE, context)
        return told if isinstance(told, Refusal) else pb.DeleteRecurringResponse()

    async def _pause(self, request: pb.PauseRecurringRequest, context: CallContext) -> Message | Refusal:
        return await self._change(request, log_pb.RECURRING_CHANGE_PAUSE, context)

    async def _resume(self, request: pb.ResumeRecurringRequest, context: CallContext) -> Message | Refusal:
        return await self._change(request, log_pb.RECURRING_CHANGE_RESUME, context)

    async def _change(
        self,
        request: pb.DeleteRecurringRequest | pb.PauseRecurringRequest | pb.ResumeRecurringRequest,
        change: log_pb.RecurringChange,
        context: CallContext,
    ) -> Message | Refusal:
        entry = await self._entry(request.name, context)
        if isinstance(entry, Refusal):
            return entry
        command = log_pb.RecurringCommand(name=request.name, change=change, topics=[entry.topic])
        return await self._changed(command, request)

    async def _changed(
        self,
        command: log_pb.RecurringCommand,
        request: pb.PutRecurringRequest
        | pb.DeleteRecurringRequest
        | pb.PauseRecurringRequest
        | pb.ResumeRecurringRequest,
    ) -> Message | Refusal:
        """Commit a change; return the schedule as it is then."""
        if request.HasField("if_revision"):
            command.if_revision = request.if_revision
        command.now_ms = self._time.now_ms()
        if command.change in DECIDED_BEFORE and (refusal := await self._undecided(command)):
            return refusal
        done: Recurred | Refusal = await self._driver.propose(self._machine.encode(command), cost_us(command))
        if isinstance(done, Refusal):
            return done
        entry = self._machine.recurring.numbered(done.number)
        if entry is None:
            gone = command.change == log_pb.RECURRING_CHANGE_DELETE
            return pb.RecurringResponse() if gone else unknown(command.name)
        return pb.RecurringResponse(recurring=self._told(entry))

    async def _undecided(self, command: log_pb.RecurringCommand) -> Refusal | None:
        """Wait until the leader has decided the fires that have come by a change's time: it drops others.

        A new leader decides them by the schedule's policy as soon as it leads. Returns the refusal of a
        schedule that is not decided in time.
        """
        looked_at = self._machine.recurring.named(command.name)
        if looked_at is None or _decided(looked_at, command.now_ms) or _is_unknown_here(looked_at):
            return None
        if self._undecided_calls < UNDECIDED_MAX:
            self._undecided_calls += 1
            try:
                for _ in range(DECIDED_MS // DECIDED_LOOK_MS):
                    await asyncio.sleep(DECIDED_LOOK_MS / 1_000)
                    entry = self._machine.recurring.named(command.name)
                    if entry is None or _decided(entry, command.now_ms):
                        return None
            finally:
                self._undecided_calls -= 1
        text = f"fires of schedule {command.name!r} that have come are still to be decided: try again"
        return Refusal(Reason.OVERLOADED, text, retry_ms=DECIDED_MS)

    async def _trigger(self, request: pb.TriggerRecurringRequest, context: CallContext) -> Message | Refusal:
        for _ in range(ATTEMPTS_MAX):
            entry = await self._entry(request.name, context)
            if isinstance(entry, Refusal):
                return entry
            state = entry.state()
            triggered, record_bytes = state.triggered, len(state.record)
            if request.HasField("if_triggered") and request.if_triggered != triggered:
                text = (
                    f"schedule {request.name!r} was triggered {triggered} times, not {request.if_triggered}"
                )
                return Refusal(Reason.RECURRING_CHANGED, text, {"triggered": str(triggered)})
            now_ms = self._time.now_ms()
            fire = log_pb.PlannedFire(outcome=TRIGGERED, fire_ms=now_ms, due_ms=now_ms)
            plan = log_pb.SchedulePlan(number=entry.number, changes=entry.changes, fires=[fire])
            command = log_pb.FireCommand(plans=[plan], now_ms=now_ms)
            cost = cost_us(command, record_bytes=record_bytes)
            done: Fired = await self._driver.propose(self._machine.encode(command), cost)
            (last,) = done.last
            if last is not None:
                message = MessageId(self._shard, last.hour, last.global_index)
                return pb.TriggerRecurringResponse(
                    id=str(message), due_ms=last.due_ms, triggered=triggered + 1
                )
        text = "the schedule changes all the time: trigger it again"
        return Refusal(Reason.OVERLOADED, text, retry_ms=100)

    # -- looks ---------------------------------------------------------------------------

    async def _get(self, request: pb.GetRecurringRequest, context: CallContext) -> Message | Refusal:
        entry = await self._entry(request.name, context)
        return entry if isinstance(entry, Refusal) else pb.RecurringResponse(recurring=self._told(entry))

    async def _list(self, request: pb.ListRecurringRequest, context: CallContext) -> Message | Refusal:
        if request.page_size > PAGE_MAX:
            return Refusal(
                Reason.RECURRING_INVALID, f"a page of {request.page_size}: ask for {PAGE_MAX} at most"
            )
        if request.topic and (refusal := check_topic(request.topic, self._limits)) is not None:
            return refusal
        await self._driver.read_barrier()
        if refusal := self._authorizer.refusal(
            context, Right.PRODUCE, [request.topic] if request.topic else []
        ):
            return refusal
        table, told = self._machine.recurring, pb.ListRecurringResponse(total=len(self._machine.recurring))
        name, size, turn_bytes = max(request.cursor, request.name_prefix), 0, 0
        for looked in range(0, NAMES, ENTRIES):
            names = table.names_from(name, ENTRIES + 1)
            if looked:
                turn_bytes = 0
                await asyncio.sleep(0)
            for name in names[:ENTRIES]:
                if not name.startswith(request.name_prefix):
                    return told
                if len(told.recurring) >= (request.page_size or PAGE) or size > PAGE_BYTES:
                    told.cursor = name
                    return told
                entry = table.named(name)
                if entry is not None and self._is_listed(entry, request.topic, context):
                    if (turn_bytes := turn_bytes + entry.size_bytes) > PAGE_BYTES:  # bodies are read, too
                        turn_bytes = entry.size_bytes
                        await asyncio.sleep(0)
                    one = told.recurring.add()
                    one.CopyFrom(self._told(entry))
                    one.spec.record.ClearField("body")
                    del one.history[1:]
                    size += one.ByteSize()
            if len(names) <= ENTRIES:
                return told
            name = names[ENTRIES]
        told.cursor = name
        return told

    def _is_listed(self, entry: Entry, topic: str, context: CallContext) -> bool:
        if topic:
            return entry.topic == topic
        return self._may_know(entry, context)

    async def _next_fires(self, request: pb.NextFiresRequest, context: CallContext) -> Message | Refusal:
        count = request.fires_max or FIRES
        if count > FIRES_MAX or bool(request.name) == request.HasField("spec") or request.after_ms < 0:
            text = f"give a name or a specification, and ask for {FIRES_MAX} fires at most"
            return Refusal(Reason.RECURRING_INVALID, text)
        now_ms = self._time.now_ms()
        spec, after_ms = request.spec, request.after_ms or now_ms
        created_ms = after_ms  # of what is not stored
        if request.name:
            entry = await self._entry(request.name, context)
            if isinstance(entry, Refusal):
                return entry
            state = entry.state()
            spec, created_ms = pb.RecurringSpec.FromString(state.spec), state.created_ms
            after_ms = request.after_ms or (now_ms if state.paused else state.decided_ms)
        elif refusal := self._authorizer.refusal(context, Right.PRODUCE) or self._timing_fault(spec):
            return refusal
        if not 0 <= after_ms <= DUE_MS_MAX:
            return Refusal(Reason.RECURRING_INVALID, f"after_ms lies between 0 and {DUE_MS_MAX}")
        fires = await self._fires(spec, created_ms, after_ms, count + 1)
        if isinstance(fires, Refusal):
            return fires
        timing = timing_of(spec, created_ms)
        local = [timing.local(fire_ms) for fire_ms in fires[:count]]
        return pb.NextFiresResponse(fire_ms=fires[:count], local=local, ended=len(fires) <= count)

    async def _entry(self, name: str, context: CallContext) -> Entry | Refusal:
        """Return the schedule of a name, as of now, if the caller may know of it."""
        if refusal := self._name_fault(name):
            return refusal
        await self._driver.read_barrier()
        entry = self._machine.recurring.named(name)
        return unknown(name) if entry is None or not self._may_know(entry, context) else entry

    def _may_know(self, entry: Entry, context: CallContext) -> bool:
        return self._authorizer.refusal(context, Right.PRODUCE, [entry.topic]) is None

    async def _fires(
        self, spec: pb.RecurringSpec, created_ms: int, after_ms: int, count: int
    ) -> list[int] | Refusal:
        """Return the next fires, computed beside the event loop: a search may take tens of ms."""
        if self._searching >= SEARCHES_MAX + SEARCHES_WAITING_MAX:
            text = f"{self._searching} calls wait until the fires of a schedule are computed: try again"
            return Refusal(Reason.OVERLOADED, text, retry_ms=100)
        self._searching += 1
        try:
            async with self._searches:
                found: list[int] | Refusal = await self._run_blocking(
                    lambda: _computed(spec, created_ms, after_ms, count)
                )
                return found
        finally:
            self._searching -= 1

    def _told(self, entry: Entry) -> pb.Recurring:
        """Return a schedule as callers are told of it."""
        state = entry.state()
        spec = pb.RecurringSpec.FromString(state.spec)
        spec.record.ParseFromString(state.record)
        return pb.Recurring(
            name=state.name,
            spec=spec,
            number=state.number,
            revision=state.revision,
            paused=state.paused,
            created_ms=state.created_ms,
            changed_ms=state.changed_ms,
            next_ms=_next_ms(state, spec),
            ended=state.next_ms == NONE_COMES,
            waiting_ms=state.waiting_ms,
            fired=state.fired,
            triggered=state.triggered,
            skipped=state.skipped,
            missed=state.missed,
            history=[self._fire(one) for one in reversed(state.history)],
        )

    def _fire(self, one: log_pb.FireCheckpoint) -> pb.Fire:
        message = str(MessageId(self._shard, one.hour, one.global_index)) if one.due_ms else ""
        return pb.Fire(
            outcome=one.outcome,
            fire_ms=one.fire_ms,
            id=message,
            due_ms=one.due_ms,
            decided_ms=one.decided_ms,
            fires=max(one.fires, 1),
        )

    # -- checks --------------------------------------------------------------------------

    def _name_fault(self, name: str) -> Refusal | None:
        return check_name(name, self._limits.topic_chars_max, Reason.RECURRING_INVALID, "schedule's name")

    def _spec_fault(self, spec: pb.RecurringSpec) -> Refusal | None:
        """Return why a specification will not do, but for its record and its times."""
        text = ""
        if spec.overlap not in pb.OverlapPolicy.values() or spec.missed not in pb.MissedPolicy.values():
            text = "there is no such policy: give one of those that this version knows"
        elif spec.missed_after_ms > DUE_MS_MAX:
            text = f"missed_after_ms is {DUE_MS_MAX} at most"
        elif spec.record.idempotency_key:
            text = "each fire is a message of its own: give the record no idempotency key"
        if text:
            return Refusal(Reason.RECURRING_INVALID, text)
        if spec.jitter_ms > self._limits.jitter_ms_max:
            text = f"a jitter of more than {self._limits.jitter_ms_max} ms"
            return Refusal(Reason.JITTER_TOO_LARGE, text)
        return check_topic(spec.topic, self._limits) or self._timing_fault(spec)

    def _timing_fault(self, spec: pb.RecurringSpec) -> Refusal | None:
        least = self._limits.recurring_interval_ms_min
        if spec.WhichOneof("timing") == "interval_ms" and spec.interval_ms < least:
            text = f"an interval of {spec.interval_ms} ms: give {least} at least"
            return Refusal(Reason.RECURRING_INVALID, text)
        return None

    def _record(self, spec: pb.RecurringSpec) -> _Record | Refusal:
        """Return the record as each fire schedules it, checked as a producer's."""
        intake = Intake(self._limits, delay_levels_ms(self._machine.queues.defaults, self._config))
        one = ScheduleRequest(topic=spec.topic, record=spec.record, delay_ms=0)
        command = intake.one(one, self._time.latest_ms())
        if isinstance(command, Refusal):
            return command
        columns = command.request
        return _Record(
            one.record.SerializeToString(),  # without the times, which are those of each fire
            int(np.frombuffer(columns.tag_mask, "<u8")[0]) if columns.tag_mask else 0,
            int(np.frombuffer(command.lane, "<u4")[0]) if command.lane else 0,
        )

    def _topic_fault(self, spec: pb.RecurringSpec, stored: _Record) -> Refusal | None:
        queue = self._machine.queues.find(spec.topic)
        if queue is None:
            if not self._config.topics_auto_create:
                return unknown_topic(spec.topic)
            return no_more_queues(self._machine.queues, self._limits)
        most = queue.settings.body_bytes_max
        columns = log_pb.ScheduleColumns(topics=[spec.topic], records=[stored.record])
        return body_too_large(columns, [most]) if most else None


def _decided(entry: Entry, at_ms: int) -> bool:
    """Return whether no fire that has come by then is to be decided; one that is not planned yet may have."""
    return entry.paused or entry.next_ms == NONE_COMES or entry.next_ms > at_ms


def _is_unknown_here(entry: Entry) -> bool:
    """Return whether this node does not know the schedule's zone, and so decides nothing."""
    try:
        timing_of(pb.RecurringSpec.FromString(entry.state().spec), 0)
    except TimingInvalid:
        return True
    return False


def _bare(spec: pb.RecurringSpec) -> pb.RecurringSpec:
    """Return a specification without its record, which is stored beside it."""
    bare = pb.RecurringSpec()
    bare.CopyFrom(spec)
    bare.ClearField("record")
    return bare


def _computed(spec: pb.RecurringSpec, created_ms: int, after_ms: int, count: int) -> list[int] | Refusal:
    """Return so many fires after a time. For a thread: it reads the zone's file, and may search for long."""
    try:
        return list(islice(timing_of(spec, created_ms).fires(after_ms), count))
    except TimingInvalid as fault:
        return Refusal(Reason.RECURRING_INVALID, str(fault))


def _next_ms(state: log_pb.RecurringCheckpoint, spec: pb.RecurringSpec) -> int:
    """Return the next fire; of a schedule that was changed a moment ago as it will be worked out."""
    if state.paused or state.next_ms == NONE_COMES:
        return 0
    if state.next_ms:
        return state.next_ms
    try:
        timing: Timing = timing_of(spec, state.created_ms)
    except TimingInvalid:  # this node knows the zone no more
        return 0
    return timing.after(state.decided_ms) or 0
