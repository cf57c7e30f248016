"""Handling of messages at the moment they arrive, outside the turns.

Heartbeats need neither the disk nor the engine's tick, and an idle cluster hears hardly anything else; and
the lease of a leader whose disk is slow must not wait for it. An answer to an append that can commit nothing
more, as that of the slower followers, needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tarry.proto.tarry_peer_pb2 import Appended, PeerMessage
from tarry.replication.driver.send_barrier import SendBarrier
from tarry.replication.replica import Replica
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.status import Role


class FastPath:
    def __init__(
        self, replica: Replica, barrier: SendBarrier, on_heartbeat: Callable[[str, bytes], None]
    ) -> None:
        self._replica = replica
        self._barrier = barrier
        self._on_heartbeat = on_heartbeat

    def take(self, peer: str, messages: Iterable[PeerMessage]) -> list[PeerMessage]:
        """Handle the messages that may be handled at once; return the others, for a turn."""
        rest = []
        for message in messages:
            if not self._may_take(peer, message):
                rest.append(message)
                continue
            consensus = self._replica.consensus
            consensus.receive(peer, message)
            self._barrier.send(consensus.outbox.take())
            self.pass_on_states()
            if message.HasField("appended") and consensus.log_replication.settled():
                self._replica.wake.set()  # the next tick may rest
            elif self._replica.awaited or self._replica.flush_awaited:
                self._replica.wake.set()  # what somebody waits for may have come
        return rest

    def pass_on_states(self) -> None:
        """Pass on the dispatch states of the heartbeats received; end if the cluster's level is too high."""
        heartbeats = self._replica.consensus.heartbeats
        for leader, state in heartbeats.take_received():
            self._on_heartbeat(leader, state)
        if heartbeats.told_level > self._replica.hello.level:
            self._refuse(heartbeats.told_level)

    def _refuse(self, level: int) -> None:
        try:
            levels.demand("the cluster", level, self._replica.hello.level)
        except AnotherVersion as refused:
            self._replica.fail(refused)

    def _may_take(self, peer: str, message: PeerMessage) -> bool:
        """Return whether the message causes no write, and needs no tick.

        So it must belong to the term that is led, and that term must be durable here.
        """
        replica, state = self._replica, self._replica.consensus.state
        if replica.stopping or state.term != replica.journal.durable_term:
            return False
        kind = message.WhichOneof("body")
        if kind == "heartbeat":
            follows = state.role is Role.FOLLOWER and state.leader == peer
            return follows and message.heartbeat.term == state.term
        if replica.consensus.transfer.running:
            return False
        if kind == "heartbeat_reply":
            return state.leads(message.heartbeat_reply.term)
        if kind != "appended" or replica.awaited or replica.flush_awaited:
            return False
        return self._commits_nothing(peer, message.appended)

    def _commits_nothing(self, peer: str, answer: Appended) -> bool:
        """Return whether all that a voter acknowledges is committed, and nothing waits to be sent to it."""
        state = self._replica.consensus.state
        known = answer.success and answer.next_index <= state.commit_index + 1 and state.leads(answer.term)
        level = state.next_index(peer) > self._replica.journal.last_index
        return known and level and peer in state.voters
