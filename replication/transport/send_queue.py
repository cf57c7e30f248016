"""Queue of messages to one peer's stream, taken out as frames of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tarry.replication.settings import ReplicationSettings
from tarry.replication.transport.envelope import Outbound


class PeerQueue:
    """Bounded: what does not fit is not taken. A message larger than a frame leaves in pieces."""

    def __init__(self, settings: ReplicationSettings, *, bulk: bool) -> None:
        self._settings = settings
        self._bulk = bulk
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._said_bytes = 0
        """Of the first message, in frames that have left."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, messages: Sequence[bytes]) -> bool:
        """Take all of the messages, or none."""
        size_bytes = self._waiting_bytes + sum(map(len, messages))
        full = len(self._waiting) >= self._settings.peer_queue_messages_max
        if full or size_bytes > self._settings.peer_queue_bytes_max:
            return False
        self._waiting.extend(messages)
        self._waiting_bytes = size_bytes
        return True

    def frame(self, outbound: Outbound) -> bytes:
        """Return the next frame: as many messages as fit, or one piece of one that does not fit. Of an empty
        queue: a frame without messages."""
        room_bytes = self._settings.frame_bytes_max
        if self._waiting and len(self._waiting[0]) > room_bytes:
            return self._piece(outbound, room_bytes)
        messages: list[bytes] = []
        while self._waiting and len(self._waiting[0]) <= room_bytes:
            messages.append(self._waiting.popleft())
            room_bytes -= len(messages[-1])
        self._waiting_bytes -= self._settings.frame_bytes_max - room_bytes
        return outbound.seal(messages, bulk=self._bulk)

    def _piece(self, outbound: Outbound, room_bytes: int) -> bytes:
        begin = self._said_bytes
        piece = self._waiting[0][begin : begin + room_bytes]
        self._said_bytes += len(piece)
        self._waiting_bytes -= len(piece)
        continues = self._said_bytes < len(self._waiting[0])
        if not continues:
            self._waiting.popleft()
            self._said_bytes = 0
        return outbound.seal([piece], bulk=self._bulk, continued=begin > 0, continues=continues)

    def clear(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = self._said_bytes = 0
