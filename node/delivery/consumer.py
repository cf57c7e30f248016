"""A consumer at the leader: its credit, its filter, and what is on the way to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, TypeAlias

from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

OUTGOING_BYTES_MAX: Final = 4 << 20
"""Of one call's answer; its last message may go beyond."""

TAGS_SHOWN: Final = 16
"""Of a filter, where it is told."""
TAG_CHARS_SHOWN: Final = 64
FILTER_CHARS_SHOWN: Final = 256

Selects: TypeAlias = tuple[frozenset[str], str]
"""What a consumer asks for: tags, and the text of a filter by properties; each may be empty."""

ANSWERS_BYTES_MAX: Final = 4 << 20
"""Of what waits for a stream's consumer to read it, behind what is being written."""


@dataclass(eq=False, slots=True)
class Consumer:
    """One consumer stream. The delivery puts responses in, the stream's writer takes them out."""

    name: str
    topic: str
    group: str
    lease_ms: int
    credit: int
    tags: frozenset[str] = frozenset()
    filter: PropertyFilter | None = None
    """By properties."""
    in_hand_bytes_max: int = 64 << 20
    asks_no_lease: bool = False
    """Its lease is that of the group's policy."""
    temporary: bool = False
    """Its group, if it made it, is to be deleted with it."""
    streams: bool = False
    """While a response waits for the one before to be written, nothing more is sent: what becomes due
    goes together with the next."""
    polls: bool = False
    """It takes what is due once and goes again: it never comes back to say what is in flight to it."""
    address: str = ""
    """Of its connection, to be shown."""
    since_ms: int = 0
    """When it was attached."""
    outgoing_bytes: int = 0
    bytes_kept: bool = False
    """What it has in hand has kept messages from it since it was last asked."""
    topics: tuple[str, ...] = ()
    """What its stream has asked for, where that is several topics (many_topics.py)."""
    responses_max: int = 0
    """That wait while one is being written, of a stream."""
    responses_bytes_max: int = 0
    """Of these, behind which another may be put that is larger."""
    ended: Refusal | None = None
    _outgoing: deque[bytes] = field(default_factory=deque)
    _readable: asyncio.Event = field(default_factory=asyncio.Event)
    _throttled: bool = False
    _writer_waits: bool = False  # the next response goes out at once

    @property
    def selects(self) -> Selects:
        """Tags and filter that it asks for, the same for all of its group's consumers."""
        return self.tags, "" if self.filter is None else self.filter.text

    @property
    def told_lease_ms(self) -> int:
        """Lease that its stream is told."""
        return self.lease_ms

    @property
    def free_credit(self) -> int:
        """Messages that it would take beside those in hand."""
        return self.credit

    def use(self, messages: int, size_bytes: int) -> None:
        """Note that it is being sent so many messages, with records of so many bytes."""
        self.credit -= messages

    def note_bytes(self, in_hand: Callable[[str], float]) -> None:
        """Let it ask how many bytes it has in hand of this topic: only one with several topics needs that."""

    def wants(self, in_hand_bytes: float = 0.0) -> int:
        """Return how many messages may be sent now, beside records of so many bytes in hand."""
        self.bytes_kept = in_hand_bytes >= self.in_hand_bytes_max
        if self.bytes_kept:
            return 0
        if self._full():
            self._throttled = True
            return 0
        return 0 if self.ended else self.credit

    def caught_up(self) -> bool:
        """Return (once) that the consumer may be sent more, after it could not."""
        if self._throttled and not self._full():
            self._throttled = False
            return True
        return False

    def _full(self) -> bool:
        if self.streams:
            more = len(self._outgoing) - self._writer_waits
            return more > self.responses_max or (more > 0 and self.outgoing_bytes > self.responses_bytes_max)
        return self.outgoing_bytes >= OUTGOING_BYTES_MAX

    def _behind_bytes(self) -> int:
        return self.outgoing_bytes - len(self._outgoing[0])

    def send(self, response: bytes) -> None:
        """Queue a serialized ConsumeResponse; a stream whose consumer asks and asks and never reads ends."""
        if self.ended is not None:
            return
        if self.streams and self._outgoing and self._behind_bytes() > ANSWERS_BYTES_MAX:
            self.take_all()
            text = (
                f"{ANSWERS_BYTES_MAX} bytes of answers wait to be read: read the stream while writing to it"
            )
            self.end(Refusal(Reason.CONSUMER_TOO_SLOW, text))
            return
        self._outgoing.append(response)
        self.outgoing_bytes += len(response)
        self._readable.set()

    def end(self, refusal: Refusal) -> None:
        """End the stream with this status once the writer comes to it."""
        self.ended = self.ended or refusal
        self._readable.set()

    async def readable(self) -> None:
        """Return once there is a response, or the consumer has been ended."""
        while not self._outgoing and self.ended is None:
            self._readable.clear()
            await self._readable.wait()

    def take_all(self) -> list[bytes]:
        """Return all responses that wait."""
        responses = list(self._outgoing)
        self._outgoing.clear()
        self.outgoing_bytes = 0
        return responses

    async def next_response(self) -> bytes | None:
        """Return the next response to write, None where the stream has been ended."""
        self._writer_waits = True
        await self.readable()
        self._writer_waits = False
        if self.ended is not None:
            return None
        response = self._outgoing.popleft()
        self.outgoing_bytes -= len(response)
        return response


