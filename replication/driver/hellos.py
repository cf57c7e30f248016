"""Questions to members of what their present starts can apply: answered with a heartbeat sent from now on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tarry.replication.replica import Replica

NO_ANSWER: Final = "it does not answer"
SILENT_BEATS: Final = 4
"""After so many heartbeats without an answer a member counts as silent."""


async def refused(replica: Replica, nodes: Collection[str], level: int, deadline: float) -> dict[str, str]:
    """Return the nodes that cannot apply a level, or have not said by the deadline that they can, with why.

    A node that could before counts only by what it says now: another version may run there. Raises NotLeader.
    """
    since, term = replica.now(), replica.consensus.state.term
    replica.consensus.heartbeats.beat()
    replica.wake.set()
    progress = replica.consensus.progress
    while replica.now() < deadline and any(progress[node].hello_at < since for node in nodes):
        await replica.next_turn()
        if not replica.leads(term):
            raise replica.not_leader()
    silent = {node: NO_ANSWER for node in nodes if progress[node].hello_at < since}
    return unable(replica, nodes, level) | silent


def silent(replica: Replica, nodes: Collection[str]) -> dict[str, str]:
    """Return the nodes that have answered none of the last heartbeats, at their longest interval."""
    since = replica.now() - SILENT_BEATS * replica.settings.quiet_heartbeat_ms / 1000
    return {node: NO_ANSWER for node in nodes if replica.consensus.progress[node].hello_at < since}


def unable(replica: Replica, nodes: Collection[str], level: int) -> dict[str, str]:
    """Return the nodes that last said that they cannot apply a level, or have said nothing, with why."""
    said = {node: replica.consensus.progress[node].hello for node in nodes}
    return {
        node: "it has said nothing yet" if hello is None else f"{hello} applies level {hello.level} at most"
        for node, hello in said.items()
        if hello is None or hello.level < level
    }
