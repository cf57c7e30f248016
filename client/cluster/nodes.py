"""Nodes of the cluster as this client knows them: channels, the leader, nodes to avoid.

    find_leader: ask all ──► none leads: again 50 ms later ──► one says "I lead and may serve"
    redirected:  a node refused and named the leader

A search accepts only a node that reports itself as leader with a lease: followers go on naming
a dead leader until they elect another. A refused call accepts the leader that the refusal names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

import grpc
from grpc import aio

from tarry.client.cluster.fault_avoidance import Avoidance
from tarry.client.cluster.forks import begin_channels
from tarry.client.errors import NotPermitted, OutcomeUnknown, TarryError, Unavailable, error_of_call
from tarry.client.settings import Settings
from tarry.proto import bearer_token
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.grpc_loop import many_events_of
from tarry.proto.reasons import Reason
from tarry.proto.tarry_consumer_pb2_grpc import ConsumerServiceStub
from tarry.proto.tarry_operator_pb2_grpc import OperatorServiceStub
from tarry.proto.tarry_producer_pb2_grpc import ProducerServiceStub
from tarry.proto.tarry_query_pb2_grpc import QueryServiceStub
from tarry.proto.tarry_recurring_pb2_grpc import RecurringServiceStub

ASK_MS: Final = 1_000
"""Time limit for a node's answer to a brief status call."""
FIRST_LOOK_MS: Final = 1_000
"""Time for which a call waits for the leader to be found before any node forwards it."""


Asked = asyncio.Task[operator_pb.ClusterStatusResponse | None]


class Node:
    """One node's channel and stubs."""

    def __init__(self, address: str, settings: Settings) -> None:
        begin_channels()
        options = settings.channel_options()
        self.address = address
        target = settings.dial.get(address, address)
        with many_events_of(asyncio.get_running_loop()):
            self.channel = (
                aio.secure_channel(target, settings.tls.credentials(), options)
                if settings.tls
                else aio.insecure_channel(target, options)
            )
        self.producer = ProducerServiceStub(self.channel)
        self.consumer = ConsumerServiceStub(self.channel)
        self.query = QueryServiceStub(self.channel)
        self.recurring = RecurringServiceStub(self.channel)
        self.operator = OperatorServiceStub(self.channel)


