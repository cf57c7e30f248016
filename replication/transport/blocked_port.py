"""Peers that answer calls, and whose port for streams cannot be reached: a firewall or a proxy, as a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRIES: Final = 2
"""In a row. One alone may have been cut short by the end of a peer's process."""
PATIENCE_S: Final = 1.0
"""Streams that lasted for less were not let through; a connection that was given less may need more."""


@dataclass(frozen=True, slots=True)
class BlockedPort:
    address: str
    """Where this node connects to, host:port."""
    why: str


class PortTries:
    """This node's tries to open streams to one peer; times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self.blocked: BlockedPort | None = None
        self._address = ""
        self._since_s = 0.0
        self._open = False
        self._failed = 0

    def connecting(self, address: str, now_s: float) -> None:
        """Note that the peer has answered, and is being connected to."""
        self._address, self._since_s, self._open = address, now_s, False

    def opened(self, now_s: float) -> None:
        self.blocked = None
        self._since_s, self._open = now_s, True

    def ended(self, why: str, now_s: float) -> None:
        """Note that the try is over, or the streams are; without a connection the peer itself is away."""
        address, self._address = self._address, ""
        lasted_s = now_s - self._since_s
        if not address or (self._open and lasted_s >= PATIENCE_S):
            self._failed, self.blocked = 0, None
        elif self._open or why or lasted_s >= PATIENCE_S:
            self._failed += 1
            if self._failed >= TRIES:
                closed = "closed as soon as it was opened" if self._open else f"no answer in {lasted_s:.0f} s"
                self.blocked = BlockedPort(address, why or closed)
        self._open = False
