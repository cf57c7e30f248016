"""A planned transfer, seen from the leader that gives up; the rules are in guard/transfer.py."""

from __future__ import annotations

from tarry.replication.errors import TransferRefusal, TransferRefused
from tarry.replication.replica import Core
from tarry.replication.status import Role, Transferred


async def transfer(core: Core, target: str | None, deadline_ms: int) -> Transferred:
    """Transfer leadership; `target` None: to the member that has applied most. Raises TransferRefused."""
    term, deadline = core.consensus.state.term, core.now() + deadline_ms / 1000
    chosen = _choose(core, target)
    await _until_applied(core, chosen, term, deadline)
    begun = core.now()
    core.consensus.transfer.begin(chosen, deadline, core.now())
    core.wake.set()
    while core.leads(term):
        if not core.consensus.transfer.running:
            raise TransferRefused(TransferRefusal.TIMED_OUT, f"{chosen} did not take over")
        await core.next_turn()
    while (state := core.consensus.state).leader is None or state.term == term:
        if core.now() >= deadline or core.stopping:
            raise TransferRefused(TransferRefusal.TIMED_OUT, "given up, and nobody leads yet")
        await core.next_turn()
    return Transferred(state.leader, state.term, round((core.now() - begun) * 1000))


async def _until_applied(core: Core, target: str, term: int, deadline: float) -> None:
    """Wait until the target has applied nearly all: before, it could serve nobody, and this leader can."""
    lag_max = core.settings.transfer_lag_max
    while (behind := core.applied - core.consensus.progress[target].applied_index) > lag_max:
        if not core.leads(term):
            raise TransferRefused(TransferRefusal.NOT_LEADER, f"{core.consensus.state.leader} leads")
        if core.now() >= deadline:
            raise TransferRefused(TransferRefusal.TIMED_OUT, f"{target} has {behind} entries still to apply")
        await core.next_turn()


def _choose(core: Core, target: str | None) -> str:
    consensus, state = core.consensus, core.consensus.state
    if state.role is not Role.LEADER:
        raise TransferRefused(TransferRefusal.NOT_LEADER, f"{state.leader} leads")
    if consensus.transfer.running:
        raise TransferRefused(TransferRefusal.BUSY, f"already going to {consensus.transfer.target}")
    linked = [peer for peer in sorted(state.voters) if consensus.progress[peer].linked]
    if target is None and linked:
        return max(linked, key=lambda peer: (consensus.progress[peer].applied_index, state.match_index(peer)))
    if target is None or target not in linked:
        raise TransferRefused(TransferRefusal.NO_TARGET, f"{target or 'no member'} is not connected")
    return target
