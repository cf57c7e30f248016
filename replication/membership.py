"""Who the members are: those of the journal's start, and every change in the log since, committed or not.

A change counts as soon as it is in the log (Raft §6); cut from the log, it no longer does. Where a member
listens is said by the entry that added it; of those a cluster was founded with, by the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarry.proto.tarry_peer_pb2 import MemberList, MembershipChange
from tarry.replication.journal import Journal


class Membership:
    def __init__(self, journal: Journal, configured: Mapping[str, str]) -> None:
        """`configured`: addresses by node. They say who the members are at a cluster's first start only;
        later they only tell where its founders now listen."""
        self._journal = journal
        self._configured = configured
        if journal.members is None:
            journal.set_members(configured)

    def at(self, index: int) -> MemberList:
        """As of an index not before the journal's start."""
        addresses, added = self._fold(index)
        return MemberList(addresses=addresses, added=sorted(added))

    def current(self) -> dict[str, str]:
        """Addresses by node."""
        addresses, added = self._fold(self._journal.last_index)
        return self._where(addresses, added)

    def named(self) -> dict[str, str]:
        """Also those removed since the journal's start: one of them may yet be leader, and must be answered
        (S23)."""
        _, added = self._fold(self._journal.last_index)
        addresses = dict(self._journal.members or {})
        for change in self._changes(self._journal.last_index):
            if change.address or change.node not in addresses:
                addresses[change.node] = change.address
        return self._where(addresses, added)

    def _fold(self, index: int) -> tuple[dict[str, str], set[str]]:
        """Addresses by node, and who was added."""
        addresses, added = dict(self._journal.members or {}), set(self._journal.added)
        for change in self._changes(index):
            if change.remove:
                addresses.pop(change.node, None)
                added.discard(change.node)
            else:
                addresses[change.node] = change.address
                added.add(change.node)
        return addresses, added

    def _changes(self, index: int) -> list[MembershipChange]:
        changes = self._journal.membership_changes
        return [MembershipChange.FromString(payload[1:]) for changed, payload in changes if changed <= index]

    def _where(self, addresses: dict[str, str], added: set[str]) -> dict[str, str]:
        configured = self._configured
        return {n: a if n in added else configured.get(n, a) for n, a in addresses.items()}