class Nodes:
    """All of one client's nodes. Belongs to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metadata = aio.Metadata(*bearer_token.metadata(settings.token))
        self.leader: str | None = None
        self.term = 0
        self.schedule_streams = 0
        """Open, of all producers."""
        self.avoidance = Avoidance(lambda: time.monotonic() * 1_000)
        self._known: dict[str, None] = dict.fromkeys(settings.servers)
        self._nodes: dict[str, Node] = {}
        self._asking: dict[str, Asked] = {}
        self._search: asyncio.Task[str | None] | None = None
        self._found: asyncio.Future[str] | None = None
        self._may_ask = True
        self._turn = 0
        self._names: dict[str, str] = {}
        self._heard: operator_pb.ClusterStatusResponse | None = None
        self._heard_at = 0.0

    def node(self, address: str) -> Node:
        """Return the node at an address, with its channel open."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(address, self.settings)
        return node

    def addresses(self) -> list[str]:
        """Return every known address, those to try first first."""
        known = list(self._known)
        self._turn = (self._turn + 1) % len(known)
        return self.avoidance.order(known[self._turn :] + known[: self._turn])

    async def pick(self, within_ms: float = FIRST_LOOK_MS) -> Node:
        """Return the leader, or where none is found in time any node that may forward."""
        leader = self.leader
        if leader is None or not self.avoidance.available(leader):
            leader = await self.find_leader(min(within_ms, FIRST_LOOK_MS))
        return self.node(leader or self.addresses()[0])

    async def find_leader(self, within_ms: float) -> str | None:
        """Return the address of a node that says it leads, or None when none did in time.

        Callers share one search.
        """
        if not self._may_ask:
            return self.leader
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(within_ms / 1_000):
                return await asyncio.shield(self._search)
        except TimeoutError:
            return None

    async def replaced(self, address: str, term: int) -> bool:
        """Ask another node; return whether it knows of a term after the one in which this one led.

        Callers within a watch period share the question, however many streams there are.
        """
        if time.monotonic() - self._heard_at > 0.8 * self.settings.watch_ms / 1_000:
            others = [other for other in self.addresses() if other != address]
            self._heard_at = time.monotonic()
            self._heard = await self._ask(others[0]) if others and self._may_ask else None
        status = self._heard
        return status is not None and status.term > term and not self._is_leader(status, address)

    def leader_lost(self, address: str) -> None:
        """Record that the node at this address leads no more."""
        if self.leader == address:
            self.leader = None

    def learn(self, address: str, error: TarryError) -> None:
        """Take from an error what it says about the node that gave it, and about the leader."""
        leader = error.facts.get("leader")
        if isinstance(error, Unavailable) and leader and leader != address and self._usable(leader):
            self._known.setdefault(leader)
            self.leader = leader
            self.avoidance.answered(leader)
            return
        if isinstance(error, Unavailable | OutcomeUnknown):
            self.leader_lost(address)
            if error.reason in {"UNREACHABLE", "UNAVAILABLE", "DEADLINE_EXCEEDED", Reason.SHUTTING_DOWN}:
                self.avoidance.failed(address)

    def learn_members(self, addresses: Iterable[str]) -> None:
        """Take members' addresses from a status; an empty one is of a member that has told none."""
        if self.settings.discover:
            self._known.update(dict.fromkeys(filter(None, addresses)))

    async def close(self) -> None:
        """Stop searching and close every channel."""
        tasks = [*self._asking.values(), *([self._search] if self._search else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(node.channel.close(None) for node in self._nodes.values()))

    def _usable(self, address: str) -> bool:
        return self.settings.discover or address in self._known

    async def _look(self) -> str | None:
        self._found = asyncio.get_running_loop().create_future()
        give_up = time.monotonic() + self.settings.deadline_ms / 1_000
        try:
            while self._may_ask and time.monotonic() < give_up:
                for address in self.addresses():
                    if address not in self._asking:
                        task = asyncio.create_task(self._ask(address))
                        self._asking[address] = task
                        task.add_done_callback(partial(self._asked, address))
                await asyncio.wait([self._found], timeout=self.settings.pace_ms / 1_000)
                if self._found.done():
                    return self._found.result()
            return None
        finally:
            for task in self._asking.values():
                task.cancel()

    def _asked(self, address: str, _: Asked) -> None:
        self._asking.pop(address, None)

    async def _ask(self, address: str) -> operator_pb.ClusterStatusResponse | None:
        try:
            status: operator_pb.ClusterStatusResponse = await self.node(address).operator.ClusterStatus(
                operator_pb.ClusterStatusRequest(brief=True), timeout=ASK_MS / 1_000, metadata=self.metadata
            )
        except grpc.aio.AioRpcError as failure:
            error = error_of_call(failure)
            self._may_ask = not isinstance(error, NotPermitted)
            self.learn(address, error)
            return None
        self.avoidance.answered(address)
        self._learn_status(address, status)
        return status

    def _is_leader(self, status: operator_pb.ClusterStatusResponse, address: str) -> bool:
        named = self._names.get(address)
        return (
            status.leader == named
            if named
            else address in {member.address for member in status.members if member.node == status.leader}
        )

    def _learn_status(self, address: str, status: operator_pb.ClusterStatusResponse) -> None:
        self._names[address] = status.node
        self.learn_members(member.address for member in status.members)
        if not status.lease:
            if status.term >= self.term:
                self.leader_lost(address)
            return
        if status.term >= self.term:
            self.leader, self.term = address, status.term
            if self._found and not self._found.done():
                self._found.set_result(address)
