"""The status of a replica and its peers, as values."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class Dropped(enum.StrEnum):
    """Reason for ignoring a peer's message; the value says what to do."""

    STRANGER = "it is no member: add it, or name it in `members`"
    JOURNAL = "its journal is not the one that it was added with: start it with --rejoin"
    STALLED = "too many wait for this node's disk, which stalls: see `journal write` in its status"
    TERM = "no election leads to its term from the one here: one of the two nodes needs --rejoin"


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    """Elected. Whether it may serve is `Driver.may_serve()`, asked at the moment of use."""


SETTINGS_BYTES_MAX: Final = 16 << 10
"""Of a node's settings, serialized; longer ones are not kept."""


def digest_of(settings: bytes) -> int:
    """Return the digest of a node's settings; 0 of none."""
    return int.from_bytes(hashlib.blake2b(settings, digest_size=8).digest()) if settings else 0


@dataclass(frozen=True, slots=True)
class Hello:
    """Statement of a node on its present start, in each answer to a heartbeat."""

    level: int = 1
    """The highest that it can apply."""
    version: str = ""
    """Empty: of a version that does not say."""
    settings: bytes = field(default=b"", repr=False)
    """A SettingList of what has to be equal on all nodes, unparsed; empty: not known, or not told."""
    settings_digest: int = 0
    """0: of a version that does not tell them."""

    def __str__(self) -> str:
        return f"tarry {self.version}" if self.version else "an earlier tarry"


@dataclass(frozen=True, slots=True)
class PeerStatus:
    address: str
    connected: bool
    voting: bool
    match_index: int
    """0 where not known (not the leader)."""
    clock_offset_ms: float | None
    """The peer's wall clock minus ours; None: not measured."""
    clock_error_ms: float
    """How far that can be off, either way."""
    rtt_ms: float | None
    """None: not measured (followers measure no round trip)."""
    heard_ms_ago: float | None
    hello: Hello | None = None
    """None: not known (not the leader, or it has not answered)."""


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    node: str
    role: Role
    leader: str | None
    term: int
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    members: Mapping[str, str]
    """Addresses by node, this one's too."""
    peers: Mapping[str, PeerStatus]
    may_serve: bool
    hello: Hello
    """Of this node."""
    unflushed: int = 0
    """Entries that this node has written, and not flushed yet."""
    may_defer: bool = False
    """It would notice that its machine lost its power: with async durability it flushes later."""


@dataclass(frozen=True, slots=True)
class Transferred:
    leader: str
    term: int
    pause_ms: int
    """How long no proposals were taken."""


def loses_quorum(status: ReplicationStatus, node: str) -> bool:
    """Return whether the members that are left without the node, and can be reached, are no majority."""
    left = [member for member in status.members if member != node]
    reached = [member for member in left if member == status.node or status.peers[member].connected]
    return 2 * len(reached) <= len(left)
