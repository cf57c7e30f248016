"""What a replica tells about itself."""

from __future__ import annotations

from collections.abc import Mapping

from tarry.replication.core import Core
from tarry.replication.status import PeerStatus, ReplicationStatus, Role


def status(core: Core, peers: Mapping[str, str]) -> ReplicationStatus:
    """`peers`: addresses by node."""
    consensus, journal = core.consensus, core.journal
    return ReplicationStatus(
        node=core.node,
        role=consensus.role,
        leader=consensus.leader,
        term=consensus.term,
        commit_index=consensus.commit_index,
        applied_index=core.applied,
        first_index=journal.first_index,
        last_index=journal.last_index,
        members=core.membership.current(),
        peers={peer: _peer(core, peer, address) for peer, address in peers.items()},
        may_serve=consensus.may_serve(core.now()),
    )


def _peer(core: Core, peer: str, address: str) -> PeerStatus:
    consensus = core.consensus
    clock = consensus.peer_clocks.get(peer)
    heard = clock.heard if clock else None
    offset_ms, error_ms = (clock.offset_ms(core.clock) if clock else None) or (None, 0.0)
    return PeerStatus(
        address=address,
        connected=consensus.linked(peer),
        voting=peer in consensus.voters,
        match_index=consensus.match_index(peer) if consensus.role is Role.LEADER else 0,
        clock_offset_ms=offset_ms,
        clock_error_ms=error_ms,
        rtt_ms=clock.rtt_ms if clock else None,
        heard_ms_ago=None if heard is None else (core.now() - heard) * 1000,
    )
