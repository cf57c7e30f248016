"""Handling of heartbeats at the moment they arrive, outside the turns.

They need neither the disk nor the engine's tick, and an idle cluster hears hardly anything else; and the
lease of a leader whose disk is slow must not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.driver.send_barrier import SendBarrier
from tarry.replication.replica import Replica
from tarry.replication.status import Role


class HeartbeatFastPath:
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
        return rest

    def pass_on_states(self) -> None:
        """Pass on the dispatch states of the heartbeats received."""
        for leader, state in self._replica.consensus.heartbeats.take_received():
            self._on_heartbeat(leader, state)

    def _may_take(self, peer: str, message: PeerMessage) -> bool:
        """Return whether the message causes no write, and nobody waits for its content.

        So it must belong to the term that is led, and that term must be durable here.
        """
        replica, state = self._replica, self._replica.consensus.state
        if replica.stopping or state.term != replica.journal.durable_term:
            return False
        kind = message.WhichOneof("body")
        if kind == "heartbeat":
            follows = state.role is Role.FOLLOWER and state.leader == peer
            return follows and message.heartbeat.term == state.term
        if kind == "heartbeat_reply":
            waited_for = replica.consensus.transfer.running or replica.awaited
            return state.leads(message.heartbeat_reply.term) and not waited_for
        return False
