"""GetLife: what a message is now, and to each group of its topic."""

from __future__ import annotations

from typing import Final

from tarry.node.assembly import Core
from tarry.node.delivery.lives import Id, columns_of, retried_of
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.grpc_types import CallContext, MethodHandler
from tarry.node.edge.leader_calls import Answer, LeaderCalls, parsed
from tarry.node.services.stored_message import DAMAGED, STATES, id_of
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.queues import CHECKS
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import UnknownMessage

LIVES_MAX: Final = 8
"""Told at once: each may look through a long queue, a piece in a turn."""
NOT_FOUND: Final = Refusal(
    Reason.MESSAGE_NOT_FOUND,
    "no message has this id, or none that this caller may know of: it was never given, the message's hour "
    "has been deleted, it was lost with a majority of the nodes or behind a backup, or the token has "
    "no right on its topic; ledgers may still tell its history",
)


class LifeCalls:
    """Answers for the state, at the leader."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._shard = core.config.shard
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._leadership, self._damage = core.leadership, core.damage
        self._authorizer, self._calls = authorizer, calls
        self._under_way = 0

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        return {"GetLife": self._calls.unary(f"/{service}/GetLife", parsed(pb.GetLifeRequest, self._get))}

    async def _get(self, request: pb.GetLifeRequest, context: CallContext) -> Answer:
        named = id_of(request.id, self._shard)
        if isinstance(named, Refusal):
            return named
        if self._under_way >= LIVES_MAX:
            return Refusal(Reason.OVERLOADED, f"{LIVES_MAX} messages are being looked at", retry_ms=100)
        self._under_way += 1
        try:
            await self._driver.read_barrier()
            return await self._told((named.hour, named.global_index), context)
        except UnknownMessage:
            return NOT_FOUND
        finally:
            self._under_way -= 1

    async def _told(self, message: Id, context: CallContext) -> Answer:
        place = self._place(message)
        queue = self._queue(place, context)
        if queue is not None and queue.group:
            record = (await self._damage.read(*columns_of(place)))[0]
            if (copy := retried_of(record)) is None:
                return DAMAGED
            message = copy.hour, copy.global_index
            place = self._place(message)
            queue = self._queue(place, context)
        if queue is None or queue.group:
            return NOT_FOUND
        delivery = self._leadership.delivery
        if delivery is None:
            return Refusal(Reason.NO_LEADER, "leadership is moving: ask again", retry_ms=100)
        state = self._machine.wheel.state(*place)
        due_ms = int(self._machine.due_ms(*columns_of(place))[0])
        told = await delivery.lives.tell(queue, place, due_ms, state)
        told.id, told.state = str(MessageId(self._shard, *message)), STATES[state]
        told.now_ms, told.applied_index = self._time.now_ms(), self._machine.applied_index
        return told.SerializeToString()

    def _place(self, message: Id) -> Id:
        """Return where a message rests, which may have been moved."""
        hour, index = self._machine.wheel.places_of(*columns_of(message))
        return int(hour[0]), int(index[0])

    def _queue(self, place: Id, context: CallContext) -> ReadyQueue | None:
        """Return the queue of the message at a place, if the caller may know of it. Raises UnknownMessage."""
        if self._machine.wheel.state(*place) not in STATES:
            return None
        units = self._machine.wheel.units(*columns_of(place))
        queue = self._machine.queues[int(queue_of(units["topic"])[0])]
        if queue.topic == CHECKS:  # of half messages nothing is told
            return None
        return queue if self._authorizer.sees(context)(queue.topic) else None
