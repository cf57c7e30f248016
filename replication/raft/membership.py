"""Members of the cluster: those at the journal's start, and every change in the log since, committed or not.

A change counts as soon as it is in the log (Raft §6); cut from the log, it no longer does. Where a member
listens is said by the entry that added it; of those a cluster was founded with, by the configuration. Those
whose log lacks the entry hear the address from the member itself, or they could not answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tarry.proto.tarry_peer_pb2 import MemberList, MembershipChange
from tarry.replication.journal.journal import Journal

LogEnd: TypeAlias = tuple[int, int]
"""Term and index of a log's last entry: of two logs the better one has the higher."""
_NOWHERE: LogEnd = (0, 0)


def counts(origin: Origin, added: int) -> bool:
    """Return whether a member's answers count; `added`: the incarnation that it was added with.

    0: a founder, whom `driver.first_start` rules, or added before that was told: not who has begun as a
    newcomer since.
    """
    return origin.incarnation == added if added else not origin.joined


class Membership:
    def __init__(self, journal: Journal, configured: Mapping[str, str]) -> None:
        """Take `configured`, addresses by node: the members of a cluster's first start.

        Later they only tell where its founders now listen.
        """
        self._journal = journal
        self._configured = configured
        self.hearsay: Mapping[str, tuple[str, LogEnd]] = {}
        """Addresses by node, of members that others know of and this log has not: they may speak here and are
        answered, or whoever missed the addition of a node could never hear it as its leader. With an address
        that a node says of itself goes the end of its log: this log is believed once it is as good."""
        self.told: MemberList | None = None
        """As of the journal's start, where a leader has told them since this was made."""
        if journal.members is None:
            journal.set_members(MemberList(addresses=configured))

    def begin_with(self, members: MemberList, index: int, node: str) -> bool:
        """Take in the members as of an index, from a leader whose log begins there; return whether they are
        others than it was begun with.

        A newcomer, `node`, counts majorities by them, not by those of its configuration, which may be
        incomplete. Who is none of them is no founder, whatever its configuration says.
        """
        journal = self._journal
        newcomer = journal.joined or node not in members.addresses
        if not newcomer or index != journal.first_index or journal.membership_changes:
            return False
        if members == journal.members:
            return False
        journal.set_members(members)
        self.told = members
        return True

    def at(self, index: int) -> MemberList:
        """Return the members as of an index not before the journal's start."""
        addresses, added, returning = self._fold(index)
        known = self.incarnations(index)
        return MemberList(
            addresses=addresses, added=sorted(added), returning=sorted(returning), incarnations=known
        )

    def incarnations(self, index: int | None = None) -> dict[str, int]:
        """Return the incarnations that entries name for the members they added; as of an index, or now."""
        known = dict(self._start().incarnations)
        for change in self._changes(self._journal.last_index if index is None else index):
            known.pop(change.node, None)
            if change.incarnation:
                known[change.node] = change.incarnation
        return known

    def voters(self) -> dict[str, int]:
        """Return the members and the incarnations that they were added with, 0 where it is not told."""
        known = self.incarnations()
        return {node: known.get(node, 0) for node in self.current()}

    def votes(self, node: str) -> bool:
        """Return whether this node, whose journal this is, votes: not a learner, nor removed, nor
        one that was added with another journal, which is lost."""
        journal = self._journal
        own = Origin(journal.incarnation, journal.joined)
        added = self.voters().get(node)
        return added is not None and counts(own, added)

    def current(self) -> dict[str, str]:
        """Return the members' addresses by node."""
        addresses, added, _ = self._fold(self._journal.last_index)
        return self._where(addresses, added)

    def peers(self) -> frozenset[str]:
        """Return the nodes whose messages count: those named, those who left to come back, the configured."""
        _, _, returning = self._fold(self._journal.last_index)
        return frozenset((*self.named(), *returning, *self._configured))

    def hear_of(self, members: Mapping[str, str]) -> None:
        """Take in the members that another one names: that decides who may speak, not who votes."""
        new = {node: (members[node], _NOWHERE) for node in members.keys() - self.named().keys()}
        self.hearsay = {**self.hearsay, **new}

    def hear_from(self, node: str, address: str, end: LogEnd) -> None:
        """Take in the address that a node says it was added with, if its log, to `end`, is the better one."""
        _, before = self.hearsay.get(node, ("", _NOWHERE))
        if address and end > max(before, self._end()) and node in self.peers():
            self.hearsay = {**self.hearsay, node: (address, end)}

    def added_at(self, node: str) -> str:
        """Return where the entry that added a member says that it listens; empty: none added it."""
        addresses, added, _ = self._fold(self._journal.last_index)
        return addresses[node] if node in added else ""

    def named(self) -> dict[str, str]:
        """Return addresses, also of nodes removed since the journal's start.

        One of them may still be leader, and must be answered then.
        """
        _, added, _ = self._fold(self._journal.last_index)
        addresses = dict(self._start().addresses)
        for change in self._changes(self._journal.last_index):
            if change.address or change.node not in addresses:
                addresses[change.node] = change.address
        said, end = self._where(addresses, added), self._end()
        heard = {
            node: address
            for node, (address, at) in self.hearsay.items()
            if at > end or (at == _NOWHERE and node not in said)
        }
        return {**said, **heard}

    def _end(self) -> LogEnd:
        return self._journal.last_term, self._journal.last_index

    def _fold(self, index: int) -> tuple[dict[str, str], set[str], set[str]]:
        """Return addresses by node, those that were added, and those that have left to come back."""
        start = self._start()
        addresses, added, returning = dict(start.addresses), set(start.added), set(start.returning)
        for change in self._changes(index):
            returning.discard(change.node)
            if change.remove:
                addresses.pop(change.node, None)
                added.discard(change.node)
                returning.update([change.node] if change.returns else [])
            else:
                addresses[change.node] = change.address
                added.add(change.node)
        return addresses, added, returning

    def _start(self) -> MemberList:
        return self._journal.members or MemberList()

    def _changes(self, index: int) -> list[MembershipChange]:
        changes = self._journal.membership_changes
        return [MembershipChange.FromString(payload[1:]) for changed, payload in changes if changed <= index]

    def _where(self, addresses: dict[str, str], added: set[str]) -> dict[str, str]:
        configured = self._configured
        return {n: a if n in added else configured.get(n, a) for n, a in addresses.items()}


@dataclass(frozen=True, slots=True)
class Origin:
    """Identity of the journal that a message is from: an emptied folder begins another."""

    incarnation: int
    joined: bool = False
    """It began as a newcomer's, not as a founder's."""
