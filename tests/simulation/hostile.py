"""What a stranger says to a node, and what no sound peer would."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    Heartbeat,
    HeartbeatReply,
    LoggedEntry,
    NeedSnapshot,
    PeerMessage,
    PreVote,
    PreVoteRequest,
    TermNotice,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from tarry.replication.transport.envelope import Identity, Outbound
from tests.simulation.world import SimNode, World

STRANGER = "x1"
ABSURD = (1 << 63, (1 << 64) - 1)
MOST = (1 << 64) - 1


def messages(term: int) -> Iterator[PeerMessage]:
    """Yield one of each kind, as would be said in a term, with the most that each number can be."""
    yield PeerMessage(term_notice=TermNotice(term=term))
    yield PeerMessage(pre_vote_request=PreVoteRequest(term=term))
    yield PeerMessage(vote_request=VoteRequest(term=term, last_index=MOST, last_term=term, transfer=True))
    yield PeerMessage(pre_vote=PreVote(round=term))
    yield PeerMessage(vote=Vote(term=term))
    yield PeerMessage(heartbeat=Heartbeat(term=term, sent=1e300, wall_ms=-1, patience_ms=(1 << 32) - 1))
    yield PeerMessage(heartbeat_reply=HeartbeatReply(term=term, sent=1e300, applied_index=MOST))
    entries = [LoggedEntry(term=term, payload=b"\0forged")]
    yield PeerMessage(append=Append(term=term, prev_index=1, prev_term=1, commit_index=MOST, entries=entries))
    yield PeerMessage(appended=Appended(term=term, sequence=1, next_index=MOST, success=True))
    yield PeerMessage(need_snapshot=NeedSnapshot(term=term))
    yield PeerMessage(timeout_now=TimeoutNow(term=term))


def frames(world: World, node: SimNode, rng: random.Random) -> Iterator[bytes]:
    """Yield what a stranger who knows the cluster's name sends to a node: messages of all terms, garbage."""
    identity = Identity(world.settings.cluster, STRANGER, rng.getrandbits(60), 1)
    outbound = Outbound(identity, node.name, itertools.count(1))
    outbound.begin()
    own = node.driver.status().term
    for term in (0, own, own + 1, own + 1_000, *ABSURD):
        for message in messages(term):
            yield outbound.seal([message.SerializeToString()])
    yield outbound.seal([rng.randbytes(40)])
    yield rng.randbytes(rng.randrange(1, 200))


def speak_absurdly(world: World, node: SimNode, rng: random.Random) -> None:
    """A member says to its peers what a bug might make it say."""
    said = [message for term in ABSURD for message in messages(term)]
    for peer in world.members:
        if peer != node.name:
            for message in rng.sample(said, 3):
                node.transport.forge(peer, message.SerializeToString())
