"""ProducerService: schedule, cancel, get; changes of what is pending are in `changes`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.defaults import delay_levels_ms
from tarry.node.delivery.cancels import Released
from tarry.node.delivery.offset_search import keys_of
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.field_count import more_fields
from tarry.node.edge.grpc_status import abort, status_of
from tarry.node.edge.grpc_types import CallContext, ServiceHandler, parse
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.edge.names import no_more_queues, unknown_topic
from tarry.node.failures import CallErrors
from tarry.node.leader.pending_cancels import CANCEL_NS_MAX, PendingCancels
from tarry.node.services import transactions
from tarry.node.services.changes import Changes, Edges
from tarry.node.services.idempotency import IdempotentSchedules
from tarry.node.services.repeated_schedules import Repeats
from tarry.node.services.schedule_request import KEY_TAG, Intake, body_too_large, keys_of_command
from tarry.node.services.stored_message import DAMAGED, STATES, Columns, ids_of
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.files import free_bytes
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC, DURABILITY_UNSPECIFIED, Record, Retried
from tarry.proto.tarry_transaction_pb2 import (
    EndTransactionRequest,
    ListTransactionsRequest,
    PrepareRequest,
)
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.replication.state_machine.queues import CHECKS
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.delay_log import is_there
from tarry.wheel.state import HOUR_MS, UnknownMessage

SERVICE: Final = "tarry.v1.ProducerService"
TURN_BYTES: Final = 1 << 20
"""Of schedule requests looked at in one turn of the event loop: some 10 ms where their messages are small."""
REQUEST_BYTES: Final = 8 << 10
"""Cost of a request beside its messages, in bytes of messages that take as long."""
KEY_BYTES: Final = 48
"""Cost of a key, which is hashed at intake, likewise."""
STREAM_FIELDS_MAX: Final = 64
"""Of one request of a schedule stream, which has a number and a batch."""
TURN_IDS: Final = 32_768
"""Of cancels, read in one turn: some 5 ms."""
RELEASED_AHEAD_MS: Final = 60_000
"""Of hours that begin later than that nothing is released yet, or the cancel's own outcome says so."""
NOT_FOUND_TEXT: Final = (
    "no message has this id, or none that this caller may know of: it was never given, the message's hour "
    "has been deleted, it was lost with a majority of the nodes or behind a backup, or the token "
    "lacks the right to produce to its topic"
)
WEAKEST: Final = frozenset({DURABILITY_UNSPECIFIED, DURABILITY_ASYNC})
"""Of a request: the cluster's own durability counts. What a later version may ask for counts as sync."""

OUTCOMES_OF_0_2_0: Final = np.arange(8, dtype=np.uint32)
"""By outcome of a cancel, what 0.2.0 answers."""
OUTCOMES_OF_0_2_0[pb.CANCEL_OUTCOME_ALREADY_CANCELLED] = pb.CANCEL_OUTCOME_CANCELLED
OUTCOMES_OF_0_2_0[pb.CANCEL_OUTCOME_ALREADY_DELIVERED] = pb.CANCEL_OUTCOME_ALREADY_RELEASED
OUTCOMES_OF_0_2_0[pb.CANCEL_OUTCOME_ALREADY_DONE] = pb.CANCEL_OUTCOME_ALREADY_RELEASED


