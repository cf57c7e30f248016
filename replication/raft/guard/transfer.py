"""State of a leadership transfer: nothing is lost, doubled, or served by two leaders.

    IDLE ─► DRAINING ─► TELLING ─► CAMPAIGNING ─► (another leads)
      ▲         │           │            │
      └─────────┴───────────┴────────────┘ deadline, or a silent target: leadership goes on

Draining: no proposals; all that is in the log is committed, applied, and on the target. Telling: the target
answers heartbeats with all of the dispatcher's last state. Campaigning: there is no lease, and the target is
told to campaign (dissertation §3.10), again and again until it leads.

The request to campaign may arrive late, after this leader has gone on. So each attempt has a number,
heartbeats carry the latest, and whoever has answered a heartbeat takes part in no election of a lower one:
the lease that counts only such answers cannot overlap a late election.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    IDLE = 0
    DRAINING = 1
    TELLING = 2
    CAMPAIGNING = 3


@dataclass(slots=True)
class Transfer:
    number: int = 0
    phase: Phase = Phase.IDLE
    target: str = ""
    deadline: float = 0.0
    heard_at: float = 0.0  # when the target last answered
    told_at: float = 0.0
    told_all: bool = False
    told_by: float = 0.0  # from then on it goes on with what has been told
    resend_at: float = 0.0

    def lead(self) -> None:
        """Start from zero with a new leadership: numbers are compared within a term only."""
        self.number, self.phase = 0, Phase.IDLE

    def begin(self, target: str, deadline: float, now: float) -> None:
        self.number += 1
        self.phase, self.target, self.deadline, self.heard_at = Phase.DRAINING, target, deadline, now
        self.told_by = (now + deadline) / 2

    def hears(self, peer: str, now: float) -> None:
        if peer == self.target:
            self.heard_at = now

    def is_over(self, now: float, silence_s: float) -> bool:
        """Return whether the deadline is over or the target silent: no proposals are taken meanwhile."""
        return now >= min(self.deadline, self.heard_at + silence_s)

    def note_sent(self, now: float, told_all: bool) -> None:
        """Note that heartbeats went out; ``told_all``: they had all of the last dispatch state."""
        self.phase, self.told_at, self.told_all = Phase.TELLING, now, told_all

    def let_campaign(self) -> None:
        self.phase, self.resend_at = Phase.CAMPAIGNING, 0.0

    def give_up(self) -> None:
        """End the attempt; elections that it may still cause are void from here on."""
        self.number += 1
        self.phase = Phase.IDLE

    @property
    def running(self) -> bool:
        return self.phase is not Phase.IDLE
