"""Guards taken out one at a time. A simulator is worth what it finds then."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any

import google_crc32c
import numpy as np
from pysyncobj import SyncObj

from tarry.node.delivery.ordering import Lanes
from tarry.node.delivery.reservation import Reservation
from tarry.proto.tarry_peer_pb2 import Append, PeerFrame, PeerMessage
from tarry.replication.driver import apply, first_start, hellos, send_barrier
from tarry.replication.driver.driver import Driver
from tarry.replication.driver.install_snapshot import SnapshotInstaller
from tarry.replication.driver.level_raise import LevelRaise
from tarry.replication.driver.membership_change import MembershipChanges
from tarry.replication.raft import elections
from tarry.replication.raft.elections import Elections
from tarry.replication.raft.engine import Engine
from tarry.replication.raft.guard import appends, flow_control, lease, transfer, votes
from tarry.replication.raft.guard.appends import Log, Plan
from tarry.replication.raft.guarded_syncobj import GuardedSyncObj
from tarry.replication.raft.heartbeats import Heartbeats
from tarry.replication.raft.membership import Membership, Origin
from tarry.replication.replica import Replica
from tarry.replication.snapshot import state_files
from tarry.replication.snapshot.state_damage import StateDamage
from tarry.replication.state_machine import event_details, queues, reschedules
from tarry.replication.state_machine.misfires import Parts
from tarry.replication.state_machine.queue_checksums import UNIT_BYTES, Stretch
from tarry.replication.state_machine.queues import Queues
from tarry.replication.status import Role
from tarry.replication.transport import envelope
from tarry.wheel.hour_partition import HourPartition
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


def _apply_all(self: apply.Applier) -> None:
    while self._replica.applied < min(
        self._replica.consensus.state.commit_index, self._replica.journal.durable_index
    ):
        apply_for_a_while(self)


apply_for_a_while = apply.Applier.apply


def _trim_all_that_is_applied(self: Driver, index: int) -> None:
    self._compact_to = self._replica.applied


def _hear_anybody(self: Driver, peer: str, messages: list[PeerMessage], origin: Origin) -> None:
    self._known_peers = {*self._known_peers, peer}
    hear_peers(self, peer, messages, origin)


hear_peers = Driver._receive


def _echo_on_arrival(self: lease.Lease, peer: str, sent: float, now: float, length_s: float) -> None:
    self.echoed[peer], self.promised[peer] = now, now + length_s


def _hear_impatiently(self: votes.Contact, leader: str, term: int, now: float, _: float = 0.0) -> None:
    contact_hear(self, leader, term, now)


contact_hear = votes.Contact.hear


def _transfer_at_once(self: transfer.Transfer, target: str, deadline: float, now: float) -> None:
    self.number += 1
    self.phase, self.target = transfer.Phase.CAMPAIGNING, target
    self.deadline, self.heard_at = deadline, now


async def _said_before(
    replica: Replica, nodes: Collection[str], level: int, deadline: float
) -> dict[str, str]:
    return hellos.unable(replica, nodes, level)


async def _demand_nothing(self: MembershipChanges, node: str, deadline: float) -> None:
    """Whatever the newcomer can apply."""


def _heard_nobody(election_min_s: float, heard: float) -> votes.Contact:
    return votes.Contact(election_min_s, -math.inf)


Replaced = tuple[Any, str, Any]


def _streams_of_the_latest(self: envelope.Inbound, frame: PeerFrame) -> envelope._Streams:
    """Those of the incarnation that was heard last for the first time; of the others nothing counts."""
    heard = self._heard.setdefault(frame.sender, {})
    streams = heard.setdefault(frame.incarnation, envelope._Streams())
    return streams if streams is next(reversed(heard.values())) else envelope._Streams(start=(1 << 64, 0))


UNFILTERED: Replaced = (envelope._Streams, "take", lambda self, frame: True)
"""The first of two guards against what is repeated: taken out together with the second."""

ABLATIONS: dict[str, tuple[Replaced, ...]] = {
    "": (),
    "append normaliser (and duplicate filter)": ((appends, "plan", _stock_plan), UNFILTERED),
    "back-off": ((appends, "plan", _slow_plan),),
    "duplicate filter": (UNFILTERED,),
    "incarnations apart": ((envelope.Inbound, "_streams", _streams_of_the_latest),),
    "voter set (and duplicate filter)": (
        (votes.Ballot, "counts", lambda self, peer, term, members: True),
        UNFILTERED,
    ),
    "ack term": ((Elections, "is_of_this_leadership", lambda self, term: self._engine.role is Role.LEADER),),
    "window": ((flow_control.Flow, "open", lambda self, now: True),),
    "resets of one gap": ((flow_control.Flow, "accepts_reset", lambda self, sequence: True),),
    "pre-vote": ((votes.PreVotes, "won", lambda self, voters: self.open),),
    "stickiness": ((votes.Contact, "fresh", lambda self, now: False),),
    "patience": (
        (votes.Contact, "hear", _hear_impatiently),
        (Engine, "patience_s", property(lambda self: 0.0, lambda self, value: None)),
    ),
    "quiet start": ((elections, "Contact", _heard_nobody),),
    "higher term": ((Elections, "notice", lambda self, peer, members=None: None),),
    "lease": ((lease.Lease, "valid", lambda self, now, voters: True),),
    "echoed send time": ((lease.Lease, "echo", _echo_on_arrival),),
    "own entry before serving": (
        (Heartbeats, "may_serve", Heartbeats.may_propose),
        (Heartbeats, "knows_commits_by_lease", Heartbeats.has_lease),
    ),
    "lease while it campaigns": (
        (
            Heartbeats,
            "has_lease",
            lambda self, now: (
                self._engine.role is Role.LEADER and self._lease.valid(now, self._engine.voters)
            ),
        ),
    ),
    "drain": ((transfer.Transfer, "begin", _transfer_at_once),),
    "transfer number": ((votes.Contact, "allows_transfer", lambda self, number: True),),
    "one change of members": (
        (GuardedSyncObj, "_SyncObj__changeCluster", SyncObj._SyncObj__changeCluster),
        (MembershipChanges, "alone", lambda self, what: contextlib.nullcontext()),
    ),
    "snapshot checksum": (
        (google_crc32c, "value", lambda data: 0),
        (google_crc32c, "extend", lambda crc, data: 0),
    ),
    "snapshot ahead of the log": ((SnapshotInstaller, "_is_ahead", lambda self, position: True),),
    "write before saying": ((send_barrier.SendBarrier, "split", lambda self, outbox: (outbox, [])),),
    "urgent stream": ((send_barrier, "BULK", frozenset()),),
    "journal lost": ((first_start, "may_begin", lambda node, members, answers: True),),
    "another journal": (
        (Driver, "_is_expected", lambda self, peer, origin: True),
        (Membership, "votes", lambda self, node: node in self.current()),
    ),
    "strangers": ((Driver, "_receive", _hear_anybody),),
    "apply budget": ((apply.Applier, "apply", _apply_all),),
    "checkpoint before trimming": ((Driver, "compact", _trim_all_that_is_applied),),
    "own disk before applying": ((apply, "min", lambda committed, durable: committed),),
    "lanes": ((Lanes, "take", lambda self, queue, units, behind=(): np.ones(len(units), dtype=np.bool_)),),
    "retries close their lane": ((Queues, "block", lambda self, queue, lanes, placed: None),),
    "misfires": ((queues, "divide", lambda units, settings, now_ms: Parts(units, units[:0], units[:0])),),
    "moved since its record was read": ((reschedules, "MOVED_MEANWHILE", reschedules.CHANGED),),
    "rows of retries": ((event_details, "of_origins", lambda wheel, queues, events: events),),
    "checksums of ready queues": (
        (Stretch, "is_proven_by", lambda self, units: len(units) == UNIT_BYTES * (self.end - self.first)),
    ),
    "checksums of indices": ((HourPartition, "prove", lambda self: None),),
    "proof of a state": ((state_files, "damage_in", lambda root, written: StateDamage()),),
    "reserve": ((Reservation, "confirm", lambda self, confirmed_s: None),),
    "every member's level": ((LevelRaise, "_others", lambda self: []),),
    "levels said anew": ((hellos, "refused", _said_before),),
    "level of a newcomer": (
        (MembershipChanges, "_refuse_early", lambda self, node, since: None),
        (MembershipChanges, "_demand_level", _demand_nothing),
    ),
    "fsync": ((SimDisk, "syncs", False),),
}


class AblationBroken(Exception):
    """The guard is not what was taken out: that a scenario fails says nothing of it."""


@contextlib.contextmanager
def ablated(name: str) -> Iterator[None]:
    """Run with a guard taken out. Raises AblationBroken."""
    own: list[Exception] = []
    replaced = [
        (owner, attribute, getattr(owner, attribute, None)) for owner, attribute, _ in ABLATIONS[name]
    ]
    for owner, attribute, _ in ABLATIONS[name]:
        if not is_there(owner, attribute):
            raise AblationBroken(f"{owner} has no {attribute}")
    for owner, attribute, without in ABLATIONS[name]:
        setattr(owner, attribute, _telling(without, own) if inspect.isfunction(without) else without)
    try:
        yield
    finally:
        for owner, attribute, original in replaced:
            if original is None:  # instances have it, the class has not
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, original)
        if own:
            raise AblationBroken("what replaces the guard fails by itself") from own[0]


def is_there(owner: Any, attribute: str) -> bool:
    """Return whether the owner has the attribute, or its code uses it: of instances, or built in."""
    if inspect.getattr_static(owner, attribute, None) is not None:
        return True
    return re.search(rf"\b{attribute}\b", inspect.getsource(owner)) is not None


def _telling(replacement: Callable[..., Any], own: list[Exception]) -> Callable[..., Any]:
    """Return a replacement that also tells its own errors: of its arguments, or of a missing name."""

    file = inspect.getfile(replacement)

    @functools.wraps(replacement)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return replacement(*args, **named)
        except (TypeError, AttributeError, NameError) as error:
            if traceback.extract_tb(error.__traceback__)[-1].filename in (__file__, file):
                own.append(error)
            raise

    return call
