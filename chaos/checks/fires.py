"""Fires of schedules that recur: each once, none left out, none early, none beside the last if it must not.

What fired is told by the schedules' histories, looked at again and again, and by the messages that came. A
history keeps ten fires, so a message may be in none that was looked at: it is of the fire at its due time,
or, late and so due when it was made, of the earliest fire before that has no message yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Final, NamedTuple

from tarry.chaos.history import Fires, FireSeen, PlannedFires

MADE: Final = "fired"
WITHDRAWN: Final = "cancelled"
OF_OTHERS: Final = ("triggered",)
"""Outcomes of messages that no fire has made."""


class Fire(NamedTuple):
    """A fire, and the ids of its messages."""

    schedule: str
    fire_ms: int
    ids: tuple[str, ...] = ()


def doubled(fires: Fires) -> tuple[Fire, ...]:
    """Return the fires with several messages, but for those that were withdrawn and then not delivered."""
    return tuple(
        Fire(schedule, fire_ms, tuple(sorted(ids)))
        for (schedule, fire_ms), ids in sorted(_made(fires).items())
        if len(ids) > 1
    )


def left_out(fires: Fires) -> tuple[Fire, ...]:
    """Return the planned fires that have no message, of schedules that count none as missed."""
    made = _made(fires)
    return tuple(one for plan in fires.planned if not plan.missed for one in _absent(plan, made))


def miscounted(fires: Fires) -> tuple[PlannedFires, ...]:
    """Return the plans of schedules that count other numbers of missed fires than have no message."""
    made = _made(fires)
    return tuple(plan for plan in fires.planned if plan.missed and plan.missed != len(_absent(plan, made)))


def of_no_fire(fires: Fires) -> tuple[Fire, ...]:
    """Return the fires at times that no schedule has planned."""
    planned = {(plan.schedule, fire_ms) for plan in fires.planned for fire_ms in plan.times_ms()}
    return tuple(
        Fire(*key, tuple(sorted(ids))) for key, ids in sorted(_made(fires).items()) if key not in planned
    )


def lost(fires: Fires) -> tuple[FireSeen, ...]:
    """Return the fires whose message never came."""
    came = {one.id for one in fires.messages}
    return tuple(
        one
        for one in sorted(fires.seen, key=lambda one: (one.schedule, one.fire_ms))
        if one.outcome == MADE and one.id not in came | _withdrawn(fires)
    )


def early(fires: Fires, tolerance_ms: int = 0) -> tuple[Fire, ...]:
    """Return the fires of which a message came before their time."""
    at_ms = {one.id: one.fire_ms for one in fires.seen if one.id}
    return tuple(
        Fire(one.schedule, at_ms.get(one.id, one.due_ms), (one.id,))
        for one in fires.messages
        if one.received_ms < at_ms.get(one.id, one.due_ms) - tolerance_ms
    )


def overlapping(fires: Fires) -> tuple[Fire, ...]:
    """Return the messages that came before the one before was acknowledged, of schedules that let none."""
    acknowledged_ms: dict[str, int] = {}
    for one in fires.acknowledged:
        acknowledged_ms.setdefault(one.id, one.at_ms)
    apart = {plan.schedule for plan in fires.planned if plan.apart}
    last: dict[str, str] = {}
    met: set[str] = set()
    found = []
    for message in sorted(fires.messages, key=lambda one: one.received_ms):
        if message.schedule not in apart or message.id in met:
            continue
        met.add(message.id)
        before = last.get(message.schedule)
        if before is not None and message.received_ms < acknowledged_ms.get(before, message.received_ms + 1):
            found.append(Fire(message.schedule, message.due_ms, (before, message.id)))
        last[message.schedule] = message.id
    return tuple(found)


def _absent(plan: PlannedFires, made: Container[tuple[str, int]]) -> list[Fire]:
    """Return the fires of a plan that have no message."""
    times = ((plan.schedule, fire_ms) for fire_ms in plan.times_ms())
    return [Fire(*one) for one in times if one not in made]


def _withdrawn(fires: Fires) -> set[str]:
    """Return the ids of messages of fires that were cancelled before they were due, and that did not come.

    Such an entry of a history names the fire, and no message; the fire may come again as another message.
    """
    came = {one.id for one in fires.messages}
    gone = {(one.schedule, one.fire_ms) for one in fires.seen if one.outcome == WITHDRAWN}
    return {one.id for one in fires.seen if one.id and (one.schedule, one.fire_ms) in gone} - came


def _made(fires: Fires) -> dict[tuple[str, int], set[str]]:
    """Return the ids of the messages of each schedule's fire."""
    made: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    known = {one.id for one in fires.seen}
    withdrawn = _withdrawn(fires)
    for seen in fires.seen:
        if seen.id and seen.outcome not in OF_OTHERS and seen.id not in withdrawn:
            made[seen.schedule, seen.fire_ms].add(seen.id)
    unseen = {(one.due_ms, one.id): one.schedule for one in fires.messages if one.id not in known}
    planned = {plan.schedule: plan.times_ms() for plan in fires.planned}
    late = []
    for (due_ms, message_id), schedule in sorted(unseen.items()):
        if due_ms in planned.get(schedule, ()):
            made[schedule, due_ms].add(message_id)
        else:
            late.append((due_ms, message_id, schedule))
    for due_ms, message_id, schedule in late:
        absent = (at for at in planned.get(schedule, ()) if at < due_ms and (schedule, at) not in made)
        made[schedule, next(absent, due_ms)].add(message_id)
    return dict(made)
