"""The numbers that consensus runs by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SNAPSHOT_STALL_MS: Final = 60_000
"""So long may a part of a state take to come, or to be taken."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Durations in ms, sizes in bytes. Equal on all members, or the lease's safety is lost.

    Raises ValueError on numbers that contradict each other.
    """

    cluster: str = "tarry"
    heartbeat_ms: int = 50
    quiet_heartbeat_ms: int = 250  # while nothing changes
    quiet_after_ms: int = 1_000  # without a change
    commit_notice_ms: int = 50  # followers learn a commit index at the latest this long after the leader
    append_idle_ms: int = 5_000  # between empty appends to followers that have everything
    election_min_ms: int = 300
    election_max_ms: int = 600
    election_retry_ms: int = 60  # between rounds of pre-votes that did not win
    fallback_ms: int = 250  # a leader that hears no majority for this long steps down
    write_stall_ms_max: int = 1_000  # a leader whose journal write stalls sends heartbeats for so long
    clock_rate_error: float = 0.05  # how much faster one member's clock may run than another's
    command_bytes_max: int = 1 << 20
    entry_bytes_max: int = 1 << 20  # of what is coalesced; a single command may fill it
    entry_commands_max: int = 4096
    entry_cost_us_max: int = 10_000  # of applying it, as estimated; a single command may cost more
    entries_in_flight_max: int = 8
    entries_in_flight_bytes: int = 8 << 20  # with so many under way, no further entry is proposed
    turn_bytes_max: int = 4 << 20  # proposed in one turn; a single entry may be larger
    entry_bytes_worth: int = 128 << 10  # waiting: with less, commands wait for company
    small_entries_in_flight_max: int = 2  # beyond which they do
    waiting_commands_max: int = 65_536
    waiting_bytes_max: int = 64 << 20
    overload_retry_ms: int = 50
    append_bytes: int = 256 << 10  # of the entries of one append, unless the last is larger
    append_bytes_max: int = 2 << 20
    window_bytes_max: int = 4 << 20  # appended to one peer and not yet answered, on the quickest of ways
    window_bytes_min: int = 128 << 10  # the same on the slowest
    window_delay_ms: int = 50  # how much longer than on an empty way an append may take: the window follows
    peer_queue_bytes_max: int = 32 << 20  # of each of the two streams to a peer
    peer_queue_messages_max: int = 4096
    message_bytes_max: int = 8 << 20
    frame_bytes_max: int = 256 << 10  # a larger message travels in pieces
    peer_ping_ms: int = 1_000  # a stream with nothing to say says so this often
    peer_ticket_ms: int = 500  # who connects shows a ticket within it; with TLS, within it of the handshake
    peer_silence_ms: int = 3_000  # one from which no byte comes for so long is closed
    apply_budget_ms: float = 5.0  # of one turn, so that heartbeats go out under any backlog
    turn_messages_max: int = 256
    inbound_messages_max: int = 512  # that wait while a turn's write stalls; the peers send others again
    transfer_resend_ms: int = 100
    transfer_silence_ms: int = 1000  # of a transfer's target, after which leadership goes on
    retained_bytes_max: int = 64 << 20  # of entries kept for slow followers when the journal is compacted
    snapshot_retained_bytes_max: int = 1 << 30  # of entries kept for who takes a state meanwhile
    snapshot_retry_ms: int = 1000
    snapshot_stall_ms: int = SNAPSHOT_STALL_MS  # without a part; then the state is asked for anew
    transfer_lag_max: int = 64  # entries; a member with more to apply would lead and not serve
    learner_lag_max: int = 64  # entries; a learner this close may become a member

    def __post_init__(self) -> None:
        demands = {
            "election_min_ms must exceed 3 heartbeats": self.election_min_ms > 3 * self.heartbeat_ms,
            "election_max_ms must exceed election_min_ms": self.election_max_ms > self.election_min_ms,
            "fallback_ms must lie between a heartbeat and election_min_ms": (
                self.heartbeat_ms < self.fallback_ms < self.election_min_ms
            ),
            "peer_silence_ms must exceed peer_ping_ms": self.peer_silence_ms > self.peer_ping_ms,
            "quiet_heartbeat_ms must not be less than heartbeat_ms": (
                self.quiet_heartbeat_ms >= self.heartbeat_ms
            ),
            "clock_rate_error must lie in 0 … 0.5": 0 <= self.clock_rate_error < 0.5,
            "append_bytes_max must exceed the largest entry": (
                self.append_bytes_max > max(self.entry_bytes_max, self.command_bytes_max) + 4096
            ),
            "message_bytes_max must exceed the largest append": (
                self.message_bytes_max > self.append_bytes_max + self.entry_bytes_max + (1 << 16)
            ),
        }
        for demand, met in demands.items():
            if not met:
                raise ValueError(demand)

    def lease_s(self, patience_ms: int) -> float:
        """Return the length of a lease, from the sending of a heartbeat that a majority answered.

        By any member's clock it is shorter than the time for which those elect nobody else.
        """
        return (self.election_min_ms + patience_ms) * (1 - self.clock_rate_error) / 1000

    @property
    def patience_ms(self) -> int:
        """Time by which a heartbeat may be later than usual while nothing changes."""
        return self.quiet_heartbeat_ms - self.heartbeat_ms
