"""The moment at which a frozen leader made a delivery that arrived after it went on.

A process that is stopped (SIGSTOP) may have delivered a message and not yet written it to its socket;
nothing can call that back when it goes on. Such a delivery counts as of the moment of the stop.
"""

from __future__ import annotations

from collections.abc import Callable

from tarry.chaos.history import Delivered, History

ON_ITS_WAY_MS = 2_000
"""Greatest time from such a message's due time to the stop, on a slow machine. A message due after the stop
is never excused: a leader that goes on without its lease would deliver that as well."""


def moment_of(history: History, travel_ms: int) -> Callable[[Delivered], int]:
    """Return a function from a delivery to when its leader delivered it, ms of the monotonic clock.

    `travel_ms`: what its way takes at most, once the leader goes on.
    """
    stops: list[tuple[str, int, int]] = []
    for place, event in enumerate(history.events):
        if event.name == "pause":
            on = (one for one in history.events[place:] if (one.name, one.node) == ("resume", event.node))
            stops += [(event.node, event.at_mono_ms, one.at_mono_ms) for one in on][:1]

    def moment(delivery: Delivered) -> int:
        at_ms = delivery.received_mono_ms
        for node, start_ms, end_ms in stops:
            if (
                node == delivery.node
                and start_ms - ON_ITS_WAY_MS
                <= delivery.due_mono_ms
                <= start_ms
                <= at_ms
                <= end_ms + travel_ms
            ):
                return start_ms
        return at_ms

    return moment
