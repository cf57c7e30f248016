"""Pure functions from a history to what is wrong with it; an empty answer is a promise kept.

Each takes what producers and consumers recorded themselves and nothing that a node says about itself.
The set of checks follows Jepsen's queue checkers (lost, duplicated, unexpected) and adds time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tarry.chaos.history import RETRYING, Answer, Delivered, History, Sent


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds from due to received, of first deliveries that were acknowledged before they were due."""

    count: int
    p50_ms: int
    p99_ms: int
    max_ms: int


def lost(history: History, groups: Collection[tuple[str, str]]) -> tuple[tuple[str, Sent], ...]:
    """Return (group, message) for acknowledged messages that a group never got, unless perhaps cancelled.

    `groups` are the (topic, group) pairs that ought to have got everything of their topic, so that a
    group which got nothing at all is found as well.
    """
    seen = {(delivery.group, delivery.token) for delivery in history.delivered}
    gone = {cancel.token for cancel in history.cancelled}
    return tuple(
        (group, sent)
        for topic, group in sorted(groups)
        for sent in history.acknowledged()
        if sent.topic == topic and sent.token not in gone and (group, sent.token) not in seen
    )


def early(history: History, tolerance_ms: int = 0) -> tuple[Delivered, ...]:
    """Return the deliveries received before their message was due.

    Due is what the producer asked for, or what it was answered if that is later, and the group's delay.
    The monotonic clock is held against it as well: a delivery that came sooner after the sending than the
    asked delay is early whatever the wall clock did in between. Of a message that was rescheduled it is what
    the delivery says, which `changes.not_explained` holds against the answers.
    """
    sent = {one.token: one for one in history.sent}
    changed = history.changed()
    return tuple(
        delivery
        for delivery in history.delivered
        if (message := sent.get(delivery.token)) is not None
        and (
            delivery.received_ms < delivery.due_ms - tolerance_ms
            if delivery.token in changed
            else _is_early(message, delivery, tolerance_ms)
        )
    )


def _is_early(message: Sent, delivery: Delivered, tolerance_ms: int) -> bool:
    due_ms = max(message.due_ms, message.acknowledged_due_ms) + delivery.delay_ms
    waited_ms = delivery.received_mono_ms - message.sent_mono_ms
    # each clock is read to whole milliseconds: two readings may take up to one from the difference
    return delivery.received_ms < due_ms - tolerance_ms or waited_ms + 1 < (
        message.due_ms + delivery.delay_ms - message.sent_ms - tolerance_ms
    )


def delivered_after_cancel(history: History) -> tuple[Delivered, ...]:
    """Return the deliveries of messages whose cancel was answered with CANCELLED, whenever they came.

    Of RETRYING groups, for which a message may have waited for its retry, those after the answer.
    """
    gone: dict[int, int] = {}
    for cancel in history.cancelled:
        if cancel.certain:
            gone[cancel.token] = min(cancel.answered_ms, gone.get(cancel.token, cancel.answered_ms))
    return tuple(
        delivery
        for delivery in history.delivered
        if delivery.token in gone
        and (delivery.group not in RETRYING or delivery.received_ms > gone[delivery.token])
    )


def unexpected(history: History) -> tuple[Delivered, ...]:
    """Return deliveries of what nobody sent, of what was refused, or on another topic than it was sent to."""
    sent = {one.token: one for one in history.sent}
    return tuple(
        delivery
        for delivery in history.delivered
        if (message := sent.get(delivery.token)) is None
        or message.answer is Answer.REFUSED
        or message.topic != delivery.topic
    )


def ids_given_twice(history: History) -> tuple[str, ...]:
    """Return the ids that were answered for more than one message."""
    counts = Counter(sent.id for sent in history.acknowledged())
    return tuple(sorted(name for name, count in counts.items() if count > 1))


def lateness(history: History, outside: Sequence[tuple[int, int]] = ()) -> Lateness:
    """Return how late messages came that were acknowledged before they were due.

    `outside`: leave out what was due within these spans (from, to), ms of the wall clock, ends included.
    What was rescheduled or updated does not count.
    """
    changed = history.changed()
    sent = {
        one.token: one
        for one in history.acknowledged()
        if one.answered_ms <= one.acknowledged_due_ms
        and one.token not in changed
        and not any(start <= one.acknowledged_due_ms <= end for start, end in outside)
    }
    late_ms = sorted(
        delivery.received_ms - sent[delivery.token].acknowledged_due_ms - delivery.delay_ms
        for delivery in history.first_deliveries().values()
        if delivery.token in sent
    )
    if not late_ms:
        return Lateness(0, 0, 0, 0)
    return Lateness(len(late_ms), percentile(late_ms, 50), percentile(late_ms, 99), late_ms[-1])


def percentile(ascending: Sequence[int], percent: float) -> int:
    """Return the nearest-rank percentile of sorted values.

    Raises ValueError when there are none.
    """
    if not ascending:
        raise ValueError("no values, no percentile")
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


def outage_ms(history: History, since_mono_ms: int) -> int | None:
    """Return how long after a moment the first schedule sent since then was acknowledged; None: never."""
    answered = [
        sent.answered_mono_ms for sent in history.acknowledged() if sent.sent_mono_ms >= since_mono_ms
    ]
    return min(answered) - since_mono_ms if answered else None
