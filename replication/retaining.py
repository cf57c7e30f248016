"""What of the journal is kept when it is compacted: for slow followers, and behind states given away."""

from __future__ import annotations

from tarry.replication.core import Core
from tarry.replication.status import Role


def start(core: Core, index: int) -> int:
    """Return where the journal may start once all up to ``index`` is in the machine's durable state.

    Who takes a state goes on behind it: that is kept until every follower has it, or it is too much.
    """
    settings, consensus = core.settings, core.consensus
    peers = consensus.peers if consensus.role is Role.LEADER else ()
    behind = min(map(consensus.match_index, peers), default=index)
    furthest = core.journal.start_retaining(index, settings.snapshot_retained_bytes_max)
    core.given_away = {given for given in core.given_away if given >= max(behind + 1, furthest)}
    usual = core.journal.start_retaining(index, settings.retained_bytes_max)
    return min(core.given_away | {usual})
