"""Heartbeats, lease and leadership transfer; the rules are in guard/lease.py and guard/transfer.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tarry.proto.tarry_peer_pb2 import Heartbeat, HeartbeatReply, TimeoutNow
from tarry.replication.raft.context import Context
from tarry.replication.raft.elections import Elections
from tarry.replication.raft.guard.lease import Lease
from tarry.replication.raft.guard.transfer import Phase
from tarry.replication.status import SETTINGS_BYTES_MAX, Hello, Role, digest_of

ASK_S: Final = 1.0
"""Between two questions for settings, at least: a peer may never answer with what its digest is of."""


class Heartbeats:
    def __init__(
        self,
        context: Context,
        elections: Elections,
        *,
        applied_index: int,
        heartbeat: Callable[[float], bytes],
        told_all: Callable[[], bool],
    ) -> None:
        self._engine = context.engine
        self._journal = context.journal
        self._peers = context.peers
        self._outbox = context.outbox
        self._elections = elections
        self.transfer = context.transfer
        self._node = context.node
        self._membership = context.membership
        self._clock = context.clock
        self._settings = context.settings
        self._hello = context.hello
        self._cluster_level = context.cluster_level
        self.told_level = 0
        """Of the cluster, by the latest heartbeat of a leader; 0: by none."""
        self._heartbeat = heartbeat
        self._told_all = told_all
        self._heard: list[tuple[str, bytes]] = []
        self._lease = Lease()
        self.applied = applied_index
        self.heartbeat_at = 0.0
        self.interval_s = self._settings.heartbeat_ms / 1000
        self._beaten_at = 0.0
        self._stirred_at = 0.0
        self._asked_at = -math.inf

    def has_lease(self, now: float) -> bool:
        """Return whether no other replica can have been elected by now.

        Those that answer heartbeats promise nothing against an election that this leader has asked for.
        """
        campaigning = self.transfer.phase is Phase.CAMPAIGNING
        leads = self._engine.role is Role.LEADER and not campaigning
        return leads and self._lease.valid(now, self._engine.voters)

    def may_serve(self, now: float) -> bool:
        return self.may_propose(now) and self.applied >= self._engine.no_op_index

    def may_propose(self, now: float) -> bool:
        """Return whether to take proposals: a leader without a lease may have been replaced."""
        return self.has_lease(now) and not self.transfer.running

    def knows_commits_by_lease(self, now: float) -> bool:
        return self.has_lease(now) and self._engine.commit_index >= self._engine.no_op_index

    def confirmed_since(self, since: float) -> bool:
        """Return whether a majority has answered a heartbeat sent at `since` or later, and earlier terms'
        commits are known."""
        leads = self._engine.role is Role.LEADER and self._engine.commit_index >= self._engine.no_op_index
        return leads and self._lease.confirmed(self._engine.voters) >= since

    @property
    def confirmed_s(self) -> float:
        """Send time of the latest heartbeats that a majority has answered, infinite where it is alone."""
        return self._lease.confirmed(self._engine.voters)

    def beat(self) -> None:
        """Send heartbeats with the next tick, due or not."""
        self.heartbeat_at = 0.0

    def stir(self, now: float) -> bool:
        """Return to the usual heartbeat interval; say whether the next comes sooner for that."""
        self._stirred_at = now
        usual = self._beaten_at + self._settings.heartbeat_ms / 1000
        sooner = usual < self.heartbeat_at
        self.heartbeat_at = min(usual, self.heartbeat_at)
        return sooner

    def send_heartbeats(self, now: float) -> None:
        state = self._heartbeat(now)  # may stir
        quiet = now - self._stirred_at >= self._settings.quiet_after_ms / 1000
        patience_ms = self._settings.patience_ms if quiet else 0
        self.interval_s = (self._settings.heartbeat_ms + patience_ms) / 1000
        self._beaten_at, self.heartbeat_at = now, now + self.interval_s
        asks = self._asks_settings(now)
        beat = Heartbeat(
            term=self._engine.term,
            sent=now,
            wall_ms=int(self._clock.wall_ms()),
            transfer_number=self.transfer.number,
            state=state,
            patience_ms=patience_ms,
            address=self._membership.added_at(self._node),
            level=self._cluster_level(),
            asks_settings=asks,
        )
        for peer in sorted(self._engine.peers):
            self._outbox.say(peer, heartbeat=beat)

    def _asks_settings(self, now: float) -> bool:
        """Return whether a peer has told of other settings than this node's, and not yet of which."""
        known = (0, self._hello.settings_digest)
        hellos = (self._peers[peer].hello for peer in self._engine.peers)
        asks = any(hello and hello.settings_digest not in known and not hello.settings for hello in hellos)
        if not asks or now - self._asked_at < ASK_S:
            return False
        self._asked_at = now
        return True

    def on_heartbeat(self, peer: str, beat: Heartbeat) -> None:
        if self._elections.is_stale(peer, beat.term):
            return
        self._elections.demand_one_leader(peer, beat.term)
        if (
            beat.term > self._engine.term
            or self._engine.leader != peer
            or self._engine.role is Role.CANDIDATE
        ):
            self._engine.follow(beat.term, peer)
        patience_ms = min(beat.patience_ms, self._settings.patience_ms)
        self._elections.hear_leader(peer, beat.term, patience_ms / 1000)
        self._engine.patience_s = patience_ms / 1000
        self._elections.contact.void_transfers_below(beat.transfer_number)
        self._engine.postpone_election()
        self._peers[peer].clock.hear(self._clock, beat.wall_ms)
        self.told_level = beat.level
        self._heard.append((peer, beat.state))
        self._membership.hear_from(peer, beat.address, (beat.term, 0))  # its log has an entry of its term
        term, compared = self._peers[peer].compared
        flushed = min(self._journal.flushed_index, compared) if term == self._engine.term else 0
        reply = HeartbeatReply(
            term=self._engine.term,
            sent=beat.sent,
            wall_ms=int(self._clock.wall_ms()),
            applied_index=self.applied,
            flushed_index=flushed,  # of what is the same as the leader's
            patience_ms=patience_ms,
            level=self._hello.level,
            version=self._hello.version,
            settings_digest=self._hello.settings_digest,
            settings=self._hello.settings if beat.asks_settings else b"",
        )
        self._outbox.say(peer, heartbeat_reply=reply)

    def on_heartbeat_reply(self, peer: str, reply: HeartbeatReply) -> None:
        if self._elections.is_ahead(reply.term) or not self._elections.is_of_this_leadership(reply.term):
            return
        now = self._clock.monotonic_s()
        self._lease.echo(peer, reply.sent, now, self._settings.lease_s(reply.patience_ms))
        self.transfer.hears(peer, now)
        self._peers[peer].clock.answer(self._clock, reply.sent, reply.wall_ms)
        self._engine.heard(peer, reply.patience_ms / 1000)
        progress = self._peers[peer]
        progress.applied_index = reply.applied_index
        flushed = min(reply.flushed_index, self._engine.match_index(peer))
        progress.flushed_index = max(progress.flushed_index, flushed)
        if reply.sent >= progress.hello_at:
            progress.hello_at, progress.hello = reply.sent, _hello(progress.hello, reply)

    def advance_transfer(self, now: float) -> None:
        transfer = self.transfer
        if not transfer.running:
            return
        self.stir(now)
        if transfer.is_over(now, self._settings.transfer_silence_ms / 1000):
            transfer.give_up()
            self._lease.begin(now)
            self.send_heartbeats(now)
        elif transfer.phase is Phase.DRAINING:
            last = self._journal.last_index
            if self.applied >= last and self._engine.match_index(transfer.target) >= last:
                self._send_last_state(now)
        elif transfer.phase is Phase.TELLING and self._lease.has_echoed(transfer.target, transfer.told_at):
            if transfer.told_all or now >= transfer.told_by:
                transfer.let_campaign()
            else:
                self._send_last_state(now)
        if transfer.phase is Phase.CAMPAIGNING and now >= transfer.resend_at:
            transfer.resend_at = now + self._settings.transfer_resend_ms / 1000
            request = TimeoutNow(term=self._engine.term, transfer_number=transfer.number)
            self._outbox.say(transfer.target, timeout_now=request)

    def _send_last_state(self, now: float) -> None:
        self.send_heartbeats(now)
        self.transfer.note_sent(now, self._told_all())

    def take_received(self) -> list[tuple[str, bytes]]:
        """Return (leader, dispatch state) of the heartbeats received since the last call."""
        heard, self._heard = self._heard, []
        return heard

    def observe(self) -> None:
        """Reset what depends on role and term."""
        self._lease.begin(self._clock.monotonic_s())
        self.transfer.lead()
        self.stir(self._clock.monotonic_s())
        self.beat()


def _hello(before: Hello | None, reply: HeartbeatReply) -> Hello:
    """Return what a peer says of itself; its settings as before, where the digest is the same."""
    digest, settings = reply.settings_digest, reply.settings
    if len(settings) > SETTINGS_BYTES_MAX or digest_of(settings) != digest:
        settings = before.settings if before is not None and before.settings_digest == digest else b""
    return Hello(max(1, reply.level), reply.version[:100], settings, digest)
