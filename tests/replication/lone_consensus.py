"""One replica's consensus with its peers played by the test."""

from __future__ import annotations

import random

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    HeartbeatReply,
    LoggedEntry,
    PeerMessage,
    PreVote,
    Vote,
    VoteRequest,
)
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import entry_payload
from tarry.replication.raft.consensus import Consensus
from tarry.replication.raft.membership import Membership
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Hello, Role
from tests.replication.journals import MemoryStorage


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic_s(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


class Lone:
    """n1 of n1 … n`size`; what it says is in `said`, newest last."""

    def __init__(self, size: int = 3, incarnation: int = 1, **numbers: int) -> None:
        self.incarnation = incarnation
        self.clock = HandClock()
        self.settings = ReplicationSettings(**numbers)  # type: ignore[arg-type]
        self.members = {f"n{i}": f"n{i}:1" for i in range(1, size + 1)}
        self.peers = [name for name in self.members if name != "n1"]
        self.disk = MemoryStorage()
        self.said: list[tuple[str, PeerMessage]] = []
        self.told_all = True
        self.hello = Hello()
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.disk, incarnation=self.incarnation)
        self.membership = Membership(self.journal, self.members)
        self.consensus = Consensus(
            node="n1",
            membership=self.membership,
            journal=self.journal,
            clock=self.clock,
            rng=random.Random(1),
            settings=self.settings,
            applied_index=0,
            heartbeat=lambda sent: b"state",
            known=lambda: b"known",
            told_all=lambda: self.told_all,
            hello=self.hello,
        )
        for peer in self.peers:
            self.consensus.log_replication.link(peer, True)

    def role(self) -> Role:
        return self.consensus.state.role

    def receive(self, peer: str, **body: object) -> list[tuple[str, PeerMessage]]:
        """What it says to that."""
        self.consensus.receive(peer, PeerMessage(**body))  # type: ignore[arg-type]
        return self.settle()

    def tick(self, after_s: float = 0.0) -> list[tuple[str, PeerMessage]]:
        self.clock.now += after_s
        self.consensus.tick()
        return self.settle()

    def settle(self) -> list[tuple[str, PeerMessage]]:
        """Writes the journal and lets the outbox go."""
        outbox = self.consensus.outbox.take()
        batch = self.journal.stage()
        if batch is not None:
            self.journal.write(batch)
            self.journal.mark_durable(batch)
        self.said += outbox
        return outbox

    def lead(self) -> None:
        """Is elected by all its peers."""
        self.tick(after_s=1.0)
        round_ = next(
            m.pre_vote_request.round for _, m in reversed(self.said) if m.HasField("pre_vote_request")
        )
        for peer in self.peers:
            self.receive(peer, pre_vote=PreVote(round=round_))
        for peer in self.peers:
            self.receive(peer, vote=Vote(term=self.consensus.state.term))
        assert self.consensus.state.role is Role.LEADER
        self.tick()

    def follow(self, leader: str = "n2", term: int = 1, entries: int = 1) -> None:
        """Hears a leader's first append of `entries` entries."""
        payloads = [LoggedEntry(term=term, payload=entry_payload(b"")) for _ in range(entries)]
        self.receive(
            leader, append=Append(term=term, prev_index=1, prev_term=0, entries=payloads, sequence=1)
        )
        assert self.consensus.state.leader == leader


def kinds(said: list[tuple[str, PeerMessage]]) -> list[tuple[str, str | None]]:
    return [(peer, message.WhichOneof("body")) for peer, message in said]


def vote_request(term: int, **more: int | bool) -> VoteRequest:
    return VoteRequest(term=term, last_index=100, last_term=term - 1, **more)  # type: ignore[arg-type]


def commit_all(lone: Lone) -> None:
    last = lone.journal.last_index
    for peer in lone.peers:
        lone.receive(
            peer,
            appended=Appended(term=lone.consensus.state.term, sequence=1, next_index=last + 1, success=True),
        )
    lone.tick()
    assert lone.consensus.state.commit_index == last
    lone.consensus.applied(last)


def answer_heartbeats(lone: Lone, *peers: str) -> None:
    beats = [(peer, message.heartbeat) for peer, message in lone.said if message.HasField("heartbeat")]
    for peer in peers:
        beat = max((beat for to, beat in beats if to == peer), key=lambda beat: beat.sent)
        term = lone.consensus.state.term
        reply = HeartbeatReply(term=term, sent=beat.sent, wall_ms=0, patience_ms=beat.patience_ms)
        lone.receive(peer, heartbeat_reply=reply)


def serving(**numbers: int) -> Lone:
    lone = Lone(**numbers)
    lone.lead()
    commit_all(lone)
    answer_heartbeats(lone, "n2", "n3")
    return lone
