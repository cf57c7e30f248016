"""Errors of proposals, leadership transfers and membership changes; each says whether anything was done."""

from __future__ import annotations

import enum


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


class LevelRefused(Exception):
    """The cluster's level stays; the message names the members that cannot apply the next, or are silent."""


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
