"""Checks of what RocketMQ's own clients saw at gateways.

Most are those of all traffic, on a history of these clients' own. They are not told which leader delivered,
so one delivery of a message to a group may be without a mark, whoever led; and they are told that an
acknowledgement was taken, so a delivery long after that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tarry.chaos.checks import deliveries, duplicates
from tarry.chaos.checks import stuck as waiting
from tarry.chaos.history import Delivered, GatewayClients

UNDERWAY_MS: Final = 5_000
"""For which a delivery may be on its way to a client as another copy is acknowledged; an acknowledgement that
was forgotten shows once the message's invisible duration is over, 10 s later at least."""


def found(seen: GatewayClients) -> Mapping[str, Sequence[object]]:
    """Return what breaks a promise, by its name."""
    history = seen.history()
    return {
        "lost": deliveries.lost(history, seen.groups),
        "early": deliveries.early(history),
        "delivered after a cancel": deliveries.delivered_after_cancel(history),
        "delivered after its acknowledgement": delivered_after_done(seen),
        "repeated without a mark": duplicates.unmarked(history),
        "delivered though never sent": deliveries.unexpected(history),
        "ids given twice": deliveries.ids_given_twice(history),
        "delivered under another id": under_another_id(seen),
        "out of the order of its key": waiting.out_of_order(history),
    }


def delivered_after_done(seen: GatewayClients) -> tuple[Delivered, ...]:
    """Return deliveries to a group that has acknowledged the message more than UNDERWAY_MS before."""
    done: dict[tuple[str, int], int] = {}
    for one in seen.done:
        place = one.group, one.token
        done[place] = min(one.answered_ms, done.get(place, one.answered_ms))
    return tuple(
        delivery
        for delivery in seen.delivered
        if (at_ms := done.get((delivery.group, delivery.token))) is not None
        and delivery.received_ms > at_ms + UNDERWAY_MS
    )


def under_another_id(seen: GatewayClients) -> tuple[Delivered, ...]:
    """Return deliveries whose message id is not the one that the sender was told: it was stored twice."""
    told = {one.token: one.id for one in seen.sent if one.id}
    return tuple(one for one in seen.delivered if told.get(one.token, one.id) != one.id)