class PolledFilter:
    """Filter of a group's callers: it counts between two calls too, while nobody is attached."""

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self._selects: Selects | None = None
        self._until_ms = 0

    def note(self, consumer: Consumer, now_ms: int) -> None:
        """Note that the consumer is attached, or its call over."""
        if consumer.polls:
            self._selects, self._until_ms = consumer.selects, now_ms + self.lease_ms
        elif consumer.selects != self._selects:
            self._selects = None

    def differs(self, consumer: Consumer, now_ms: int, *, in_flight: bool) -> Refusal | None:
        """Return why the consumer cannot join: another filter is in use, or has messages in flight."""
        used = self._selects
        if used is None or used == consumer.selects or not (in_flight or now_ms < self._until_ms):
            return None
        text = (
            f"the group was received from with {_selects_text(used)}: ask for the same, use another group, "
            f"or wait until all is acknowledged and nobody has called for {self.lease_ms} ms"
        )
        return Refusal(Reason.FILTER_DIFFERS, text)


def differs(consumer: Consumer, others: Iterable[Consumer]) -> Refusal | None:
    """Return why the consumer cannot join the others: members of a group see the same messages."""
    mine = consumer.selects
    for other in others:
        if other.name != consumer.name and (theirs := other.selects) != mine:
            text = f"the group's consumers ask for {_selects_text(theirs)}: do the same, or use another group"
            return Refusal(Reason.FILTER_DIFFERS, text)
    return None


def _selects_text(selects: Selects) -> str:
    tags, text = selects
    by_filter = f" and the filter {shown_filter(text)!r}" if text else ""
    return f"the tags {tags_text(tags)}{by_filter}"


def shown_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the first tags as a terminal may show them, cut: to filter by, any text will do."""
    return tuple(_printable(tag, TAG_CHARS_SHOWN) for tag in nsmallest(TAGS_SHOWN, tags))


def shown_filter(text: str) -> str:
    """Return a filter as a terminal may show it, cut."""
    return _printable(text, FILTER_CHARS_SHOWN)


def tags_text(tags: Collection[str]) -> str:
    """Return the first tags, and how many more there are."""
    more = len(tags) - TAGS_SHOWN
    return f"{[*shown_tags(tags)]}" + (f" and {more} more" if more > 0 else "")


def _printable(whole: str, chars_max: int) -> str:
    text = whole[:chars_max]
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "?" for one in text)
    return text if len(whole) <= chars_max else f"{text[:-1]}…"
