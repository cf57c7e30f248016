"""Checks for messages that came too late or out of order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from tarry.chaos.history import CHANGES, Delivered, History, Sent, Span

AHEAD_MS = 500
"""Greatest time by which a message may be released before it is due; a message sent after that follows it."""


def stuck(
    history: History, groups: Collection[str], patience_ms: int, disturbed: Sequence[Span] = ()
) -> tuple[Delivered, ...]:
    """Return first deliveries that came more than `patience_ms` after they could have.

    That is from when the message was due and acknowledged, or from the end of whatever was broken meanwhile
    (`disturbed`, in the order of time). What was rescheduled is due when its delivery says, and could not
    come while it was asked for. What never came at all is lost, not stuck.
    """
    sent = {one.token: one for one in history.acknowledged()}
    changed: defaultdict[int, list[int]] = defaultdict(list)
    for asked in history.operations:
        if asked.asked in CHANGES and asked.answered_mono_ms is not None:
            changed[asked.token].append(asked.answered_mono_ms)
    late = []
    for (group, token), delivery in history.first_deliveries().items():
        message = sent.get(token)
        if message is None or group not in groups:
            continue
        due_mono_ms = message.sent_mono_ms + message.acknowledged_due_ms - message.sent_ms
        since_ms = max(due_mono_ms, message.answered_mono_ms)
        if token in changed:
            before = (at_ms for at_ms in changed[token] if at_ms <= delivery.received_mono_ms)
            since_ms = max(delivery.due_mono_ms, *before, delivery.due_mono_ms)
        for start, end in disturbed:
            if start <= delivery.received_mono_ms and end >= since_ms:
                since_ms = max(since_ms, end)
        if delivery.received_mono_ms - since_ms > patience_ms:
            late.append(delivery)
    return tuple(late)


def out_of_order(history: History, ahead_ms: int = AHEAD_MS) -> tuple[Delivered, ...]:
    """Return first deliveries of a key that came before an earlier message of it, to the same group.

    Earlier: due before it, and acknowledged before the later one could be released, `ahead_ms` before it was
    due. Without a key there is no order, and what was perhaps cancelled need not come.
    """
    gone = {cancel.token for cancel in history.cancelled}
    of_key: defaultdict[tuple[str, str], list[Sent]] = defaultdict(list)
    for sent in history.acknowledged():
        if sent.key:
            of_key[sent.topic, sent.key].append(sent)
    first = history.first_deliveries()
    groups = {group for group, _ in first}

    def overtakes(group: str, later: Sent, other: Sent) -> bool:
        if (
            other.acknowledged_due_ms >= later.acknowledged_due_ms
            or other.answered_ms >= later.acknowledged_due_ms - ahead_ms
            or other.token in gone
        ):
            return False
        came = first.get((group, other.token))
        return came is None or came.received_mono_ms > first[group, later.token].received_mono_ms

    return tuple(
        first[group, later.token]
        for group in sorted(groups)
        for of_one in of_key.values()
        for later in of_one
        if (group, later.token) in first and any(overtakes(group, later, other) for other in of_one)
    )
