"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import random
import socket
from collections import deque
from contextlib import ExitStack

PORTS = range(10_240, 32_768)  # below what systems give to outgoing connections
GIVEN: deque[int] = deque(maxlen=4_096)  # lately; whoever got them may not listen there yet


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports of 127.0.0.1 that nobody listens on, all different, also from call to call."""
    chance = random.SystemRandom()
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = chance.choice(PORTS)
            if port in GIVEN:
                continue
            sock = held.enter_context(socket.socket())
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            GIVEN.append(port)
    return tuple(found)
