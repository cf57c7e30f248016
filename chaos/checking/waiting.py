"""What waited too long: messages that were due, with a consumer there and nothing broken."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tarry.chaos.checking.repeats import Span
from tarry.chaos.history import Delivered, History


def stuck(
    history: History, groups: Collection[str], patience_ms: int, disturbed: Sequence[Span] = ()
) -> tuple[Delivered, ...]:
    """Return first deliveries that came more than `patience_ms` after they could have.

    That is from when the message was due and acknowledged, or from the end of whatever was broken meanwhile
    (`disturbed`, in the order of time). What never came at all is lost, not stuck.
    """
    sent = {one.token: one for one in history.acknowledged()}
    late = []
    for (group, token), delivery in history.first_deliveries().items():
        message = sent.get(token)
        if message is None or group not in groups:
            continue
        due_mono_ms = message.sent_mono_ms + message.acknowledged_due_ms - message.sent_ms
        since_ms = max(due_mono_ms, message.answered_mono_ms)
        for start, end in disturbed:
            if start <= delivery.received_mono_ms and end >= since_ms:
                since_ms = max(since_ms, end)
        if delivery.received_mono_ms - since_ms > patience_ms:
            late.append(delivery)
    return tuple(late)


def out_of_order(history: History) -> tuple[Delivered, ...]:
    """Return first deliveries of a key that came before an earlier message of it, to the same group.

    Earlier: due before it, and acknowledged before the later one was due. Without a key there is no order.
    """
    sent = {one.token: one for one in history.acknowledged() if one.key}
    first = history.first_deliveries()
    early = []
    for (group, token), delivery in first.items():
        message = sent.get(token)
        if message is None:
            continue
        for other in sent.values():
            overtaken = (
                (other.topic, other.key) == (message.topic, message.key)
                and other.acknowledged_due_ms < message.acknowledged_due_ms
                and other.answered_ms < message.acknowledged_due_ms
            )
            came = first.get((group, other.token))
            if overtaken and (came is None or came.received_mono_ms > delivery.received_mono_ms):
                early.append(delivery)
                break
    return tuple(early)
