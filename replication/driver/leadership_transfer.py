"""Planned transfer of leadership, as the old leader drives it; the rules are in guard/transfer.py."""

from __future__ import annotations

from tarry.replication.errors import TransferRefusal, TransferRefused
from tarry.replication.replica import Replica
from tarry.replication.status import Role, Transferred


async def transfer(replica: Replica, target: str | None, deadline_ms: int) -> Transferred:
    """Transfer leadership; `target` None: to the member that has applied most. Raises TransferRefused."""
    term, deadline = replica.consensus.state.term, replica.now() + deadline_ms / 1000
    chosen = _choose(replica, target)
    await _until_ready(replica, chosen, term, deadline)
    _demand_no_other(replica)  # it may have begun meanwhile, and be beyond the lease
    begun = replica.now()
    replica.consensus.transfer.begin(chosen, deadline, replica.now())
    replica.wake.set()
    while replica.leads(term):
        if not replica.consensus.transfer.running:
            raise TransferRefused(TransferRefusal.TIMED_OUT, f"{chosen} did not take over")
        await replica.next_turn()
    while (state := replica.consensus.state).leader is None or state.term == term:
        if replica.now() >= deadline or replica.stopping:
            raise TransferRefused(TransferRefusal.TIMED_OUT, "given up, and nobody leads yet")
        await replica.next_turn()
    return Transferred(state.leader, state.term, round((replica.now() - begun) * 1000))


async def _until_ready(replica: Replica, target: str, term: int, deadline: float) -> None:
    """Wait until the target answers and has applied nearly all: before, only this leader can serve."""
    lag_max, asked_at = replica.settings.transfer_lag_max, replica.now()
    replica.consensus.heartbeats.beat()
    replica.wake.set()
    while True:
        if not replica.leads(term):
            raise TransferRefused(TransferRefusal.NOT_LEADER, f"{replica.consensus.state.leader} leads")
        progress = replica.consensus.progress[target]
        behind = replica.applied - progress.applied_index
        answered = progress.hello_at >= asked_at
        if answered and behind <= lag_max:
            return
        if replica.now() >= deadline:
            lacks = f"has {behind} entries still to apply" if answered else "does not answer"
            raise TransferRefused(TransferRefusal.TIMED_OUT, f"{target} {lacks}")
        await replica.next_turn()


def _choose(replica: Replica, target: str | None) -> str:
    consensus, state = replica.consensus, replica.consensus.state
    if state.role is not Role.LEADER:
        raise TransferRefused(TransferRefusal.NOT_LEADER, f"{state.leader} leads")
    _demand_no_other(replica)
    linked = [peer for peer in sorted(state.voters) if consensus.progress[peer].linked]
    if target is None and linked:
        return max(linked, key=lambda peer: (consensus.progress[peer].applied_index, state.match_index(peer)))
    if target is None or target not in linked:
        raise TransferRefused(TransferRefusal.NO_TARGET, f"{target or 'no member'} is not connected")
    return target


def _demand_no_other(replica: Replica) -> None:
    transfer = replica.consensus.transfer
    if transfer.running:
        raise TransferRefused(TransferRefusal.BUSY, f"already going to {transfer.target}")