class ProducerService:
    """Answers producers; all but the checks is in the log and the state machine."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._shard = core.config.shard
        self._config, self._limits = core.config, core.config.limits
        self._auto_create = core.config.topics_auto_create
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._damage, self._holds, self._leadership = core.damage, core.holds, core.leadership
        self._authorizer, self._calls = authorizer, calls
        self._pending = PendingCancels(core.machine, core.driver, core.time)
        self._repeats = Repeats(core.config.shard, core.machine)
        self._idempotent = IdempotentSchedules(core)
        self._turns = IntakeTurns()
        self._errors = CallErrors()
        edges = Edges(
            self._ids, self._may_know, self._may_produce, self._disk_allows, lambda: self._intake, self._turns
        )
        self._changes = Changes(core, edges)
        shared = transactions.Edges(lambda: self._intake, self._topics_allow, self._disk_allows)
        self._transactions = transactions.TransactionCalls(core, authorizer, calls, shared)
        self._readers: set[asyncio.Task[None]] = set()  # of the schedule streams

    @property
    def _intake(self) -> Intake:
        levels = delay_levels_ms(self._machine.queues.defaults, self._config)
        return Intake(self._limits, levels)

    @property
    def streams(self) -> int:
        """Number of open schedule streams."""
        return len(self._readers)

    def end_streams(self) -> None:
        """Read no more from the schedule streams: each ends after the answers to what it has read."""
        for reader in self._readers:
            reader.cancel()

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        unary = {
            "Schedule": self._schedule,
            "ScheduleBatch": self._schedule_batch,
            "Cancel": parsed(pb.CancelRequest, self._cancel),
            "Reschedule": parsed(pb.RescheduleRequest, self._changes.reschedule),
            "Update": parsed(pb.UpdateRequest, self._changes.update),
            "Get": parsed(pb.GetRequest, self._get),
            "Prepare": parsed(PrepareRequest, self._transactions.prepare),
            "EndTransaction": parsed(EndTransactionRequest, self._transactions.end),
            "ListTransactions": parsed(ListTransactionsRequest, self._transactions.list),
        }
        methods = {name: self._calls.unary(f"/{SERVICE}/{name}", local) for name, local in unary.items()}
        methods["ScheduleStream"] = grpc.stream_stream_rpc_method_handler(self._schedule_stream)
        methods["Checks"] = grpc.stream_stream_rpc_method_handler(self._transactions.checks)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _schedule(self, raw: bytes, context: CallContext) -> Answer:
        await self._turns.enter(_part(raw, keys_of_command(self._limits)))
        request = parse(pb.ScheduleRequest, raw)
        if isinstance(request, Refusal):
            return request
        answer = await self._propose(self._intake.one(request, self._time.latest_ms()), context)
        if isinstance(answer, Refusal):
            return answer
        batch = pb.ScheduleBatchResponse.FromString(answer)
        return pb.ScheduleResponse(
            id=str(MessageId(batch.shard, batch.hour[0], batch.global_index[0])),
            due_ms=batch.due_ms[0],
            overdue=bool(batch.overdue),
            repeated=batch.repeated or bool(batch.repeats),
        ).SerializeToString()

    async def _schedule_batch(self, raw: bytes, context: CallContext) -> Answer:
        await self._turns.enter(_part(raw, keys_of_command(self._limits)))
        return await self._propose(self._intake.batch(raw, self._time.latest_ms()), context)

    async def _propose(self, command: log_pb.ScheduleCommand | Refusal, context: CallContext) -> Answer:
        if isinstance(command, Refusal):
            return command
        refusal = self._authorizer.refusal(context, Right.PRODUCE, command.request.topics)
        if refusal is not None:
            return refusal
        refusal = self._topics_allow(command.request) or self._disk_allows()
        if refusal is not None:
            return refusal
        flushed = command.request.durability not in WEAKEST
        command.request.ClearField("durability")
        if command.idempotent:
            return await self._idempotent.answer(command, flushed=flushed)
        outcome: Scheduled | Repeated | Refusal = await self._driver.propose(
            self._machine.encode(command), cost_us(command), flushed=flushed
        )
        if isinstance(outcome, Repeated):
            return await self._repeats.response(outcome.given)
        return outcome if isinstance(outcome, Refusal) else outcome.response

    def _topics_allow(self, request: log_pb.ScheduleColumns) -> Refusal | None:
        queues = [self._machine.queues.find(topic) for topic in request.topics]
        if None in queues:
            if not self._auto_create:
                return unknown_topic(request.topics[queues.index(None)])
            if refusal := no_more_queues(self._machine.queues, self._limits):
                return refusal
        most = [0 if queue is None else queue.settings.body_bytes_max for queue in queues]
        return body_too_large(request, most) if any(most) else None

    def _disk_allows(self) -> Refusal | None:
        """Refuse while there is still room for what delivering and acknowledging write."""
        free, least = free_bytes(self._machine.folder), self._limits.disk_free_bytes_min
        if free >= least:
            return None
        text = f"the leader's disk has {free} bytes free, fewer than {least}: make room on it"
        facts = {"disk_free_bytes": str(free), "disk_free_bytes_min": str(least)}
        return Refusal(Reason.DISK_FULL, text, facts, retry_ms=5_000)

    async def _schedule_stream(
        self, requests: AsyncIterator[bytes], context: CallContext
    ) -> AsyncIterator[bytes]:
        """Answer in order; read on only while few enough requests are in flight."""
        path = f"/{SERVICE}/ScheduleBatch"
        flying: asyncio.Queue[tuple[int, Awaitable[Answer | Exception]] | Refusal | None] = asyncio.Queue()
        room = asyncio.Semaphore(self._limits.stream_requests_max)

        async def read() -> None:
            async for raw in requests:
                request = _stream_request(raw)
                if isinstance(request, Refusal):
                    flying.put_nowait(request)
                    return
                await room.acquire()
                answer = self._told(self._calls.answer(path, request.batch, context, self._schedule_batch))
                answering = asyncio.ensure_future(self._holds.steps("ScheduleStream", answer))
                flying.put_nowait((request.request, answering))

        reader = asyncio.ensure_future(read())
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        # Whatever ended it, also before its first step, the answers must not wait for more.
        reader.add_done_callback(lambda _: flying.put_nowait(None))
        try:
            while (item := await flying.get()) is not None:
                if isinstance(item, Refusal):
                    await abort(context, item)
                number, pending = item
                answer = await pending
                room.release()
                if isinstance(answer, Exception):
                    raise answer
                if isinstance(answer, Refusal):
                    refused = pb.ScheduleStreamResponse(request=number, refused=status_of(answer))
                    yield refused.SerializeToString()
                else:
                    accepted = log_pb.StreamResponse(request=number, accepted=answer)
                    yield accepted.SerializeToString()
            if not reader.cancelled():  # by `end_streams`
                await reader  # its error ends the call
        finally:
            reader.cancel()

    async def _told(self, answer: Awaitable[Answer]) -> Answer | Exception:
        """Return the answer, or its error, which ends the call if it still goes on, and nothing else."""
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - as gRPC does for a call that is no stream
            self._errors.log(error)
            return error

    async def _cancel(self, request: pb.CancelRequest, context: CallContext) -> Answer:
        limit = self._limits.cancel_ids_max
        if not request.ids or len(request.ids) > limit:
            reason = Reason.BATCH_TOO_LARGE if request.ids else Reason.REQUEST_EMPTY
            return Refusal(reason, f"{len(request.ids)} ids: give 1 to {limit}")
        await self._turns.enter(len(request.ids) / TURN_IDS)
        ids = self._ids(list(request.ids))
        if isinstance(ids, Refusal):
            return ids
        hour, index = ids
        if self._authorizer.on:
            await self._driver.read_barrier()
        until_given = self._machine.may_propose(levels.CANCELS_RELEASED)
        if request.remaining_groups and not until_given:
            return levels.too_low(levels.CANCELS_RELEASED, self._machine.level)
        outcomes: NDArray[Any] = np.full(len(hour), pb.CANCEL_OUTCOME_NOT_FOUND, dtype=np.uint32)
        # Of hours to come nothing is released: to look whether it is pending would only take time.
        begins_ms = int(hour.min()) * HOUR_MS
        released = until_given and begins_ms <= self._time.now_ms() + RELEASED_AHEAD_MS
        if released and not self._authorizer.on:
            await self._driver.read_barrier()
        may_know = partial(self._may_know, context)
        refusal = await self._pending.cancel(hour, index, outcomes, may_know, released=released)
        if refusal is None and until_given:
            remaining = request.remaining_groups
            places = self._machine.wheel.places_of(hour, index)  # which stay: what is released is not moved
            refusal = await self._cancel_released(*places, outcomes, remaining=remaining)
        if refusal is not None:
            return refusal
        if not (until_given and request.every_outcome):
            outcomes = OUTCOMES_OF_0_2_0[outcomes]
        return pb.CancelResponse(outcomes=outcomes.tolist()).SerializeToString()

    async def _cancel_released(
        self,
        hour: NDArray[np.uint32],
        index: NDArray[np.uint32],
        outcomes: NDArray[np.uint32],
        *,
        remaining: bool,
    ) -> Refusal | None:
        """Cancel what has been released of the messages, and no consumer has been given; set its outcomes."""
        (rows,) = np.nonzero(outcomes == pb.CANCEL_OUTCOME_ALREADY_RELEASED)
        if not len(rows):
            return None
        await self._driver.read_barrier()
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        outcomes[rows] = pb.CANCEL_OUTCOME_ALREADY_DONE
        ids = keys_of(hour[rows], index[rows])
        named, first, which = np.unique(ids, return_index=True, return_inverse=True)
        topic, due_ms = await self._units(hour[rows[first]], index[rows[first]])
        found = np.full(len(named), pb.CANCEL_OUTCOME_ALREADY_DONE, dtype=np.uint32)
        for number in np.unique(topic[due_ms >= 0]).tolist():
            if self._machine.queues[number].topic == CHECKS:  # it was a half message
                continue
            (mine,) = np.nonzero((topic == number) & (due_ms >= 0))
            at = rows[first[mine]]
            answer = await delivery.cancels.cancel(
                number, Released(hour[at], index[at], due_ms[mine]), remaining=remaining
            )
            if isinstance(answer, Refusal):
                return answer
            found[mine] = answer
        outcomes[rows] = found[which]
        again = np.ones(len(rows), dtype=np.bool_)
        again[first] = False
        again &= found[which] == pb.CANCEL_OUTCOME_CANCELLED
        outcomes[rows[again]] = pb.CANCEL_OUTCOME_ALREADY_CANCELLED
        return None

    async def _units(
        self, hour: NDArray[np.uint32], index: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the queues and due times of messages, by hour; -1: thinned out, or the hour was deleted."""
        queue, due_ms = np.zeros(len(hour), np.uint32), np.full(len(hour), -1, np.int64)
        wheel = self._machine.wheel
        for rows in portions(self._pending.costs_ns(hour, index), CANCEL_NS_MAX):
            there = np.arange(len(hour))[rows]
            there = there[wheel.known(hour[there], index[there])]
            units = wheel.units(hour[there], index[there], thinned=True)
            whole = is_there(units)
            there, units = there[whole], units[whole]
            queue[there] = queue_of(units["topic"])
            due_ms[there] = hour[there].astype(np.int64) * HOUR_MS + units["due_in_hour_ms"]
            await asyncio.sleep(0)
        return queue, due_ms

    async def _get(self, request: pb.GetRequest, context: CallContext) -> Answer:
        ids = self._ids([request.id])
        if isinstance(ids, Refusal):
            return ids
        await self._driver.read_barrier()
        hour, index = self._machine.wheel.places_of(*ids)
        state = self._machine.wheel.state(int(hour[0]), int(index[0]))
        if state not in STATES or not self._may_know(context, hour, index).all():
            return Refusal(Reason.MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        try:
            units = self._machine.wheel.units(hour, index)
            record = (await self._damage.read(hour, index))[0]
        except UnknownMessage:
            return Refusal(Reason.MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        if record is None:
            return DAMAGED
        queue = self._machine.queues[int(queue_of(units["topic"])[0])]
        if queue.topic == CHECKS:  # a half message is nobody's yet
            return Refusal(Reason.MESSAGE_NOT_FOUND, NOT_FOUND_TEXT)
        stored = Retried.FromString(record).record if queue.group else record
        return pb.GetResponse(
            id=request.id,
            topic=queue.topic,
            due_ms=int(self._machine.due_ms(hour, index)[0]),
            state=STATES[state],
            record=Record.FromString(stored),
        ).SerializeToString()

    def _ids(self, texts: list[str]) -> Columns | Refusal:
        return ids_of(texts, self._shard)

    def _may_produce(self, context: CallContext, topic: str) -> bool:
        return self._authorizer.refusal(context, Right.PRODUCE, [topic]) is None

    def _may_know(
        self, context: CallContext, hour: NDArray[np.uint32], index: NDArray[np.uint32]
    ) -> NDArray[np.bool_]:
        """Return which messages, places of shape (n,) by hour, are of topics that the caller may produce to.

        Without tokens, all but half messages, which are nobody's yet. Callers are not told of the others that
        they are there.
        """
        halves: NDArray[np.bool_] = self._machine.transactions.rest_at(hour, index)
        if not self._authorizer.on:
            return ~halves
        wheel, queues = self._machine.wheel, self._machine.queues
        there = wheel.known(hour, index) & ~halves
        there[there] = wheel.readable(hour[there], index[there])
        units = wheel.units(hour[there], index[there])
        topics, which = np.unique(queue_of(units["topic"]), return_inverse=True)
        allowed = [self._may_produce(context, queues[number].topic) for number in topics.tolist()]
        there[there] = np.array(allowed, dtype=np.bool_)[which]
        return there


def _part(raw: bytes, keys_max: int) -> float:
    """Return what part of a turn a schedule request takes, of which so many keys are hashed at most.

    Keys are counted by their tag, and with them the bytes of bodies that look like it.
    """
    size = len(raw) + REQUEST_BYTES
    if size < TURN_BYTES:  # else it has a turn alone anyway
        size += KEY_BYTES * min(raw.count(KEY_TAG), keys_max)
    return size / TURN_BYTES


def _stream_request(raw: bytes) -> log_pb.StreamRequest | Refusal:
    """Return the request, unless it has so many fields that parsing it would take long."""
    if more_fields(raw, STREAM_FIELDS_MAX):
        text = f"a request of the stream has more than {STREAM_FIELDS_MAX} fields: give a number and a batch"
        return Refusal(Reason.RECORD_INVALID, text)
    return parse(log_pb.StreamRequest, raw)
