"""What consensus asks of whatever carries its messages: gRPC, or a simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from tarry.proto.tarry_peer_pb2 import FetchSnapshotResponse, PeerMessage
from tarry.replication.wire import Identity

ServeSnapshot: TypeAlias = Callable[[], AsyncIterator[FetchSnapshotResponse]]


class Transport(Protocol):
    """Carries messages to peers; in order, at most once, perhaps not at all."""

    def start(
        self,
        identity: Identity,
        receive: Callable[[str, list[PeerMessage]], None],
        link: Callable[[str, bool], None],
        serve_snapshot: ServeSnapshot,
        fail: Callable[[BaseException], None],
    ) -> None:
        """All are called on the event loop: `receive(peer, messages)`, `link(peer, up)`, and `fail(error)`
        where something happened that never should."""

    def restart(self, identity: Identity) -> None:
        """From here on speaks as another start of the same node."""

    def set_peers(self, addresses: Mapping[str, str]) -> None: ...

    def send(self, peer: str, messages: Sequence[bytes]) -> bool:
        """False: dropped."""

    def fetch_snapshot(self, peer: str) -> AsyncIterator[FetchSnapshotResponse]:
        """Raises SnapshotFailed."""

    async def stop(self) -> None: ...
