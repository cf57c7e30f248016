"""Raising of the cluster's level, once every member can apply the next one.

    heartbeat sent from now on ─► every member's answer ─► RaiseLevel ─► commit, apply

While a level is raised no node is added, and a node is added only if it can apply the cluster's level: so no
member ever meets a level that it cannot apply, unless another version is started there afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tarry.proto.tarry_log_pb2 import RaiseLevelCommand
from tarry.replication.driver import hellos
from tarry.replication.driver.membership_change import RAISE, MembershipChanges
from tarry.replication.errors import LevelRefused
from tarry.replication.replica import Replica
from tarry.replication.state_machine.commands import encode


class LevelRaise:
    def __init__(
        self, replica: Replica, changes: MembershipChanges, propose: Callable[[bytes], Awaitable[Any]]
    ) -> None:
        self._replica = replica
        self._changes = changes
        self._propose = propose

    def lacking(self, level: int) -> Mapping[str, str]:
        """Return the members that cannot apply a level by what they have said so far, with why.

        Who has gone silent lacks it: a raise would wait for its answer, and keep it from being removed.
        """
        replica, others = self._replica, self._others()
        return self._own(level) | hellos.unable(replica, others, level) | hellos.silent(replica, others)

    def unable(self, level: int) -> Mapping[str, str]:
        """Return those that have said so."""
        progress = self._replica.consensus.progress
        told = [node for node in self._others() if progress[node].hello is not None]
        return hellos.unable(self._replica, told, level)

    async def run(self, level: int, now_ms: int, deadline_ms: int) -> None:
        """Raise the level; return once that is applied here.

        Raises LevelRefused, MembershipRefused (a change of members is running), NotLeader, Unknown.
        """
        replica, term = self._replica, self._replica.consensus.state.term
        with self._changes.alone(RAISE):
            await replica.read_barrier()  # the members are those of the log, and the level too
            deadline = replica.now() + deadline_ms / 1000
            refused = self._own(level) | await hellos.refused(replica, self._others(), level, deadline)
            if refused:
                reasons = "; ".join(f"{node}: {why}" for node, why in sorted(refused.items()))
                raise LevelRefused(f"not every member can apply level {level}: {reasons}")
            if not replica.leads(term):
                raise replica.not_leader()  # another leader may have changed the members meanwhile
            await self._propose(encode(RaiseLevelCommand(level=level, now_ms=now_ms)))

    def _others(self) -> list[str]:
        return sorted(self._replica.membership.current().keys() - {self._replica.node})

    def _own(self, level: int) -> dict[str, str]:
        hello = self._replica.hello
        if hello.level >= level:
            return {}
        return {self._replica.node: f"{hello} applies level {hello.level} at most"}
