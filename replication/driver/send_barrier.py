"""Order of sending and journal write: votes and answers wait, appends do not."""

from __future__ import annotations

from typing import Final, TypeAlias

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.journal.journal import Journal
from tarry.replication.transport.interface import Transport

Outgoing: TypeAlias = list[tuple[str, PeerMessage]]
"""Messages by peer, in order."""
BULK: Final = frozenset({"append", "need_snapshot"})


class SendBarrier:
    def __init__(self, journal: Journal, transport: Transport) -> None:
        self._journal = journal
        self._transport = transport

    def split(self, outbox: Outgoing) -> tuple[Outgoing, Outgoing]:
        """Separate what a power loss cannot make untrue (see `_is_free`) from what waits for the write."""
        early: Outgoing = []
        late: Outgoing = []
        for addressed in outbox:
            (early if self._is_free(addressed[1]) else late).append(addressed)
        return early, late

    def _is_free(self, message: PeerMessage) -> bool:
        """Return whether a message of a durable term may leave before the write.

        Appends with a commit index that is durable here; heartbeats and their answers, whose promise ends
        with the process and is kept by electing nobody right after a start.
        """
        term, index = self._journal.durable_term, self._journal.durable_index
        kind = message.WhichOneof("body")
        if kind == "append":
            return message.append.term == term and message.append.commit_index <= index
        if kind == "heartbeat":
            return message.heartbeat.term == term
        return kind == "heartbeat_reply" and message.heartbeat_reply.term == term

    def send(self, outbox: Outgoing) -> None:
        """Send messages; appends, and the NeedSnapshot that is numbered with them, go as bulk."""
        by_stream: dict[tuple[str, bool], list[bytes]] = {}
        for peer, message in outbox:
            bulk = message.WhichOneof("body") in BULK
            by_stream.setdefault((peer, bulk), []).append(message.SerializeToString())
        for (peer, bulk), messages in by_stream.items():
            self._transport.send(peer, messages, bulk=bulk)
