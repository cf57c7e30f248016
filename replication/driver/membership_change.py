"""Changes of members, one at a time.

A newcomer first learns: it is sent everything and counts for nothing, until it has (nearly) all of the log.
Only then does an entry make it a member, so that no majority ever waits for an empty disk
(dissertation §4.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tarry.proto.tarry_peer_pb2 import Appended, MembershipChange
from tarry.replication.driver import hellos
from tarry.replication.errors import MembershipRefused, Unknown
from tarry.replication.replica import Replica
from tarry.replication.status import Role

CHANGE: Final = "another change of members"
RAISE: Final = "a raise of the level"


class MembershipChanges:
    def __init__(self, replica: Replica, set_peers: Callable[[], None]) -> None:
        """Take `set_peers`, which tells the transport that `addresses` has changed."""
        self._replica = replica
        self._set_peers = set_peers
        self._running = ""  # what is, in words
        self.newcomers: dict[str, str] = {}
        """Addresses by node, of learners that are not in the log yet."""
        self.taught: dict[str, int] = {}
        """Incarnations by node: of the journals that those of them have answered from first."""
        self._sent_before: dict[str, int] = {}
        """Numbers by node: of the last appends to them before their addition was begun."""

    async def add(self, node: str, address: str, deadline_ms: int) -> None:
        """Make a node a member. Raises MembershipRefused, NotLeader, Unknown."""
        if node in self._replica.membership.current():
            raise MembershipRefused(f"{node} is a member")
        await self._behind_a_raise()
        with self.alone(CHANGE):
            self.newcomers[node] = address
            self._sent_before[node] = self._replica.consensus.progress[node].flow.sequence
            self._set_peers()
            try:
                deadline = self._replica.now() + deadline_ms / 1000
                await self._teach(node, deadline)
                await self._demand_level(node, deadline)
                change = MembershipChange(node=node, address=address, incarnation=self.taught[node])
                await self._change(change)
            finally:
                del self.newcomers[node], self._sent_before[node]
                self.taught.pop(node, None)
                self._replica.consensus.drop_learner(node)
                self._set_peers()

    def is_taught(self, node: str, incarnation: int, answer: Appended) -> bool:
        """Return whether it is a newcomer's answer that counts: of the journal that answers first.

        What answers an append from before the addition is of another journal, maybe of one that is lost.
        """
        in_time = answer.sequence > self._sent_before[node]
        if in_time and answer.term == self._replica.consensus.state.term:
            self.taught.setdefault(node, incarnation)
        return in_time and self.taught.get(node) == incarnation

    async def remove(self, node: str, *, returns: bool = False) -> None:
        """Remove a member; `returns`: it may ask to be added again.

        Raises MembershipRefused, NotLeader, Unknown.
        """
        if node == self._replica.node:
            raise MembershipRefused("a leader cannot remove itself; transfer leadership first")
        if node not in self._replica.membership.current():
            raise MembershipRefused(f"{node} is no member")
        await self._behind_a_raise()
        with self.alone(CHANGE):
            await self._change(MembershipChange(node=node, remove=True, returns=returns))

    async def leave(self, node: str, incarnation: int = 0) -> None:
        """Remove a member if it is one; return once it is committed that it is none. Raises as `remove` does.

        `incarnation`: of the journal that asks for it, and does not speak for another of its name.
        From then on its vote is harmless: whoever lacks the removal needs, for a majority, one that has it.
        """
        replica, term = self._replica, self._replica.consensus.state.term
        await replica.read_barrier()  # a leader of before may not know that it was added again since
        self._demand_same(node, incarnation)
        if node in replica.membership.current():
            await self.remove(node, returns=True)
        await self._until_applied(self._last_change(), term)

    async def join(self, node: str, address: str, deadline_ms: int, incarnation: int = 0) -> None:
        """Make a node a member unless it is one at that address; return once it is committed that it is.

        `incarnation`: of the journal that asks for it, and does not speak for another of its name. Raises as
        `add` does.
        """
        term = self._replica.consensus.state.term
        self._demand_same(node, incarnation)
        if self._replica.membership.current().get(node) != address:
            await self.add(node, address, deadline_ms)
        await self._until_applied(self._last_change(), term)

    def _last_change(self) -> int:
        """Return the index of the last change of members in the log; 0: there is none."""
        return max((index for index, _ in self._replica.journal.membership_changes), default=0)

    def _demand_same(self, node: str, incarnation: int) -> None:
        """Raise MembershipRefused where another journal than that is the member of a name; 0: any is."""
        added = self._replica.membership.voters().get(node, 0)
        if incarnation and added and added != incarnation:
            raise MembershipRefused(
                f"{node} was replaced: the member of that name has another journal. Stop this node; "
                "to add it beside that one, give it a name and a data folder of its own. "
                f"If that one is gone for good: `tarry member remove {node}` lets this one come back"
            )

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Run no other change of members, or of the level, meanwhile. Raises MembershipRefused, NotLeader.

        ``what``: CHANGE or RAISE.
        """
        if self._replica.consensus.state.role is not Role.LEADER:
            raise self._replica.not_leader()
        if self._running:
            raise MembershipRefused(f"{self._running} is running: wait for its end")
        self._running = what
        try:
            yield
        finally:
            self._running = ""

    async def _behind_a_raise(self) -> None:
        """Wait for a raise of the level, which the leader may have begun by itself, unknown to who asks."""
        while self._running == RAISE:
            await self._replica.next_turn()

    async def _teach(self, node: str, deadline: float) -> None:
        replica, term = self._replica, self._replica.consensus.state.term
        replica.consensus.add_learner(node)
        replica.wake.set()
        lag, began = replica.journal.last_index, replica.now()
        while lag > replica.settings.learner_lag_max or replica.consensus.state.match_index(node) == 0:
            self._refuse_early(node, began)
            if replica.now() >= deadline:
                raise MembershipRefused(f"{node} has not caught up: it lacks {lag} entries")
            await replica.next_turn()
            if not replica.leads(term):
                raise replica.not_leader()
            lag = replica.journal.last_index - replica.consensus.state.match_index(node)

    def _refuse_early(self, node: str, since: float) -> None:
        """Refuse a newcomer that has said that it cannot apply what it would have to learn."""
        progress, level = self._replica.consensus.progress[node], self._replica.cluster_level()
        if progress.hello_at >= since and (why := hellos.unable(self._replica, [node], level)):
            raise _too_old(node, why, level)

    async def _demand_level(self, node: str, deadline: float) -> None:
        """Refuse a newcomer that cannot apply the cluster's level."""
        replica = self._replica
        await replica.read_barrier()  # a leader of before may have raised it
        level = replica.cluster_level()
        if refused := await hellos.refused(replica, [node], level, deadline):
            raise _too_old(node, refused, level)

    async def _change(self, change: MembershipChange) -> None:
        replica, term = self._replica, self._replica.consensus.state.term
        if not replica.leads(term):
            raise replica.not_leader()
        index = replica.consensus.change_membership(change)
        if index is None:
            raise MembershipRefused("an earlier change is not committed yet")
        replica.wake.set()
        await self._until_applied(index, term)

    async def _until_applied(self, index: int, term: int) -> None:
        """Return once an entry is applied. Raises Unknown, also where another leader has cut it off."""
        replica = self._replica
        while replica.applied < index:
            if not replica.leads(term):
                raise Unknown("leadership was lost while the change was under way")
            await replica.next_turn()


def _too_old(node: str, refused: Mapping[str, str], level: int) -> MembershipRefused:
    text = f"{node} cannot be added to a cluster of level {level}: {refused[node]}"
    return MembershipRefused(f"{text}. Start the version that the members run there")
