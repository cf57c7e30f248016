"""The parts of one replica's consensus that elections, log replication and heartbeats share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tarry.replication.clock import Clock
from tarry.replication.journal.journal import Journal
from tarry.replication.raft.engine import Engine
from tarry.replication.raft.guard.transfer import Transfer
from tarry.replication.raft.membership import Membership
from tarry.replication.raft.outbox import Outbox
from tarry.replication.raft.progress import Peers
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Hello


@dataclass(frozen=True, slots=True)
class Context:
    """Parts of one replica's consensus, the same for as long as it lasts."""

    node: str
    engine: Engine
    journal: Journal
    membership: Membership
    peers: Peers
    outbox: Outbox
    transfer: Transfer
    clock: Clock
    rng: random.Random
    settings: ReplicationSettings
    hello: Hello
    cluster_level: Callable[[], int]
    """The cluster's level, as this replica has applied it."""
    flush_ms: Callable[[], int] = lambda: 0
    """Within it written entries are flushed, as this replica has applied it; 0: before they are answered."""
