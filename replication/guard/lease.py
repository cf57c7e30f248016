"""How long a leader may act without asking.

Each heartbeat carries the leader's monotonic time, and its answer brings it back. Whoever answered elects
nobody else for the minimum election timeout from when the heartbeat arrived, so from when it was sent; a
majority of such answers is a lease (dissertation §6.4.1), ended early by the error of the clocks' rates.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    length_s: float
    echoed: dict[str, float] = field(default_factory=dict)
    """By peer: the highest send time it gave back."""
    not_before: float = -math.inf
    """Heartbeats sent earlier do not count: a transfer or an earlier term lies between."""

    def begin(self, now: float) -> None:
        """Forgets all answers, also those still under way."""
        self.echoed.clear()
        self.not_before = now

    def echo(self, peer: str, sent: float, now: float) -> None:
        if self.not_before <= sent <= now:
            self.echoed[peer] = max(sent, self.echoed.get(peer, -math.inf))

    def has_echoed(self, peer: str, since: float) -> bool:
        return self.echoed.get(peer, -math.inf) >= since

    def confirmed(self, voters: Set[str]) -> float:
        """Send time of the latest heartbeats that a majority has answered; `voters`: the other members."""
        needed = (len(voters) + 1) // 2
        if needed == 0:
            return math.inf
        times = sorted((self.echoed.get(voter, -math.inf) for voter in voters), reverse=True)
        return times[needed - 1]

    def valid(self, now: float, voters: Set[str]) -> bool:
        return now < self.confirmed(voters) + self.length_s
