"""Handles: what of a received message an ack, nack or extension has to name, as one opaque text.

A handle names topic, group, consumer, queue, the cluster's incarnation, and offset. It is not signed, because
it gives no right: nodes check the caller's token, and that the consumer has the delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarry.gateway.handle import Holder, are_in_range, decoded, encoded
from tarry.gateway.http import strict_json

CHARACTERS_MAX: Final = 1_024
_VERSION: Final = "m1"


@dataclass(frozen=True, slots=True)
class Handle:
    """A delivery to a consumer."""

    holder: Holder
    offset: int

    def __str__(self) -> str:
        holder = self.holder
        fields = [holder.topic, holder.group, holder.consumer, holder.queue, holder.incarnation, self.offset]
        return encoded(_VERSION, strict_json.serialize(fields))


def parse(text: str) -> Handle:
    """Return the handle of its text. Raises ValueError."""
    version, _, content = text.partition(".")
    if version != _VERSION or len(text) > CHARACTERS_MAX:
        raise ValueError("it is no handle of a message")
    try:
        fields = strict_json.parse(decoded(content))
    except ValueError:
        raise ValueError("it is no handle of a message, or not the whole of it") from None
    match fields:
        case [str(topic), str(group), str(consumer), int(queue), int(incarnation), int(offset)]:
            names = all(name.isascii() and name for name in (topic, group, consumer))
            if names and are_in_range(queue, incarnation, offset):
                return Handle(Holder(topic, group, consumer, queue, incarnation), offset)
    raise ValueError("it is no handle of a message")
