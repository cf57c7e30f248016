"""The part of QueryService that finds messages by their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext, MethodHandler, unknown_field
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.edge.names import check_topic, unknown_topic
from tarry.node.keys.search import DUE_MS_MAX, Found, Span, Wanted
from tarry.node.services.message_filter import invalid_query
from tarry.node.services.stored_message import STATES, id_of
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record, RecordTimes
from tarry.replication.state_machine.refusal import Refusal

PAGE: Final = 100
PAGE_MAX: Final = 1_000
"""Messages of one page."""
PAGE_BYTES: Final = 1 << 20
"""Records of one page, beside its last message's."""
EXAMINED_MAX: Final = 8_192
"""Messages looked at for one page: where few of a key's are in the states asked for, it is not full."""
KEY_CHARS_MAX: Final = 1 << 16
WHEEL_STATES: Final = {number: state for state, number in STATES.items()}


class KeyCalls:
    """Answers calls that name a key."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._core, self._authorizer, self._calls = core, authorizer, calls

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        find = parsed(pb.FindByKeyRequest, self._find)
        return {"FindByKey": self._calls.unary(f"/{service}/FindByKey", find)}

    async def _find(self, request: pb.FindByKeyRequest, context: CallContext) -> Answer:
        limits, machine = self._core.config.limits, self._core.machine
        refusal = unknown_field(request) or check_topic(request.topic, limits) or _fault(request)
        refusal = refusal or self._not_allowed(request, context)
        first = self._first(request)
        if refusal is not None or isinstance(first, Refusal):
            return refusal or first  # type: ignore[return-value]
        await self._core.driver.read_barrier()
        queue = machine.queues.find(request.topic)
        if queue is None:
            return unknown_topic(request.topic)
        states = {WHEEL_STATES[state] for state in request.states} or set(STATES)
        due_to_ms = request.due_to_ms or DUE_MS_MAX
        key, idempotent = request.key or request.idempotency_key, bool(request.idempotency_key)
        wanted = Wanted(
            queue.queue,
            key,
            request.due_from_ms,
            due_to_ms,
            states,
            idempotent,
            Span(request.stored_from_ms, request.stored_to_ms),
            Span(request.born_from_ms, request.born_to_ms),
        )
        return await self._page(wanted, first, request.limit or PAGE, records=request.records)

    async def _page(self, wanted: Wanted, first: int, most: int, *, records: bool) -> Answer:
        page, size, examined = pb.FindByKeyResponse(), 0, 0
        following: int | None = first
        while following is not None and len(page.messages) < most and examined < EXAMINED_MAX:
            step = await self._core.key_search.step(wanted, following, most - len(page.messages))
            if isinstance(step, Refusal):
                return step
            examined, following = examined + step.examined, step.next
            for found in step.found:
                page.messages.append(self._message(found, records=records))
                size += len(found.record) if records else 0
                if size > PAGE_BYTES or len(page.messages) == most:
                    if found is not step.found[-1]:
                        following = found.place + 1
                    most = 0
                    break
            page.unreadable += sum(following is None or place < following for place in step.unreadable)
        if following is not None:
            page.next = str(MessageId(self._core.config.shard, following >> 32, following & 0xFFFF_FFFF))
        return page.SerializeToString()

    def _message(self, found: Found, *, records: bool) -> pb.FoundMessage:
        of_record = RecordTimes.FromString(found.record)
        return pb.FoundMessage(
            id=str(MessageId(self._core.config.shard, found.hour, found.global_index)),
            due_ms=found.due_ms,
            state=STATES[found.state],
            record=Record.FromString(found.record) if records else None,
            born_ms=of_record.born_ms,
            stored_ms=of_record.stored_ms,
        )

    def _not_allowed(self, request: pb.FindByKeyRequest, context: CallContext) -> Refusal | None:
        """Return why the caller may not: who does nothing with a topic is not told that it is there."""
        if not self._authorizer.sees(context)(request.topic):
            return unknown_topic(request.topic)
        rights = (Right.PRODUCE, Right.CONSUME)
        refusals = [self._authorizer.refusal(context, right, [request.topic]) for right in rights]
        if request.records and None not in refusals:
            text = f"this token may not read messages of {request.topic}: leave the records out"
            return Refusal(Reason.PERMISSION_DENIED, text)
        return None

    def _first(self, request: pb.FindByKeyRequest) -> int | Refusal:
        """Return the place that the page begins with, which `next` has in the form of an id."""
        if not request.begin:
            return 0
        message = id_of(request.begin, self._core.config.shard)
        if isinstance(message, Refusal):
            return replace(message, text=f"begin: {message.text}")
        return message.hour << 32 | message.global_index


def _fault(request: pb.FindByKeyRequest) -> Refusal | None:
    if bool(request.key) == bool(request.idempotency_key):
        which = "both a key and an idempotency key" if request.key else "neither a key nor an idempotency key"
        return invalid_query(f"{which}: give one of the two")
    chars = len(request.key or request.idempotency_key)
    if chars > KEY_CHARS_MAX:
        return invalid_query(f"a key of {chars} characters: give 1 to {KEY_CHARS_MAX}")
    spans = {
        "due": (request.due_from_ms, request.due_to_ms),
        "stored": (request.stored_from_ms, request.stored_to_ms),
        "born": (request.born_from_ms, request.born_to_ms),
    }
    for name, (from_ms, to_ms) in spans.items():
        if not 0 <= from_ms < DUE_MS_MAX or not 0 <= to_ms <= DUE_MS_MAX or 0 < to_ms <= from_ms:
            text = f"{name} from {from_ms} to {to_ms}: give ms since the epoch, the end after the start"
            return invalid_query(text)
    if request.limit > PAGE_MAX:
        return invalid_query(f"a page of {request.limit} messages: at most {PAGE_MAX}, and go on with `next`")
    if not WHEEL_STATES.keys() >= {*request.states}:
        return invalid_query("a state that this version does not know: leave it out")
    return None
