"""Recovery from a lost majority: a survivor goes on alone, as another incarnation of the cluster.

    survey ─► the operator's word ─► journal: term + 1, every other member removed, a new incarnation, level 2

The removals are entries of the log as any others, and count at once, so that the node is a majority by
itself. All entries of its journal stay, also those of which it does not know whether they were acknowledged.
What the others acknowledged without it is lost; so nothing of theirs may come back: the incarnation keeps it
out (`replication/cluster_name.py`). It is refused where enough others answer, or refuse to, to do without it.

    data/recovered-alone   index behind which the hole may be, and when, until the ledger has it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf.message import DecodeError

from tarry.node.config import NodeConfig
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.tls import channel_credentials, read
from tarry.node.ledger import went_alone
from tarry.node.ledger.went_alone import WentAlone
from tarry.node.recovery import new_incarnation, state_replacement
from tarry.node.recovery.rejoin import phase
from tarry.proto import bearer_token
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_peer_pb2 import MembershipChange, RecallRequest, RecallResponse
from tarry.replication.clock import Clock
from tarry.replication.cluster_name import full_name
from tarry.replication.driver.install_snapshot import finish_installing
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.power_loss import boot_id, is_lost
from tarry.replication.journal.records import is_regular, membership_payload
from tarry.replication.raft.guard.votes import is_majority
from tarry.replication.raft.membership import Membership
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.checkpoint import CheckpointStore, checkpoint_in
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.transport.peer_service import SERVICE

ASK_S: Final = 2.0
REFUSALS: Final = frozenset(
    (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT)
)
"""Of a member that runs, and does not take this node for one of its cluster's."""
ENTRIES_LOOKED_AT: Final = 1_000
"""For one that says its time."""


class RecoveryRefused(Exception):
    """The node may not go on alone; the message says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A survivor's account of what it has. Times are cluster time; 0: no entry near there says it."""

    node: str
    others: tuple[str, ...]
    """The members that are given up."""
    commit_index: int
    """Up to here it knows that it has everything."""
    commit_ms: int
    last_index: int
    """Up to here it has something: whether it was acknowledged, it does not know."""
    last_ms: int
    lost_power: bool = False
    """Behind that it may have had more, which was not flushed when its machine lost its power."""
    last_term: int = 0
    """Of two nodes the one with the later term has more; of one term, the one with the later entry."""


def recover_alone(
    config: NodeConfig, agreed: Callable[[Survey], bool], incarnation: int, clock: Clock
) -> Survey | None:
    """Make the data folder of a node that is down that of a cluster of its own; None: it was not agreed.

    Raises RecoveryRefused, JournalDamaged, CheckpointDamaged, PointerDamaged, StateMismatch, AnotherVersion,
    OSError.
    """
    if phase(config.data) is not None or state_replacement.is_marked(config.data):
        raise RecoveryRefused(f"the data of {config.node} is damaged or set aside: recover another survivor")
    boot = boot_id(config.boot_id_file)
    lost_power = is_lost(config.data / "journal", boot)
    with closing(Journal(open_log(config.data / "journal", boot=boot, cut=True), incarnation=1)) as journal:
        if journal.empty:
            raise RecoveryRefused(
                f"{config.node} has no journal: recover another survivor, or restore a backup"
            )
        _settle(config, journal)
        membership = Membership(journal, config.members)
        found = survey(config.node, membership, journal, lost_power=lost_power)
        _check_others(config, membership, journal, lost_power=lost_power)
        if not agreed(found):
            return None
        # first: it counts for nothing before the journal is of this incarnation
        went_alone.mark(config.data, WentAlone(found.last_index, round(clock.wall_ms()), incarnation))
        go_alone(journal, found, incarnation)
        return found


def survey(node: str, membership: Membership, journal: Journal, *, lost_power: bool = False) -> Survey:
    """Return what a journal has. Raises RecoveryRefused where the node is no voter, or alone already.

    One that is alone and whose machine lost its power has to be told to go on, too: something may be lost.
    """
    members = membership.current()
    if not membership.votes(node):
        raise RecoveryRefused(f"{node} is no member with a vote: recover one of {', '.join(sorted(members))}")
    others = tuple(sorted(members.keys() - {node}))
    if not others and not lost_power:
        raise RecoveryRefused(f"{node} is the only member: start it without --recover-alone")
    commit, last = journal.commit_index, journal.last_index
    times = _time_at(journal, commit), _time_at(journal, last)
    return Survey(node, others, commit, times[0], last, times[1], lost_power, journal.last_term)


