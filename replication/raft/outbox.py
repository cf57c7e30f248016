"""Messages of one replica that wait to be sent, in order."""

from __future__ import annotations

from typing import Any

from tarry.proto.tarry_peer_pb2 import PeerMessage


class Outbox:
    def __init__(self) -> None:
        self._messages: list[tuple[str, PeerMessage]] = []

    def say(self, peer: str, **body: Any) -> None:
        """Add a message; `body`: the one field of a PeerMessage."""
        self._messages.append((peer, PeerMessage(**body)))

    def put(self, peer: str, message: PeerMessage) -> None:
        self._messages.append((peer, message))

    def take(self) -> list[tuple[str, PeerMessage]]:
        messages, self._messages = self._messages, []
        return messages
