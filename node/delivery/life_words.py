"""State of a message for one group, from what is known of it, and the state in words. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tarry.node.delivery.places import Found, Place, Standing
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.tarry_message_pb2 import RetryReason


class Facts(NamedTuple):
    """Facts about a message in one group; its state is a GroupState."""

    state: pb.GroupState
    standing: Standing
    now_ms: int
    attempt: int = 0
    due_ms: int = 0
    """Of the delivery that it waits for; the group's delay is in it."""
    opens_ms: int = 0
    """When its topic's release rate lets it go; 0: it does."""
    consumer: str = ""
    until_ms: int = 0
    before: int | None = None
    maybe_delivered: bool = False
    pending: bool = False
    """In the wheel."""
    withdrawn: bool = False
    """Cancelled after its release."""
    place: Place = Place.WAITING
    behind_retry: bool = False
    left_out: bool = False
    """The filter of the group's consumers leaves it out."""
    awaits_disk: bool = False
    damaged: bool = False
    """A block of the queue, before it or its own, is damaged."""
    retry_id: tuple[int, int] | None = None
    reason: RetryReason = RetryReason.RETRY_REASON_UNSPECIFIED
    retry_offset: int = 0
    delay_ms: int = 0


_STATES = {
    Place.ACKNOWLEDGED: pb.GROUP_STATE_DONE,
    Place.IN_HAND: pb.GROUP_STATE_IN_HAND,
    Place.HELD: pb.GROUP_STATE_WITHHELD,
    Place.MARKED: pb.GROUP_STATE_SETTLING,
    Place.MENDING: pb.GROUP_STATE_WAITING,
    Place.WAITING: pb.GROUP_STATE_WAITING,
    Place.PARKED: pb.GROUP_STATE_BLOCKED,
    Place.SETTLING: pb.GROUP_STATE_SETTLING,
}


def at(facts: Facts, found: Found, *, behind_retry: bool, behind_taken: bool) -> Facts:
    """Return the facts with those of the message's place in its group's feed.

    Args:
        behind_retry: its ordering key waits for another message's retry.
        behind_taken: an earlier message of its key is in hand, or may be.
    """
    state = _STATES[found.place]
    if state == pb.GROUP_STATE_WAITING and (behind_retry or behind_taken):
        state = pb.GROUP_STATE_BLOCKED
    waits = state in (pb.GROUP_STATE_WAITING, pb.GROUP_STATE_BLOCKED)
    standing = facts.standing
    until_ms = standing.waits_until_ms if waits else found.until_ms
    if waits and not until_ms:
        latest = max(facts.due_ms, facts.opens_ms, standing.rate_opens_ms)
        until_ms = latest if latest > facts.now_ms else 0
    return facts._replace(
        state=state,
        place=found.place,
        consumer=found.consumer,
        until_ms=until_ms,
        before=found.before if waits else None,
        maybe_delivered=found.maybe_delivered,
        behind_retry=behind_retry,
    )


def why(facts: Facts) -> str:
    """Return why the group has, or has not, got the message."""
    match facts.state:
        case pb.GROUP_STATE_WAITING:
            return _why_waiting(facts)
        case pb.GROUP_STATE_IN_HAND:
            return f"consumer {facts.consumer!r} has it in hand" + _attempt(facts)
        case pb.GROUP_STATE_BLOCKED:
            ahead = "is in hand" if not facts.behind_retry else "waits for its retry"
            return f"an earlier message of its ordering key {ahead}" + _nobody(facts)
        case pb.GROUP_STATE_IN_BACK_OFF:
            return f"{_reason(facts)}: it waits for its next attempt{_attempt(facts)}" + _nobody(facts)
        case pb.GROUP_STATE_WITHHELD:
            return "an earlier leader has delivered it: it is withheld for its consumer to come back"
        case pb.GROUP_STATE_SETTLING:
            if facts.place is Place.MARKED:
                return "it is being cancelled"
            return "what its consumer said of it, or that its lease is over, is being committed"
        case pb.GROUP_STATE_DONE:
            return "it is done with it: acknowledged, given up or passed over, or the group began behind it"
        case pb.GROUP_STATE_CANCELLED:
            return "cancelled" + (", unless the group had acknowledged it before" if facts.withdrawn else "")
        case pb.GROUP_STATE_GONE:
            return "its queue holds it no more: all are done with it, retention has cut it, or it misfired"
        case pb.GROUP_STATE_DONE_OR_RETRIED:
            return "it is done with it, or waits for a retry: not all that waits could be looked at"
    return "its queue is too long to look for it in all of it"


def _why_waiting(facts: Facts) -> str:
    standing = facts.standing
    late, due = facts.now_ms >= facts.due_ms, facts.now_ms >= facts.due_ms - facts.delay_ms
    if facts.pending:
        return ("it is due, and about to be released" if due else "it is not due yet") + _nobody(facts)
    if facts.place is Place.MENDING:
        return "its stored bytes are damaged, and are being mended from a peer"
    again = "; it may have been delivered before" if facts.maybe_delivered else ""
    if not standing.consumers:
        return "no consumer of the group is connected" + again
    reasons = (
        (not due, "it is not due yet"),
        (due and not late, "it waits for the group's delay"),
        (facts.left_out, "the consumers' tags leave it out: it is about to be passed over"),
        (standing.waits_until_ms, "the group waits for the consumers of the leader before to come back"),
        (facts.opens_ms > facts.now_ms, "the topic's release rate holds it back"),
        (standing.rate_opens_ms, "the group's delivery rate holds it back"),
        (facts.damaged, "a part of the queue is damaged, and is being mended from a peer"),
        (not standing.asks, "its consumers have in hand what they asked for, and ask for no more"),
        (facts.awaits_disk, "what goes first is being read from the disk"),
        (facts.before, f"{facts.before} messages go first"),
    )
    chosen = [text for holds, text in reasons if holds]
    return ("; ".join(chosen) or "it is about to be delivered") + again


def _reason(facts: Facts) -> str:
    match facts.reason:
        case RetryReason.RETRY_REASON_NACKED:
            return "a consumer gave it back"
        case RetryReason.RETRY_REASON_LEASE_EXPIRED:
            return "its lease ended without an answer"
    return "it was sent back to the group"


def _attempt(facts: Facts) -> str:
    return f", delivery {facts.attempt}" if facts.attempt > 1 else ""


def _nobody(facts: Facts) -> str:
    return "" if facts.standing.consumers else "; no consumer of the group is connected"
