"""Appends and their answers; the rules are in guard/appends.py and guard/flow_control.py."""

from __future__ import annotations

from typing import Any

from tarry.proto.tarry_peer_pb2 import Append, Appended, NeedSnapshot, PeerMessage
from tarry.replication.raft.context import Context
from tarry.replication.raft.elections import Elections
from tarry.replication.raft.guard import appends


class LogReplication:
    def __init__(self, context: Context, elections: Elections) -> None:
        self._node = context.node
        self._engine = context.engine
        self._membership = context.membership
        self._journal = context.journal
        self._peers = context.peers
        self._outbox = context.outbox
        self._elections = elections
        self._clock = context.clock
        self._settings = context.settings
        self._flush_ms = context.flush_ms
        self._flush_to = 0  # of this leadership: the last entry that is flushed before it is answered
        self.deferred_to = 0
        """Of this leadership: the last entry that may have been answered before it was flushed."""
        self._snapshot_source: str | None = None
        self.sent_at = 0.0

    def link(self, peer: str, up: bool) -> None:
        """Note that the connection to a peer has opened or broken."""
        progress = self._peers[peer]
        progress.linked = up
        progress.flow.forget()
        progress.told_commit_index = None
        self._engine.reach(peer, up)
        if up:
            self._engine.kick()

    def on_append(self, peer: str, append: Append) -> None:
        if self._elections.is_stale(peer, append.term):
            return
        self._elections.demand_one_leader(peer, append.term)
        self._elections.hear_leader(peer, append.term)
        plan = appends.plan(append, self._journal, self._engine.commit_index)
        if plan.success and append.HasField("members"):
            self._begin_with(append)
        first = plan.prev_index + 1
        self._engine.deliver(
            peer,
            {
                "type": "append_entries",
                "term": append.term,
                "commit_index": plan.commit_index,
                "entries": [(entry.payload, first + i, entry.term) for i, entry in enumerate(plan.entries)],
                "prevLogIdx": plan.prev_index,
                "prevLogTerm": plan.prev_term,
            },
        )
        said = plan.next_index - 1 if plan.success else 0
        if said:
            self._peers[peer].compared = append.term, said
        if not append.deferred and said > self._journal.flushed_index:
            self._journal.demand_flush()  # the answer leaves after the write
            flushed = said
        else:
            flushed = min(said, self._journal.flushed_index)
        self._outbox.say(
            peer,
            appended=Appended(
                term=self._engine.term,
                sequence=append.sequence,
                next_index=plan.next_index,
                success=plan.success,
                reset=not plan.success,
                flushed_index=flushed,
            ),
        )

    def _begin_with(self, append: Append) -> None:
        if self._membership.begin_with(append.members, append.prev_index, self._node):
            self._engine.begin_with(append.members.addresses.keys() - {self._node})

    def on_appended(self, peer: str, answer: Appended) -> None:
        if self._elections.is_ahead(answer.term) or not self._elections.is_of_this_leadership(answer.term):
            return
        if peer not in self._engine.peers or answer.next_index > self._journal.last_index + 1:
            return
        flow, now = self._peers[peer].flow, self._clock.monotonic_s()
        flow.answered(answer.sequence, now)
        if answer.reset and not flow.accepts_reset(answer.sequence):
            return
        following = self._engine.next_index(peer)
        self._engine.deliver_answer(
            peer,
            {
                "type": "next_node_idx",
                "next_node_idx": answer.next_index,
                "reset": answer.reset,
                "success": answer.success,
            },
        )
        if answer.success:
            self._engine.keep_next_index(peer, following)
            progress, match = self._peers[peer], self._engine.match_index(peer)
            progress.flushed_index = max(progress.flushed_index, min(answer.flushed_index, match))
        if self._engine.next_index(peer) <= self._journal.last_index:
            self._engine.kick()

    def demand_flush(self, index: int) -> None:
        """Let an entry of this leader, the last one, be flushed wherever it is acknowledged."""
        self._flush_to = index
        self._journal.demand_flush()

    def note_deferred(self, index: int) -> None:
        """Note that entries up to one are written here, or sent, to be flushed later."""
        self.deferred_to = max(self.deferred_to, index)

    def flushed_index(self) -> int:
        """Return up to where a majority has flushed the log, as this leader knows."""
        flushed = [self._journal.flushed_index]
        flushed += [self._peers[voter].flushed_index for voter in self._engine.voters]
        return sorted(flushed, reverse=True)[len(flushed) // 2]

    def on_need_snapshot(self, peer: str, need: NeedSnapshot) -> None:
        """Note that a snapshot is needed; if one was installed meanwhile, tell the leader where to go on."""
        if self._elections.is_stale(peer, need.term) or need.term != self._engine.term:
            return
        self._elections.hear_leader(peer, need.term)
        if self._engine.commit_index < need.first_index:
            self._snapshot_source = peer
            return
        following = self._engine.commit_index + 1
        going_on = Appended(term=need.term, sequence=need.sequence, next_index=following, reset=True)
        self._outbox.say(peer, appended=going_on)

    def settled(self) -> bool:
        """Return whether every connected peer has answered all appends and was told the commit index."""
        commit = self._engine.commit_index
        linked = (progress for progress in self._peers.values() if progress.linked)
        return all(peer.told_commit_index == commit and not peer.flow.under_way for peer in linked)

    def are_level(self) -> bool:
        """Return whether every connected peer has, by its answers, the whole log."""
        last = self._journal.last_index
        linked = (peer for peer, progress in self._peers.items() if progress.linked)
        return all(self._engine.match_index(peer) == last for peer in linked)

    def take_snapshot_source(self) -> str | None:
        """Return the leader that said, since the last call, that this replica needs a snapshot."""
        source, self._snapshot_source = self._snapshot_source, None
        return source

    def open_flows(self, now: float) -> None:
        """Mark peers with an open window as connected: the engine sends to connected peers only."""
        for peer, progress in self._peers.items():
            if progress.flow.lost(now):
                progress.flow.forget()
            self._engine.reach(peer, progress.linked and progress.flow.open(now))

    def send(self, peer: str, message: dict[str, Any]) -> None:
        progress, now = self._peers[peer], self._clock.monotonic_s()
        flow = progress.flow
        self.sent_at = now
        if "serialized" in message:
            first, number = self._journal.first_index, flow.sent(0, now)
            need = NeedSnapshot(term=self._engine.term, first_index=first, sequence=number)
            self._outbox.say(peer, need_snapshot=need)
            flow.close_until(now + self._settings.heartbeat_ms / 1000)
            self._engine.reach(peer, False)
            return
        entries = message["entries"]
        size_bytes = sum(len(entry[0]) for entry in entries)
        sent = PeerMessage()
        append = sent.append  # filled in place: a copy of a megabyte costs as much as sending it
        append.term = message["term"]
        append.prev_index, append.prev_term = message["prevLogIdx"], message["prevLogTerm"]
        if self._journal.first_index <= append.prev_index <= self._journal.last_index:
            append.prev_chain = self._journal.chain_at(append.prev_index)
        if append.prev_index == self._journal.first_index and (members := self._journal.members) is not None:
            append.members.CopyFrom(members)
        append.commit_index = progress.told_commit_index = message["commit_index"]
        append.sequence = flow.sent(size_bytes, now)
        append.deferred = self._flush_ms() > 0 and append.prev_index >= self._flush_to
        if append.deferred:
            self.note_deferred(append.prev_index + len(entries))
        for payload, _, term in entries:
            append.entries.add(term=term, payload=payload)
        self._outbox.put(peer, sent)
        if not flow.open(now):
            self._engine.reach(peer, False)

    def observe(self) -> None:
        """Reset what depends on role and term."""
        self._flush_to = self.deferred_to = 0
        for peer, progress in self._peers.items():
            progress.told_commit_index = None
            progress.flushed_index = 0
            progress.flow.forget()
            self._engine.reach(peer, progress.linked)  # only a leader opens flows
