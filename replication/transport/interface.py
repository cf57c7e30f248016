"""Interface of the transport between peers: of the streams, and of the simulated network."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from tarry.proto.tarry_peer_pb2 import FetchSnapshotResponse, PeerMessage, RecallResponse, SnapshotFile
from tarry.replication.raft.membership import Origin
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.transport.blocked_port import BlockedPort
from tarry.replication.transport.envelope import Identity

ServeSnapshot: TypeAlias = Callable[[Sequence[SnapshotFile], int], AsyncIterator[FetchSnapshotResponse]]
"""Given what the receiver has already, and the highest level that it can apply."""


class Transport(Protocol):
    """Carries messages to peers; at most once, perhaps not at all; in order what is urgent, and what is
    bulk, in any order across the two (`envelope`)."""

    def introduce(self, spoken_peers: SpokenPeers) -> None:
        """Answer peers who has spoken to this node, from here on; it may yet say nothing itself."""

    async def recall(self, peer: str, address: str) -> RecallResponse | None:
        """Return, before `start`, who has spoken to a peer; None: it does not answer."""

    def start(
        self,
        identity: Identity,
        receive: Callable[[str, list[PeerMessage], Origin], None],
        link: Callable[[str, bool], None],
        serve_snapshot: ServeSnapshot,
        fail: Callable[[BaseException], None],
    ) -> None:
        """Carry messages from now on.

        Called on the event loop: `receive(peer, messages, origin)`, `link(peer, up)`, and `fail(error)`
        for what never should happen.
        """

    def restart(self, identity: Identity) -> None:
        """Speak as another start of the same node from here on."""

    def set_peers(self, addresses: Mapping[str, str]) -> None: ...

    def blocked(self) -> Mapping[str, BlockedPort]:
        """Return the peers that answer calls, and whose port for streams this node cannot reach."""

    def send(self, peer: str, messages: Sequence[bytes], *, bulk: bool = False) -> bool:
        """Send messages; False: dropped. What is not `bulk` does not wait for what is."""

    def fetch_snapshot(
        self, peer: str, kept: Sequence[SnapshotFile], level: int
    ) -> AsyncIterator[FetchSnapshotResponse]:
        """Fetch a peer's state, of level `level` at most; `kept`: what is here. Raises SnapshotFailed."""

    async def stop(self) -> None: ...


@dataclass(slots=True)
class PeerTls:
    """Options of the streams between peers, for either end; handshakes begin with what is here then."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def renew(self, other: PeerTls) -> None:
        """Begin handshakes with the other's options; streams that are open stay."""
        self.server, self.client = other.server, other.client


@dataclass(frozen=True, slots=True)
class PeerGate:
    """Authentication of peers by a call's context."""

    names: Callable[[Any], Set[str] | None]
    """The nodes that the caller may speak for; None: any."""
    admits: Callable[[str], bool]
    """Whether there is, or may be, a node of that name in the cluster."""
    refuse: Callable[[Any, str], Awaitable[NoReturn]]
    """Ends the call of one who claimed to be a node that it may not speak for."""
    refuse_stranger: Callable[[Any, str], Awaitable[NoReturn]]
    """Ends the call of one who is no node of the cluster."""

    async def check(self, context: Any, claimed: str) -> None:
        """End the call of one who is not the node that it claims to be, or no node of the cluster."""
        await self.check_name(context, claimed)
        if not self.admits(claimed):
            await self.refuse_stranger(context, claimed)

    async def check_name(self, context: Any, claimed: str) -> None:
        """End the call of one who is not the node that it claims to be, of the cluster or not."""
        names = self.names(context)
        if names is not None and claimed not in names:
            await self.refuse(context, claimed)


async def _never(_: Any, claimed: str) -> NoReturn:
    raise AssertionError(f"nobody was asked, and {claimed} refused")


ANYBODY: Final = PeerGate(lambda _: None, lambda _: True, _never, _never)
