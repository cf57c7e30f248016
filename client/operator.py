"""An operator: asks how the cluster is, and moves leadership."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grpc import aio

from tarry.client.calls import Calls
from tarry.client.errors import TarryError
from tarry.client.nodes import Nodes
from tarry.client.status import error_of_call
from tarry.proto import tarry_operator_pb2 as operator_pb


@dataclass(frozen=True, slots=True)
class Member:
    """A node as the answering node sees it."""

    node: str
    address: str
    connected: bool
    match_index: int
    """Highest log index known to be on it; known to the leader only."""
    clock_offset_ms: int
    """Its clock minus the answering node's."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """How far a group is in a topic."""

    group: str
    floor: int
    """Every offset below is acknowledged."""
    acked_above_floor: int
    retrying: int
    consumers: int
    in_hand: int


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic that has released messages or groups."""

    topic: str
    released: int
    groups: tuple[GroupStatus, ...]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster as one node sees it."""

    node: str
    leader: str
    """Name of the node that leads; empty where none is known."""
    term: int
    commit_index: int
    applied_index: int
    members: tuple[Member, ...]
    pending: int
    """Messages in the wheel."""
    ready: int
    """Messages released and not yet acknowledged by every group."""
    frontier_ms: int
    tick: int
    local_index: int
    now_ms: int
    topics: tuple[TopicStatus, ...]
    version: str
    lease: bool
    """The answering node leads and may serve."""
    state_digest: str
    """Equal on nodes of equal applied_index; hexadecimal."""

    @classmethod
    def of(cls, response: operator_pb.ClusterStatusResponse) -> ClusterStatus:
        """Return the answer to one request."""
        return cls(
            node=response.node,
            leader=response.leader,
            term=response.term,
            commit_index=response.commit_index,
            applied_index=response.applied_index,
            members=tuple(
                Member(m.node, m.address, m.connected, m.match_index, m.clock_offset_ms)
                for m in response.members
            ),
            pending=response.pending,
            ready=response.ready,
            frontier_ms=response.frontier_ms,
            tick=response.tick,
            local_index=response.local_index,
            now_ms=response.now_ms,
            topics=tuple(map(_topic, response.topics)),
            version=response.version,
            lease=response.lease,
            state_digest=response.state_digest.hex(),
        )


def _topic(topic: operator_pb.TopicStatus) -> TopicStatus:
    groups = tuple(
        GroupStatus(g.group, g.floor, g.acked_above_floor, g.retrying, g.consumers, g.in_hand)
        for g in topic.groups
    )
    return TopicStatus(topic.topic, topic.released, groups)


@dataclass(frozen=True, slots=True)
class Transferred:
    """Leadership has moved."""

    leader: str
    term: int
    pause_ms: int
    """How long no schedules were taken."""


class Operator:
    """Asks and moves. Made by ``Client.operator``."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._calls = Calls(nodes)

    async def status(self) -> ClusterStatus:
        """Return the cluster as the leader sees it, or any node where none leads."""
        request = operator_pb.ClusterStatusRequest()
        return ClusterStatus.of(
            await self._calls.call(lambda node: node.operator.ClusterStatus, request, changes=False)
        )

    async def status_of(self, address: str, timeout_ms: int = 1_000) -> ClusterStatus:
        """Return the cluster as the node at this address sees it. Raises TarryError where it is silent."""
        try:
            response = await self._nodes.node(address).operator.ClusterStatus(
                operator_pb.ClusterStatusRequest(), timeout=timeout_ms / 1_000, metadata=self._nodes.metadata
            )
        except aio.AioRpcError as failure:
            raise error_of_call(failure) from failure
        return ClusterStatus.of(response)

    async def status_of_all(self, timeout_ms: int = 1_000) -> dict[str, ClusterStatus | TarryError]:
        """Return what each node says, or why it says nothing, by address."""
        addresses = sorted(self._nodes.addresses())
        answers = await asyncio.gather(
            *(self.status_of(address, timeout_ms) for address in addresses), return_exceptions=True
        )
        found: dict[str, ClusterStatus | TarryError] = {}
        for address, answer in zip(addresses, answers, strict=True):
            if not isinstance(answer, ClusterStatus | TarryError):
                raise answer
            found[address] = answer
        return found

    async def transfer(self, target: str = "", *, deadline_ms: int = 0) -> Transferred:
        """Hand leadership to ``target``: a node's name; empty: the follower that has most.

        Without duplicates. Raises TransferRefused where leadership stays, OutcomeUnknown where no
        answer came: then ask ``status``. Tried once: a second try could move it on.
        """
        request = operator_pb.TransferLeadershipRequest(target=target, deadline_ms=deadline_ms)
        response = await self._calls.call(lambda node: node.operator.TransferLeadership, request, once=True)
        return Transferred(response.leader, response.term, response.pause_ms)
