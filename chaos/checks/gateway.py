"""Checks of what RocketMQ's own clients saw at gateways.

Most are those of all traffic, on a history of these clients' own. They are not told which leader delivered,
so one delivery of a message to a group may be without a mark, whoever led; and they are told that an
acknowledgement was taken, so that there is no later attempt. The same attempt comes again only where a leader
was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarry.chaos.checks import deliveries, duplicates
from tarry.chaos.checks import stuck as waiting
from tarry.chaos.history import Delivered, GatewayClients, Span


def found(seen: GatewayClients) -> Mapping[str, Sequence[object]]:
    """Return what breaks a promise, by its name."""
    history = seen.history()
    return {
        "lost": deliveries.lost(history, seen.groups),
        "early": deliveries.early(history),
        "delivered after a cancel": deliveries.delivered_after_cancel(history),
        "attempted again though acknowledged": attempted_again(seen),
        "repeated without a mark": duplicates.unmarked(history),
        "delivered though never sent": deliveries.unexpected(history),
        "ids given twice": deliveries.ids_given_twice(history),
        "delivered under another id": under_another_id(seen),
        "out of the order of its key": waiting.out_of_order(history),
    }


def attempted_again(seen: GatewayClients) -> tuple[Delivered, ...]:
    """Return deliveries to a group of an attempt after one whose acknowledgement was taken.

    That holds at any time: an attempt is over once the next one is made, and its acknowledgement is refused.
    """
    last: dict[tuple[str, int], int] = {}
    for one in seen.done:
        place = one.group, one.token
        last[place] = min(one.attempt, last.get(place, one.attempt))
    return tuple(one for one in seen.delivered if one.attempt > last.get((one.group, one.token), one.attempt))


def repeated(seen: GatewayClients, windows: Sequence[Span] = ()) -> tuple[Delivered, ...]:
    """Return deliveries of an attempt that a group had before, but for those first delivered in a window.

    `windows`: when a leader that was then lost could deliver without its successor learning of it.
    """
    first: dict[tuple[str, int, int], Delivered] = {}
    for one in sorted(seen.delivered, key=lambda one: one.received_mono_ms):
        first.setdefault((one.group, one.token, one.attempt), one)

    def expected(one: Delivered) -> bool:
        before = first[one.group, one.token, one.attempt]
        return before is one or any(start <= before.received_mono_ms <= end for start, end in windows)

    return tuple(one for one in seen.delivered if not expected(one))


def under_another_id(seen: GatewayClients) -> tuple[Delivered, ...]:
    """Return deliveries whose message id is not the one that the sender was told: it was stored twice."""
    told = {one.token: one.id for one in seen.sent if one.id}
    return tuple(one for one in seen.delivered if told.get(one.token, one.id) != one.id)
