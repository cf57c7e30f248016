"""What a replica tells about itself, and the refusals of its log."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Dropped(enum.StrEnum):
    """Why a peer's message counts for nothing; the value says what to do."""

    STRANGER = "it is no member: add it, or name it in `members`"
    JOURNAL = "its journal is not the one that it was added with: start it with --rejoin"
    TERM = "no election leads to its term from the one here: one of the two nodes needs --rejoin"


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    """Elected. Whether it may serve is `Driver.may_serve()`, asked at the moment of use."""


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


@dataclass(frozen=True, slots=True)
class Transferred:
    leader: str
    term: int
    pause_ms: int
    """How long no proposals were taken."""


class TransferRefusal(enum.Enum):
    NOT_LEADER = "not_leader"
    BUSY = "busy"
    NO_TARGET = "no_target"
    TIMED_OUT = "timed_out"


class TransferRefused(Exception):
    """Leadership stays. The caller may try again; `reason` says what stood in the way."""

    def __init__(self, reason: TransferRefusal, text: str) -> None:
        super().__init__(f"{reason.value}: {text}")
        self.reason = reason
        self.text = text


class MembershipRefused(Exception):
    """Nothing was changed; the message says why. The caller may try again."""


class ProposalRefused(Exception):
    """A command was not applied; subclasses say how sure that is."""


class NotLeader(ProposalRefused):
    """The command has not been and never will be applied. Try `leader` (None: not known)."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(f"not the leader; {leader or 'nobody known'} is")
        self.leader = leader


class Unknown(ProposalRefused):
    """The command may or may not be applied: leadership was lost while it was under way. Ask again with
    the same producer and sequence."""


class Overloaded(ProposalRefused):
    """The command has not been and never will be applied. Try again in `retry_ms`."""

    def __init__(self, retry_ms: int) -> None:
        super().__init__(f"too much is waiting; try again in {retry_ms} ms")
        self.retry_ms = retry_ms


class CommandTooLarge(ProposalRefused):
    """The command has not been and never will be applied: it is above the maximum."""
