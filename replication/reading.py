"""Reads that see everything acknowledged before them, without a log entry (dissertation §6.4)."""

from __future__ import annotations

from tarry.replication.core import Core


async def read_barrier(core: Core) -> None:
    """Returns once the state here contains all that was acknowledged before the call. Raises NotLeader.

    The commit index of the call is right if this replica led at some moment after it: by its lease, or by
    a majority's answers to heartbeats sent since.
    """
    since, term, floor = core.now(), core.consensus.term, core.consensus.commit_index
    led = False
    while core.leads(term):
        consensus = core.consensus
        led = led or consensus.confirmed_since(since) or consensus.knows_commits_by_lease(core.now())
        if led and core.applied >= max(floor, consensus.no_op_index):
            return
        await core.next_turn()
    raise core.not_leader()
