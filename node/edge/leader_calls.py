"""gRPC handlers over raw bytes, with the same edges for every call.

Each call is authorized, counted against shutdown, forwarded if this node does
not lead, and ends with an answer or a status with details: never hangs, never guesses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import grpc

from tarry.node.edge.forwarded_caller import FORWARDED_KEY
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_status import UNKNOWN_OUTCOME, abort
from tarry.node.edge.grpc_types import CallContext, M, MethodHandler, metadata_value, parse
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.proto.reasons import Reason
from tarry.replication.errors import NotLeader, Overloaded, Unknown
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import WheelDamaged

Answer: TypeAlias = bytes | Refusal
Local: TypeAlias = Callable[[bytes, CallContext], Awaitable[Answer]]

HELD_S: Final = 0.1
"""A call that comes while leadership moves waits so long for a leader, and half of its time at most."""
AGAIN_S: Final = 0.001
"""Until a node that has just said that it does not lead is asked again."""

TURN_CALLS: Final = 100
"""Calls that one turn of the event loop refuses or passes on, at some 0.1 ms each.

All that wait for a leader go on together, and all that are under way end together when it is lost."""


def refusal_of(error: Overloaded | Unknown | LevelTooLow) -> Refusal:
    """Return the refusal for what the log says to a proposal."""
    if isinstance(error, LevelTooLow):
        return error.refused
    if isinstance(error, Overloaded):
        text = "too much waits to be replicated: try again later"
        return Refusal(Reason.OVERLOADED, text, retry_ms=error.retry_ms)
    return UNKNOWN_OUTCOME


def parsed(kind: type[M], answer: Callable[[M, CallContext], Awaitable[Answer]]) -> Local:
    """Return what answers a call from its bytes; other bytes than of a message of that kind are refused."""

    async def local(raw: bytes, context: CallContext) -> Answer:
        request = parse(kind, raw)
        return request if isinstance(request, Refusal) else await answer(request, context)

    return local


def _on_its_way(damage: Exception) -> Refusal:
    text = f"{damage}; a peer's copy is on its way: try again in a second"
    return Refusal(Reason.MESSAGE_DAMAGED, text, retry_ms=1_000)


class LeaderCalls:
    """Makes handlers for unary calls that only the leader can answer."""

    def __init__(
        self,
        may_serve: Callable[[], bool],
        not_leader: Callable[[], Refusal],
        until_led: Callable[[float], Awaitable[bool]],
        forwarder: Forwarder,
        damaged: Callable[[UnitsDamaged], Refusal],
        index_damaged: Callable[[WheelDamaged], None],
        unread: Callable[[UnitsDamaged], None] = lambda _: None,
    ) -> None:
        """Take what reports that a call could not read something.

        Args:
            damaged: of a queue that deliveries need, and returns the refusal of the call.
            unread: of a queue that only the call needs.
            index_damaged: of an hour's index. Raises it again where it is of no hour.
        """
        self._may_serve = may_serve
        self._not_leader = not_leader
        self._until_led = until_led
        self._forwarder = forwarder
        self._turns = IntakeTurns()
        self.damaged = damaged
        self._index_damaged = index_damaged
        self._unread = unread

    def unary(
        self, path: str, local: Local, waits_s: float = 0.0, *, delivers: bool = False
    ) -> MethodHandler:
        """Return the handler of a call, answered here or by the leader, which may wait for so long.

        ``delivers``: it is a part of delivery, which ends where its units cannot be read.
        """

        async def handle(raw: bytes, context: CallContext) -> bytes:
            answer = await self.answer(path, raw, context, local, waits_s, delivers=delivers)
            if isinstance(answer, Refusal):
                await self._turns.enter(1 / TURN_CALLS)
                await abort(context, answer)
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def not_here(self) -> Refusal | None:
        """Return why this node cannot answer, None if it can."""
        return None if self._may_serve() else self._not_leader()

    async def answer(
        self,
        path: str,
        raw: bytes,
        context: CallContext,
        local: Local,
        waits_s: float = 0.0,
        *,
        delivers: bool = False,
    ) -> Answer:
        """Return the answer of this node if it leads, else of the leader, waiting a moment for one."""
        loop = asyncio.get_running_loop()
        left_s = context.time_remaining()
        until_s = loop.time() + (HELD_S if left_s is None else min(HELD_S, left_s / 2))
        while True:
            if self._may_serve():
                try:
                    return await local(raw, context)
                except NotLeader:
                    # Certainly not done: the new leader may be asked. A lone node that stops leads until its
                    # last write is done, so this one may be asked again, and has to leave it time.
                    await asyncio.sleep(AGAIN_S)
                except (Overloaded, Unknown, LevelTooLow) as error:
                    return refusal_of(error)
                except UnitsDamaged as damage:
                    if delivers:
                        return self.damaged(damage)
                    self._unread(damage)
                    return _on_its_way(damage)
                except WheelDamaged as error:
                    self._index_damaged(error)
                    return _on_its_way(error)
            refusal = self._not_leader()
            if refusal.reason is Reason.NOT_LEADER:
                forwarded = metadata_value(context.invocation_metadata(), FORWARDED_KEY)
                leader = refusal.facts["leader"]
                if forwarded:
                    return refusal
                await self._turns.enter(1 / TURN_CALLS)
                return await self._forwarder.forward(leader, path, raw, context, waits_s)
            if loop.time() >= until_s or not await self._until_led(until_s - loop.time()):
                return refusal
