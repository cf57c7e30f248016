"""Progress of each peer, as this replica knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tarry.replication.raft.guard.flow_control import Flow
from tarry.replication.raft.guard.peer_clock import PeerClock
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Hello


@dataclass(slots=True)
class Progress:
    """Progress of one peer. Its match and next index are the engine's, its part in the lease is `Lease`'s."""

    flow: Flow
    """Appends in flight to it, and the window that bounds them."""
    clock: PeerClock = field(default_factory=PeerClock)
    """Readings of its wall clock, with the last contact and the round trip."""
    linked: bool = False
    """The connection to it is open."""
    told_commit_index: int | None = None
    """Commit index in the latest append to it; None: none since the connection, role or term changed."""
    applied_index: int = 0
    """Index that it has applied, by its latest answer to a heartbeat; 0: there was none."""
    flushed_index: int = 0
    """Up to here no loss of power takes its log back, by its answers to this leadership."""
    compared: tuple[int, int] = 0, 0
    """Term of its latest append that agreed with the log here, and up to where."""
    hello: Hello | None = None
    """What it says of itself in the latest of its answers."""
    hello_at: float = -math.inf
    """Time, by this node's monotonic clock, at which the heartbeat that it answered with that was sent."""


class Peers(dict[str, Progress]):
    """Progress by peer; made when first asked for."""

    def __init__(self, settings: ReplicationSettings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, peer: str) -> Progress:
        settings = self._settings
        flow = Flow(
            settings.window_bytes_max,
            settings.window_bytes_min,
            settings.window_delay_ms / 1000,
            settings.fallback_ms / 1000,
        )
        progress = self[peer] = Progress(flow)
        return progress
