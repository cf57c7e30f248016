"""The progress of an upgrade of the nodes, worked out of what each of them answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarry.client.errors import TarryError
from tarry.client.operators.cluster_status import ClusterStatus, Member, best_of


@dataclass(frozen=True, slots=True)
class MemberVersion:
    """A member, by its own answer, or else by what the leader has last heard of it."""

    node: str
    address: str
    version: str
    """Empty: not known."""
    level_max: int
    """The highest level that it can apply; 0: not known."""
    answers: bool
    lacks: str
    """Why the next level waits for it, or why it cannot follow the cluster; empty: for nothing."""


@dataclass(frozen=True, slots=True)
class UpgradeStatus:
    """The cluster's level, and who keeps it from the next one."""

    level: int
    next_level: int
    """The one to be raised to; equal to ``level`` where no member can apply more."""
    finish: str
    """``upgrade.finish`` of the leader; empty: it does not say."""
    members: tuple[MemberVersion, ...]

    @property
    def missing(self) -> dict[str, str]:
        """Members that the next level waits for, with why."""
        return {member.node: member.lacks for member in self.members if member.lacks}


def upgrade_status(answers: Mapping[str, ClusterStatus | TarryError]) -> UpgradeStatus | None:
    """Return the status, of the answers by address; None where no node answers."""
    best = best_of(answers)
    if best is None:
        return None
    of_node = {answer.node: answer for answer in answers.values() if isinstance(answer, ClusterStatus)}
    level = max(1, best.level)
    said = {member.node: _said(member, of_node.get(member.node)) for member in best.members}
    more = any(level_max > level for _, level_max in said.values())
    next_level = level + 1 if more else level
    members = tuple(
        MemberVersion(
            member.node,
            member.address,
            *said[member.node],
            member.node in of_node,
            _lacks(*said[member.node], member.node in of_node, next_level),
        )
        for member in best.members
    )
    return UpgradeStatus(level, next_level, best.upgrade_finish, members)


def _said(member: Member, own: ClusterStatus | None) -> tuple[str, int]:
    """Return a member's version and highest level; those before 0.3.0 say nothing of levels, and have one."""
    return (own.version, max(1, own.level_max)) if own is not None else (member.version, member.level_max)


def _lacks(version: str, level_max: int, answers: bool, next_level: int) -> str:
    if 0 < level_max < next_level:
        return f"{version or 'its version'} applies level {level_max} at most: upgrade it"
    return "" if answers else "it does not answer"