def go_alone(journal: Journal, found: Survey, incarnation: int) -> None:
    """Write, at once or not at all, that the node is the only member of a new incarnation."""
    term = journal.term + 1
    journal.set_term(term, found.node)
    for index, other in enumerate(found.others, found.last_index + 1):
        change = MembershipChange(remove=True, node=other, returns=True)
        journal.append(membership_payload(change), index, term)
    new_incarnation.begin(journal, incarnation, found.last_ms)


def _settle(config: NodeConfig, journal: Journal) -> None:
    """Finish what a crash may have left half done between journal and state, as a start does."""
    folder = StateFolder(config.data)
    with closing(CheckpointStore(folder.path / "checkpoint")) as store:
        from_start = journal.first_index == 1
        state = checkpoint_in(folder.path, store, from_start=from_start, applies=levels.HIGHEST)
    finish_installing(journal, state.applied_index)


def _time_at(journal: Journal, index: int) -> int:
    """Return the time of the entry, or of the nearest before it that has one; 0: there is none near."""
    for at in range(index, max(journal.first_index, index - ENTRIES_LOOKED_AT) - 1, -1):
        entry = journal.entry(at)
        if not is_regular(entry):
            continue
        try:
            commands = log_pb.LogEntry.FromString(entry[0][1:]).commands
            times = [getattr(command_codec.decode(command), "now_ms", 0) for command in commands]
        except (DecodeError, AnotherVersion):
            continue
        if any(times):
            return max(times)
    return 0


def _check_others(config: NodeConfig, membership: Membership, journal: Journal, *, lost_power: bool) -> None:
    """Raise RecoveryRefused where the members that answer are, with this node, a majority."""
    members = membership.current()
    others = {node: address for node, address in members.items() if node != config.node}
    cluster = full_name(config.cluster, journal.cluster_incarnation)
    answers, refusing = asyncio.run(_recalled(config, cluster, others))
    own = 0 if lost_power else 1
    there = may_do_without(
        config.node, members, answers, journal.cluster_incarnation, refusing.keys(), own=own
    )
    if there:
        why = "; ".join(f"{peer} refuses to say what it has ({text})" for peer, text in refusing.items())
        with_it = f"with {config.node}, " if own else ""
        mend = f". {why}: mend the configuration of {config.node}" if why else ""
        raise RecoveryRefused(
            f"{', '.join(there)} answer: {with_it}that is a majority of {len(members)} members"
            f"{mend}. Start it without --recover-alone"
        )


def may_do_without(
    node: str,
    members: Mapping[str, str],
    answers: Mapping[str, RecallResponse],
    incarnation: int,
    refusing: Collection[str] = (),
    *,
    own: int = 1,
) -> list[str]:
    """Return the members that are there, if with this one they are a majority: then there is nothing lost.

    ``own``: 0 where this one may have forgotten what it acknowledged, so that its word does not count.

    One without data, or of another incarnation, has nothing to go on with. Those that refuse to say, as where
    this node has another peer token, are there.
    """
    there = sorted(
        peer
        for peer, answer in answers.items()
        if not answer.fresh and node in answer.spoken and answer.cluster_incarnation == incarnation
    )
    there = sorted({*there, *refusing})
    return there if is_majority(own + len(there), len(members)) else []


async def _recalled(
    config: NodeConfig, cluster: str, others: Mapping[str, str]
) -> tuple[dict[str, RecallResponse], dict[str, str]]:
    """Return what the members that answer say, and of those that refuse to, why."""
    forwarder = Forwarder(channel_credentials(read(config.tls)), [], config.dial)
    request = RecallRequest(cluster=cluster, node=config.node).SerializeToString()
    metadata = bearer_token.metadata(config.peer_token)
    answers: dict[str, RecallResponse] = {}
    refusing: dict[str, str] = {}

    async def ask(peer: str, address: str) -> None:
        call = forwarder.channel(address).unary_unary(f"/{SERVICE}/Recall", None, None)
        try:
            answers[peer] = RecallResponse.FromString(await call(request, metadata=metadata, timeout=ASK_S))
        except grpc.aio.AioRpcError as error:
            if error.code() in REFUSALS:
                refusing[peer] = f"{error.code().name}: {error.details()}"
        except DecodeError:
            pass

    try:
        await asyncio.gather(*(ask(peer, address) for peer, address in others.items()))
    finally:
        await forwarder.close()
    return answers, dict(sorted(refusing.items()))
