"""Places that one offset of a queue can have in a feed."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

STANDING_CONSUMERS: Final = 2_000
"""Of a group, asked in one turn whether they would take more: some 2 us each."""


class Place(Enum):
    """Place of an offset."""

    ACKNOWLEDGED = auto()
    """The group is done with it in this queue."""
    IN_HAND = auto()
    HELD = auto()
    """An earlier leader has delivered it; its consumer may come back."""
    MARKED = auto()
    """A cancel of it is being committed."""
    MENDING = auto()
    """Its record or its place in the index is damaged."""
    WAITING = auto()
    PARKED = auto()
    """Set aside behind another message of its ordering key."""
    SETTLING = auto()
    """It was in hand, or passed over, and that is being committed."""


class Found(NamedTuple):
    """Place of an offset, and what is known of it there."""

    place: Place
    consumer: str = ""
    until_ms: int = 0
    """End of the lease or of the hold."""
    before: int = 0
    """So many go first: of the feed; where it is parked, of its lane."""
    maybe_delivered: bool = False


class Standing(NamedTuple):
    """Consumers of a group, and what keeps all messages from them."""

    consumers: int = 0
    """Connected."""
    asks: bool = False
    """One of the first STANDING_CONSUMERS would take more."""
    waits_until_ms: int = 0
    """For consumers of the leader before; 0: it does not."""
    rate_opens_ms: int = 0
    """When the delivery rate lets the next go; 0: it does now."""
