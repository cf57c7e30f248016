"""Guards taken out one at a time. A simulator is worth what it finds then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tarry.proto.tarry_peer_pb2 import Append
from tarry.replication import elections, sending
from tarry.replication.guard import appends, lease, votes
from tarry.replication.guard.appends import Log, Plan
from tarry.replication.status import Role
from tarry.replication.wire import Inbound
from tests.simulation.disk import SimDisk


def _stock_plan(append: Append, log: Log, commit_index: int) -> Plan:
    """As the engine would by itself: everything after `prev_index` goes, everything said is committed."""
    planned = appends_plan(append, log, commit_index)
    if not planned.success or log.term_at(append.prev_index) is None:
        return planned
    following = append.prev_index + len(append.entries) + 1
    return Plan(
        append.prev_index, append.prev_term, append.entries, append.commit_index, following, success=True
    )


def _slow_plan(append: Append, log: Log, commit_index: int) -> Plan:
    """As the engine would by itself: one entry back for each answer."""
    planned = appends_plan(append, log, commit_index)
    if planned.success:
        return planned
    following = min(append.prev_index, log.last_index + 1)
    return Plan(planned.prev_index, planned.prev_term, (), 0, following, success=False)


appends_plan = appends.plan


def _echo_on_arrival(self: lease.Lease, peer: str, sent: float, now: float) -> None:
    self.echoed[peer] = now


ABLATIONS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "": (),
    "append normaliser": ((appends, "plan", _stock_plan),),
    "back-off": ((appends, "plan", _slow_plan),),
    "duplicate filter": ((Inbound, "_is_newer", lambda self, frame: True),),
    "append normaliser and duplicate filter": (
        (appends, "plan", _stock_plan),
        (Inbound, "_is_newer", lambda self, frame: True),
    ),
    "voter set": ((votes.Ballot, "counts", lambda self, peer, term, members: True),),
    "voter set and duplicate filter": (
        (votes.Ballot, "counts", lambda self, peer, term, members: True),
        (Inbound, "_is_newer", lambda self, frame: True),
    ),
    "ack term": (
        (
            elections.Elections,
            "is_of_this_leadership",
            lambda self, term: self._engine.role is Role.LEADER,
        ),
    ),
    "pre-vote": ((votes.PreVotes, "won", lambda self, voters: self.open),),
    "stickiness": ((votes.Contact, "fresh", lambda self, now: False),),
    "higher term": ((elections.Elections, "notice", lambda self, peer: None),),
    "echoed send time": ((lease.Lease, "echo", _echo_on_arrival),),
    "lease": ((lease.Lease, "valid", lambda self, now, voters: True),),
    "transfer number": ((votes.Contact, "allows_transfer", lambda self, number: True),),
    "write before saying": ((sending.Sending, "split", lambda self, outbox: (outbox, [])),),
    "fsync": ((SimDisk, "syncs", False),),
}


@contextlib.contextmanager
def ablated(name: str) -> Iterator[None]:
    replaced = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in ABLATIONS[name]]
    for owner, attribute, without in ABLATIONS[name]:
        setattr(owner, attribute, without)
    try:
        yield
    finally:
        for owner, attribute, original in replaced:
            setattr(owner, attribute, original)
