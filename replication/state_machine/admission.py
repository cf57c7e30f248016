"""Admission: whether messages may go into the wheel, counted exactly, where they would come to lie.

It is part of applying, so that requests in flight together cannot overrun a limit: the leader's limit comes
inside the command, a topic's is in its settings.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.proto.reasons import Reason
from tarry.replication.state_machine.producer_answers import Bounds
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.capacity import full_second
from tarry.wheel.wheel import Wheel

RETRY_MS: Final = 1_000


def refusal(
    wheel: Wheel,
    queues: Queues,
    due_ms: NDArray[np.int64],
    topic: NDArray[np.uint32],
    second_messages_max: int,
    now_ms: int,
) -> Refusal | None:
    """Return why a batch, columns of shape (n,), has no room; None where it has."""
    return topic_full(wheel, queues, topic) or second_full(wheel, due_ms, second_messages_max, now_ms)


def too_many_producers(bounds: Bounds) -> Refusal:
    """Return why a request of a producer that is not known yet is refused."""
    text = (
        f"there are {bounds.producers_max} producers, and each has sent something in the last "
        f"{bounds.silent_ms} ms: use producers for longer, wait, or raise limits.producers_max"
    )
    facts = {
        "producers_max": str(bounds.producers_max),
        "producer_silent_ms": str(bounds.silent_ms),
    }
    return Refusal(Reason.TOO_MANY_PRODUCERS, text, facts, retry_ms=RETRY_MS)


def topic_full(wheel: Wheel, queues: Queues, topic: NDArray[np.uint32]) -> Refusal | None:
    """Return why messages of topics, by their queues, shape (n,), have no room; half messages are pending."""
    counts = np.bincount(topic)
    for number in np.flatnonzero(counts).tolist():
        coming, most = int(counts[number]), queues[number].settings.pending_max
        pending = wheel.pending_of(number) + queues.halves(number) if most else 0
        if most and pending + coming > most:
            name = queues[number].topic
            text = (
                f"topic {name!r} has {pending} pending messages and may have {most}: no room for {coming} "
                "more; wait until some are due, or raise its pending_max"
            )
            facts = {
                "topic": name,
                "pending": str(pending),
                "pending_max": str(most),
                "position": str(int((topic == number).argmax())),
            }
            return Refusal(Reason.TOPIC_FULL, text, facts, retry_ms=RETRY_MS)
    return None


def second_full(wheel: Wheel, due_ms: NDArray[np.int64], most: int, now_ms: int) -> Refusal | None:
    """Return why messages due then, shape (n,), have no room within their seconds; 0 is no limit."""
    if not most:
        return None
    full = full_second(wheel.pending_in_hour, wheel.pending_per_second, due_ms, most, now_ms)
    if full is None:
        return None
    text = (
        f"the second {full.due_ms} has {full.pending} messages and may have {most}: no room for {full.coming}"
    )
    facts = {
        "second_ms": str(full.due_ms),
        "pending": str(full.pending),
        "second_messages_max": str(most),
        "position": str(full.position),
    }
    if full.nearest_ms is None:
        text += " more, nor has any within a day: spread them, with a jitter"
    else:
        text += f" more; the nearest with room begins at due_ms {full.nearest_ms}"
        facts["nearest_due_ms"] = str(full.nearest_ms)
    return Refusal(Reason.SECOND_FULL, text, facts)
