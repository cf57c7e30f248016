"""Who the members are: those of the journal's start, and every change in the log since, committed or not.

A change counts as soon as it is in the log (Raft §6); cut from the log, it no longer does.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.journal import Journal


class Membership:
    def __init__(self, journal: Journal, configured: Mapping[str, str]) -> None:
        """`configured`: addresses by node. They say who the members are at a cluster's first start only;
        later they only tell where the journal's members now listen."""
        self._journal = journal
        self._configured = configured
        if journal.members is None:
            journal.set_members(configured)

    def at(self, index: int) -> dict[str, str]:
        """Addresses by node, as of an index not before the journal's start."""
        members = dict(self._journal.members or {})
        for changed, payload in self._journal.membership_changes:
            if changed <= index:
                _apply(members, MembershipChange.FromString(payload[1:]))
        return members

    def current(self) -> dict[str, str]:
        members = self.at(self._journal.last_index)
        return {node: self._configured.get(node, address) for node, address in members.items()}

    def named(self) -> dict[str, str]:
        """Also those removed since the journal's start: one of them may yet be leader, and must be answered
        (S23)."""
        members = dict(self._journal.members or {})
        for _, payload in self._journal.membership_changes:
            change = MembershipChange.FromString(payload[1:])
            members.setdefault(change.node, change.address)
        return {node: self._configured.get(node, address) for node, address in members.items()}


def _apply(members: dict[str, str], change: MembershipChange) -> None:
    if change.remove:
        members.pop(change.node, None)
    else:
        members[change.node] = change.address
