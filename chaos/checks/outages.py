"""History without what a majority that lost its power may have forgotten, before it is judged.

With async durability that is what was answered within `flush_ms` before the loss, and the time of a flush.
All other promises stay: what was acknowledged before is delivered, and nothing is early or diverges.
"""

from __future__ import annotations

from dataclasses import replace

from tarry.chaos.history import Answer, History, Outage


def doubted(history: History) -> History:
    """Return the history with answers of an outage as if they had not come: what they say may be undone.

    Deliveries stay: they happened. So a message that was acknowledged in an outage may be delivered or not.
    """
    if not history.outages:
        return history
    outages, tokens = history.outages, _doubted_tokens(history)
    return replace(
        history,
        sent=[replace(one, answer=Answer.UNKNOWN) if one.token in tokens else one for one in history.sent],
        cancelled=[
            replace(one, certain=False) if any(each.has_wall(one.answered_ms) for each in outages) else one
            for one in history.cancelled
        ],
        operations=[
            replace(one, outcome="", answered_mono_ms=None) if _has(outages, one.answered_mono_ms) else one
            for one in history.operations
        ],
        repeated=[one for one in history.repeated if one.token not in tokens],
    )


def remembered(history: History) -> History:
    """Return the history without deliveries and looks at nodes in an outage, which may be forgotten.

    A release or a delivery that is forgotten happens again, at another place of its ready queue and without a
    mark, and another entry takes the index of one that is.
    """
    if not history.outages:
        return history
    return replace(
        history,
        delivered=[one for one in history.delivered if not _has(history.outages, one.received_mono_ms)],
        nodes=[one for one in history.nodes if not _has(history.outages, one.at_mono_ms)],
    )


def forgotten(history: History, groups: tuple[str, ...]) -> int:
    """Return how many messages that were acknowledged in an outage came to none of the groups."""
    here = {one.token for one in history.delivered if one.group in groups}
    gone = {one.token for one in history.cancelled}
    return len(_doubted_tokens(history) - here - gone)


def _doubted_tokens(history: History) -> set[int]:
    return {one.token for one in history.acknowledged() if _has(history.outages, one.answered_mono_ms)}


def _has(outages: list[Outage], at_mono_ms: int | None) -> bool:
    return at_mono_ms is not None and any(each.has(at_mono_ms) for each in outages)
