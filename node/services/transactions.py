"""Calls of ProducerService about transactions: prepare, end, list, and the stream of checks.

What they do is in the log; checks that have come due are the leader's (`node/transactions`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.field_count import more_fields
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.grpc_types import CallContext, parse, unknown_field
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer, LeaderCalls
from tarry.node.edge.names import check_name, check_topic
from tarry.node.services.schedule_request import Intake
from tarry.node.services.stored_message import DAMAGED
from tarry.node.transactions.producers import CheckStream
from tarry.node.transactions.told import told
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.outcomes import Moved, Transacted
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.transaction_table import Row
from tarry.replication.state_machine.transactions import STATES, ended, unknown
from tarry.wheel.state import UnknownMessage

SERVICE: Final = "tarry.v1.ProducerService"
NAME_CHARS_MAX: Final = 200
"""Of a transaction."""
PAGE_MAX: Final = 1_000
PAGE: Final = 100
ROWS: Final = 1_000
"""Looked at in one turn of the event loop for a page."""
ROWS_MAX: Final = 20_000
"""Looked at for one page; of other topics and producer groups there may be more."""
ATTEMPTS_MAX: Final = 16
"""How often an end is proposed again for a half message that a check has moved meanwhile."""
CHECK_AFTER_MS_MAX: Final = 30 * 86_400_000
"""Until the first check that a prepare asks for."""
STREAM_FIELDS_MAX: Final = 64
"""Of one request of a stream of checks."""
ANSWERS_MAX: Final = 16
"""Of a stream of checks that wait for the log at once."""
TURN_BYTES: Final = 1 << 20
"""Of prepares, looked at in one turn of the event loop."""
ENDS: Final = 50
"""Looked up and proposed in one turn of the event loop, at some 0.1 ms each."""
STREAMS: Final = 50
"""Opened or closed in one turn of the event loop."""
BREAK_NOTICE_S: Final = 0.05
"""A broken stream looks like one that was ended in order, until gRPC cancels the call."""


class Edges(NamedTuple):
    """Checks that these calls share with the others of the service."""

    intake: Callable[[], Intake]
    topics_allow: Callable[[log_pb.ScheduleColumns], Refusal | None]
    disk_allows: Callable[[], Refusal | None]


class TransactionCalls:
    """Answers the calls about transactions."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls, edges: Edges) -> None:
        self._shard, self._node = core.config.shard, core.config.node
        self._limits, self._settings = core.config.limits, core.config.transactions
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._damage, self._leadership, self._holds = core.damage, core.leadership, core.holds
        self._authorizer, self._calls, self._edges = authorizer, calls, edges
        self._turns, self._ends, self._streams = IntakeTurns(), IntakeTurns(), IntakeTurns()

    # -- prepare and end -----------------------------------------------------------------

    async def prepare(self, request: pb.PrepareRequest, context: CallContext) -> Answer:
        """Answer Prepare."""
        await self._turns.enter(request.ByteSize() / TURN_BYTES)
        refusal = self._fault(request, request.producer_group, request.transaction)
        if refusal is None and request.check_after_ms > CHECK_AFTER_MS_MAX:
            refusal = _invalid(f"check_after_ms is {CHECK_AFTER_MS_MAX} at most")
        if refusal is None and request.record.idempotency_key:
            refusal = _invalid("a transaction's name is its key: give the record no idempotency key")
        if refusal is not None:
            return refusal
        command = self._prepare_command(request)
        if isinstance(command, Refusal):
            return command
        refusal = self._authorizer.refusal(context, Right.PRODUCE, [request.topic])
        columns = log_pb.ScheduleColumns(topics=[request.topic], records=[command.record])
        refusal = refusal or self._edges.topics_allow(columns) or self._edges.disk_allows()
        if refusal is not None:
            return refusal
        done: Transacted | Refusal = await self._driver.propose(
            self._machine.encode(command), cost_us(command), flushed=True
        )
        if isinstance(done, Refusal):
            return done
        answer = pb.PrepareResponse(transaction=told(done.state, self._shard), repeated=done.repeated)
        return answer.SerializeToString()

    def _prepare_command(self, request: pb.PrepareRequest) -> log_pb.PrepareCommand | Refusal:
        """Return the command, the record checked as a scheduled one."""
        one = ScheduleRequest(topic=request.topic, record=request.record, born_ms=request.born_ms)
        for name in ("due_ms", "delay_ms"):
            if request.HasField(name):
                setattr(one, name, getattr(request, name))
        now_ms = self._time.latest_ms()
        checked = self._edges.intake().one(one, now_ms)
        if isinstance(checked, Refusal):
            return checked
        columns = checked.request
        # Checked as it was given; kept in the one order of its properties in which a repeated one is, too.
        record = request.record.SerializeToString(deterministic=True)
        after_ms = request.check_after_ms or self._settings.of(request.producer_group).check_after_ms
        command = log_pb.PrepareCommand(
            producer_group=request.producer_group,
            transaction=request.transaction,
            topic=request.topic,
            record=record,
            tag_mask=int(np.frombuffer(columns.tag_mask, "<u8")[0]) if columns.tag_mask else 0,
            lane=int(np.frombuffer(checked.lane, "<u4")[0]) if checked.lane else 0,
            check_ms=now_ms + after_ms,
            open_max=self._limits.transactions_max,
            second_messages_max=self._limits.second_messages_max,
            now_ms=now_ms,
            born_ms=request.born_ms,
        )
        if request.HasField("due_ms"):
            command.due_ms = request.due_ms
        else:
            command.delay_ms = request.delay_ms
        return command

    async def end(self, request: pb.EndTransactionRequest, context: CallContext) -> Answer:
        """Answer EndTransaction."""
        refusal = self._fault(request, request.producer_group, request.transaction)
        if refusal is None and request.end not in STATES:
            refusal = _invalid("a transaction ends by a commit or a rollback: name one")
        if refusal is not None:
            return refusal
        for _ in range(ATTEMPTS_MAX):
            await self._driver.read_barrier()
            await self._ends.enter(1 / ENDS)  # all that have waited for the barrier go on together
            row = self._machine.transactions.named(request.producer_group, request.transaction)
            if row is None or not self._may_produce(context, row.topic):
                return unknown(repr(request.transaction), self._machine.transactions)
            answer = await self._end(row, request.end)
            if answer is not None:
                return answer
        text = "checks move the transaction all the time: end it again"
        return Refusal(Reason.OVERLOADED, text, retry_ms=100)

    async def _end(self, row: Row, end: pb.TransactionEnd) -> Answer | None:
        """End a transaction; None: a check has moved it meanwhile."""
        state = row.state()
        # Where durability is async the log says when the end of one that has ended is flushed.
        if row.end and not self._machine.queues.defaults.flush_ms:
            return self._ended(state, repeated=True) if state.state == STATES[end] else ended(state)
        record: bytes | None = b""
        if end == pb.TRANSACTION_END_COMMIT and not row.end:
            place = np.array([[state.place_hour], [state.place_index]], np.uint32)
            try:
                (record,) = await self._damage.read(*place)
            except UnknownMessage:  # it was moved, and its hour deleted
                return None
        if record is None:
            return DAMAGED
        command = log_pb.EndCommand(
            number=row.number,
            end=end,
            place_hour=state.place_hour,
            place_index=state.place_index,
            record=record,
            ended_max=self._limits.transactions_remembered_max,
            now_ms=self._time.latest_ms(),
        )
        done: Transacted | Moved | Refusal = await self._driver.propose(
            self._machine.encode(command), cost_us(command), flushed=True
        )
        if isinstance(done, Moved):
            return None
        return done if isinstance(done, Refusal) else self._ended(done.state, repeated=done.repeated)

    def _ended(self, state: log_pb.TransactionCheckpoint, *, repeated: bool) -> bytes:
        answer = pb.EndTransactionResponse(transaction=told(state, self._shard), repeated=repeated)
        return answer.SerializeToString()

    # -- list ----------------------------------------------------------------------------

    async def list(self, request: pb.ListTransactionsRequest, context: CallContext) -> Answer:
        """Answer ListTransactions."""
        refusal = unknown_field(request) or self._list_fault(request)
        if refusal is not None:
            return refusal
        await self._driver.read_barrier()
        topics = [request.topic] if request.topic else []
        if refusal := self._authorizer.refusal(context, Right.PRODUCE, topics):
            return refusal
        page = pb.ListTransactionsResponse(open=len(self._machine.transactions))
        key = attrgetter("end" if request.ended else "number")
        rows = self._machine.transactions.rows(ended=request.ended)
        for looked, row in enumerate(rows[bisect_right(rows, request.after, key=key) :], 1):
            at = key(row)
            if len(page.transactions) >= (request.page_size or PAGE) or looked > ROWS_MAX:
                return page.SerializeToString()
            page.next_after = at
            if (
                request.producer_group in ("", row.producer_group)
                and request.topic in ("", row.topic)
                and self._may_produce(context, row.topic)
            ):
                page.transactions.append(told(row.state(), self._shard))
            if looked % ROWS == 0:
                await asyncio.sleep(0)
        page.next_after = 0
        return page.SerializeToString()

    def _list_fault(self, request: pb.ListTransactionsRequest) -> Refusal | None:
        if request.page_size > PAGE_MAX:
            return _invalid(f"a page of {request.page_size}: ask for {PAGE_MAX} at most")
        if request.topic and (refusal := check_topic(request.topic, self._limits)):
            return refusal
        return self._group_fault(request.producer_group) if request.producer_group else None

    # -- checks --------------------------------------------------------------------------

    async def checks(self, requests: AsyncIterator[bytes], context: CallContext) -> AsyncIterator[bytes]:
        """Answer Checks, a stream."""
        stream = await self._open(requests, context)
        if isinstance(stream, Refusal):
            await abort(context, stream)
        reader = asyncio.ensure_future(self._read(requests, stream, context))
        reader.add_done_callback(lambda _: stream.end())  # where nothing has ended it
        try:
            while (response := await stream.next_response()) is not None:
                yield response
            await self._streams.enter(1 / STREAMS)
        finally:
            reader.cancel()
            self._leadership.check_streams.leave(stream)
        if stream.ended is not None:
            await abort(context, stream.ended)
        if reader.done() and not reader.cancelled():
            await reader  # its error ends the call

    async def _open(self, requests: AsyncIterator[bytes], context: CallContext) -> CheckStream | Refusal:
        delivery, streams = self._leadership.delivery, self._leadership.check_streams
        if delivery is None:
            return self._leadership.not_leader()
        if not self._machine.may_propose(levels.TRANSACTIONS):
            return levels.too_low(levels.TRANSACTIONS, self._machine.level)
        if refusal := self._streams_full():
            return refusal
        first = await anext(aiter(requests), None)
        await self._streams.enter(1 / STREAMS)
        request = _parsed(first) if first is not None else None
        if isinstance(request, Refusal):
            return request
        if request is None or request.WhichOneof("request") != "subscribe":
            return Refusal(Reason.SUBSCRIBE_FIRST, "the first request of a stream is its subscribe")
        subscribe = request.subscribe
        refusal = self._group_fault(subscribe.producer_group)
        refusal = refusal or self._authorizer.refusal(context, Right.PRODUCE) or self._streams_full()
        if refusal is not None:
            return refusal
        if self._leadership.delivery is not delivery:
            return self._leadership.not_leader()
        stream = CheckStream(subscribe.producer_group, lambda topic: self._may_produce(context, topic))
        streams.join(stream)
        told_of = pb.ChecksSubscribed(node=self._node, term=delivery.term)
        stream.send(pb.ChecksResponse(subscribed=told_of).SerializeToString())
        return stream

    def _streams_full(self) -> Refusal | None:
        count = len(self._leadership.check_streams)
        if count < self._limits.check_streams_max:
            return None
        text = f"this node has {count} streams of checks, its maximum"
        return Refusal(Reason.TOO_MANY_STREAMS, text, retry_ms=5_000)

    async def _read(self, requests: AsyncIterator[bytes], stream: CheckStream, context: CallContext) -> None:
        """Take answers, some at a time, until the producer leaves; a bad one ends the stream.

        One after another they would wait for the log: checks that come due together would be asked again.
        """
        room = asyncio.Semaphore(ANSWERS_MAX)
        try:
            async with asyncio.TaskGroup() as ending:
                async for raw in requests:
                    if stream.ended is not None:
                        return
                    given = _answer(raw)
                    if isinstance(given, Refusal):
                        stream.end(given)
                        return
                    if given.end == pb.TRANSACTION_END_UNSPECIFIED:
                        continue
                    await room.acquire()
                    work = self._holds.steps("Checks", self._take(given, stream, context))
                    ending.create_task(work).add_done_callback(lambda _: room.release())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        await asyncio.sleep(BREAK_NOTICE_S)

    async def _take(self, given: pb.CheckAnswer, stream: CheckStream, context: CallContext) -> None:
        end = pb.EndTransactionRequest(
            producer_group=stream.producer_group, transaction=given.transaction, end=given.end
        )

        async def local(_: bytes, call: CallContext) -> Answer:
            return await self.end(end, call)

        path = f"/{SERVICE}/EndTransaction"
        answer = await self._calls.answer(path, end.SerializeToString(), context, local)
        if isinstance(answer, Refusal):
            told_of = pb.CheckRefused(
                transaction=given.transaction, reason=answer.reason, text=answer.text[:1_000]
            )
            stream.refuse(pb.ChecksResponse(refused=told_of).SerializeToString())

    # -- checks of requests --------------------------------------------------------------

    def _fault(
        self, request: pb.PrepareRequest | pb.EndTransactionRequest, group: str, name: str
    ) -> Refusal | None:
        if not self._machine.may_propose(levels.TRANSACTIONS):
            return levels.too_low(levels.TRANSACTIONS, self._machine.level)
        invalid = Reason.TRANSACTION_INVALID
        return (
            unknown_field(request)
            or self._group_fault(group)
            or check_name(name, NAME_CHARS_MAX, invalid, "transaction's name")
        )

    def _group_fault(self, group: str) -> Refusal | None:
        most = self._limits.group_chars_max
        return check_name(group, most, Reason.TRANSACTION_INVALID, "producer group")

    def _may_produce(self, context: CallContext, topic: str) -> bool:
        return self._authorizer.refusal(context, Right.PRODUCE, [topic]) is None


def _invalid(text: str) -> Refusal:
    return Refusal(Reason.TRANSACTION_INVALID, text)


def _answer(raw: bytes) -> pb.CheckAnswer | Refusal:
    request = _parsed(raw)
    if isinstance(request, Refusal):
        return request
    if request.WhichOneof("request") != "answer":
        return Refusal(Reason.SUBSCRIBED_TWICE, "one stream subscribes once: open another stream")
    return request.answer


def _parsed(raw: bytes) -> pb.ChecksRequest | Refusal:
    """Return a request of the stream, unless it has so many fields that parsing it would take long."""
    if more_fields(raw, STREAM_FIELDS_MAX):
        return _invalid(f"a request of the stream has more than {STREAM_FIELDS_MAX} fields")
    return parse(pb.ChecksRequest, raw)
