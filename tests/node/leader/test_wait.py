"""A call that comes while leadership moves is answered as soon as somebody leads, or refused soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest

from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_types import CallContext
from tarry.node.edge.leader_calls import Answer, LeaderCalls
from tarry.node.leader.wait import LeaderWait
from tarry.proto.reasons import Reason
from tarry.replication.errors import NotLeader
from tarry.replication.state_machine.refusal import Refusal

PATIENCE_S = 60
NOBODY = Refusal(Reason.NO_LEADER, "nobody", retry_ms=100)


class Seat:
    """Whether this node serves, and its calls on a port of 127.0.0.1."""

    def __init__(self) -> None:
        self.serves = False
        self.asked = asyncio.Event()
        self.local = self._answer
        self.wait = LeaderWait(lambda: self.serves)

    def not_leader(self) -> Refusal:
        self.asked.set()
        return NOBODY

    async def _answer(self, raw: bytes, context: CallContext) -> Answer:
        return raw.upper()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Callable[..., grpc.aio.UnaryUnaryCall[bytes, bytes]]]:
        forwarder = Forwarder(None, [], {})
        calls = LeaderCalls(
            lambda: self.serves,
            self.not_leader,
            self.wait.until_led,
            forwarder,
            lambda _: NOBODY,
            lambda _: None,
        )
        server = grpc.aio.server()
        handler = calls.unary("/seat/Call", self.local)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("seat", {"Call": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary("/seat/Call")
        await server.stop(None)


async def test_a_call_while_leadership_moves_is_answered_once_somebody_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.node.edge.leader_calls.HELD_S", PATIENCE_S)
    seat = Seat()
    async with seat.open() as call:
        answer = call(b"hello", timeout=2 * PATIENCE_S)
        await seat.asked.wait()
        seat.wait.notify()  # of something else: the call goes on waiting
        seat.serves = True
        seat.wait.notify()
        assert await answer == b"HELLO"


async def test_a_call_is_refused_where_nobody_leads_in_time() -> None:
    async with Seat().open() as call:
        with pytest.raises(grpc.aio.AioRpcError, match="nobody"):
            await call(b"hello", timeout=PATIENCE_S)


async def test_a_node_that_seems_to_serve_and_never_takes_a_proposal_refuses_in_the_end() -> None:
    seat = Seat()
    seat.serves = True

    async def not_leader(raw: bytes, context: CallContext) -> Answer:
        raise NotLeader(None)

    seat.local = not_leader
    async with seat.open() as call:
        with pytest.raises(grpc.aio.AioRpcError, match="nobody"):
            await call(b"hello", timeout=PATIENCE_S)
