"""Detail of the rows of kind ``scheduled`` whose messages schedules that recur have made.

    RECURRING <number> <fire_ms> <before_ms> <name>      a fire; before_ms: the last one before; 0: none
    TRIGGERED <number> <name>                            by TriggerRecurring

A fire whose message was cancelled before it was due, by a pause, may come again, as another message; the
cancel has its row, and the fire before it is then told as the last one before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

RECURRING: Final = "RECURRING"
TRIGGERED: Final = "TRIGGERED"


class FireDetail(NamedTuple):
    """Schedule that made a message, and of which of its fires it is."""

    number: int
    name: str
    fire_ms: int | None
    """None: it was triggered."""
    before_ms: int = 0
    """The last fire before that made a message; 0: none did."""


def detail_of(fire: FireDetail) -> str:
    """Return the detail of a message's row."""
    if fire.fire_ms is None:
        return f"{TRIGGERED} {fire.number} {fire.name}"
    return f"{RECURRING} {fire.number} {fire.fire_ms} {fire.before_ms} {fire.name}"


def fire_in(detail: str | None) -> FireDetail | None:
    """Return what such a detail says; None: it is of another message."""
    match (detail or "").split(" "):
        case ["RECURRING", number, fire_ms, before_ms, name]:
            return FireDetail(int(number), name, int(fire_ms), int(before_ms))
        case ["TRIGGERED", number, name]:
            return FireDetail(int(number), name, None)
        case _:
            return None
