"""A consumer with several topics: one stream, one credit, and turns by which its topics have of it.

    group of topic a ── Seat ──┐                 ┌─ wants: what the stream would take, if nobody waits
    group of topic b ── Seat ──┼─► ManyTopics ───┤
    group of topic c ── Seat ──┘                 └─ waits in the next round, until the stream takes more

A group meets its seat as it would a consumer of its own. A topic that has nothing to deliver waits for
nothing, and costs nothing while the others take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tarry.node.delivery.consumer import ANSWERS_BYTES_MAX, Consumer
from tarry.node.delivery.turn_share import TurnShare
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

if TYPE_CHECKING:
    from tarry.node.delivery.group import GroupDelivery

QUANTUM_MESSAGES: Final = 100
"""That a topic may have in its turn of a round, if the credit's even share is less: responses stay full."""
RESPONSES_MAX: Final = 16
"""That wait for the stream's writer: each is of one topic, so topics with a message each need many."""
TURN_SORTED_MAX: Final = 4_000
"""Topics that one turn of the event loop puts in order for a round."""
TURN_LEFT_MAX: Final = 200
"""Groups that are left in one turn of the event loop, at some 0.03 ms each."""


@dataclass(eq=False, slots=True)
class Seat(Consumer):
    """The stream's place in the group of one of its topics."""

    many: ManyTopics = field(kw_only=True)
    delivery: GroupDelivery | None = None
    """Its group, once it has joined."""
    waits: bool = False
    """In this round, or for the next."""
    in_hand_bytes: float = 0.0
    """Of this topic."""

    @property
    def told_lease_ms(self) -> int:
        """The shortest lease of the stream's topics."""
        return self.many.lease_ms

    @property
    def free_credit(self) -> int:
        """Messages that the stream would take, of any of its topics."""
        return self.many.stream.credit

    def wants(self, in_hand_bytes: float = 0.0) -> int:
        """Return how many messages may be sent now; where that is none, the topic waits for its turn."""
        return self.many.wants(self, in_hand_bytes)

    def use(self, messages: int, size_bytes: int) -> None:
        """Note that it is being sent so many messages, with records of so many bytes."""
        self.many.use(self, messages, size_bytes)

    def note_bytes(self, in_hand: Callable[[str], float]) -> None:
        """Note how many bytes it has in hand of this topic."""
        self.many.note_bytes(self, in_hand(self.name))

    def send(self, response: bytes) -> None:
        """Queue a serialized ConsumeResponse."""
        self.many.stream.send(response)

    def end(self, refusal: Refusal) -> None:
        """End the stream; where only the group or its topic is gone, leave that."""
        self.ended = self.ended or refusal
        if refusal.reason is Reason.GROUP_UNKNOWN:
            self.many.forget(self)
        else:
            self.many.stream.end(refusal)


class ManyTopics:
    """The seats of one stream, by topic, and whose turn it is.

    A round has the topics that wait, those first whose next message was due first; each may have as much of
    the credit as the others. Who is pumped while others wait, waits behind them.
    """

    def __init__(self, stream: Consumer, turn: TurnShare, batch_bytes_max: int) -> None:
        """Take how many bytes of records there are in a response: what waits leaves room for answers."""
        stream.responses_max = RESPONSES_MAX
        stream.responses_bytes_max = max(0, ANSWERS_BYTES_MAX // 2 - batch_bytes_max)
        self.stream = stream
        self.seats: dict[str, Seat] = {}
        self.in_hand_bytes = 0.0
        self._turn = turn
        self._round: deque[Seat] = deque()
        self._next: list[Seat] = []
        self._served: Seat | None = None
        self._quantum = 0  # what the one that is served may still have
        self._share = QUANTUM_MESSAGES
        self._serves = False

    @property
    def lease_ms(self) -> int:
        """The shortest lease of all topics: the consumer renews all by it."""
        return min((seat.lease_ms for seat in self.seats.values()), default=self.stream.lease_ms)

    def seat(self, topic: str) -> Seat:
        """Return a seat for a topic, which is yet to be added."""
        stream = self.stream
        return Seat(
            name=stream.name,
            topic=topic,
            group=stream.group,
            lease_ms=stream.lease_ms,
            credit=0,
            tags=stream.tags,
            filter=stream.filter,
            asks_no_lease=stream.asks_no_lease,
            temporary=stream.temporary,
            polls=stream.polls,
            address=stream.address,
            topics=stream.topics,
            many=self,
        )

    def add(self, seat: Seat, delivery: GroupDelivery) -> None:
        """Add a seat in this group, which it is about to join."""
        seat.delivery = delivery
        if seat.asks_no_lease:
            seat.lease_ms = delivery.lease_ms
        self.seats[seat.topic] = seat

    def forget(self, seat: Seat) -> None:
        """Forget a seat whose group is gone, with what was in hand of it."""
        if self.seats.get(seat.topic) is seat:
            del self.seats[seat.topic]
        self.note_bytes(seat, 0.0)

    # -- what the groups ask -------------------------------------------------------------

    def wants(self, seat: Seat, in_hand_bytes: float) -> int:
        """Return how many messages the topic may send now; where that is none, it waits for its turn."""
        self.note_bytes(seat, in_hand_bytes)
        if seat.ended is not None:
            return 0
        others_wait = bool(self._round or self._next) and seat is not self._served
        wants = 0 if others_wait else self.stream.wants(self.in_hand_bytes)
        if seat is self._served:
            wants = min(wants, self._quantum)
        if not wants and not seat.waits:
            seat.waits = True
            self._next.append(seat)
        return wants

    def use(self, seat: Seat, messages: int, size_bytes: int) -> None:
        """Note that messages of the topic are being sent."""
        self.stream.credit -= messages
        seat.in_hand_bytes += size_bytes
        self.in_hand_bytes += size_bytes
        if seat is self._served:
            self._quantum -= messages

    def note_bytes(self, seat: Seat, in_hand_bytes: float) -> None:
        """Note what is in hand of the topic: less of it lets those go on that wait for that."""
        freed = seat.in_hand_bytes - in_hand_bytes
        seat.in_hand_bytes = in_hand_bytes
        self.in_hand_bytes -= freed
        if freed > 0 and self.stream.bytes_kept:
            self.serve_soon()

    # -- turns ---------------------------------------------------------------------------

    def serve_soon(self) -> None:
        """Let those go on that wait, in another turn of the event loop: the stream may take more."""
        if not self._serves and (self._round or self._next):
            self._serves = True
            asyncio.get_running_loop().call_soon(self._turn.do, self._serve)

    def _serve(self) -> None:
        while self._turn.left > 0:
            if not (self._round or self._next) or not self.stream.wants(self.in_hand_bytes):
                self._serves = False
                return
            if not self._round:
                self._begin_round()
                continue  # where that uses up the turn, the first goes on in the next
            seat = self._round.popleft()
            seat.waits = False
            if seat.delivery is not None and seat.ended is None:
                self._served, self._quantum = seat, self._share
                try:
                    seat.delivery.pump()
                finally:
                    self._served = None
        self._turn.do(self._serve)

    def _begin_round(self) -> None:
        self._round.extend(sorted(self._next, key=_due_ms))
        self._turn.spend(len(self._next) / TURN_SORTED_MAX)
        self._next.clear()
        self._share = max(QUANTUM_MESSAGES, -(-self.stream.credit // len(self._round)))

    # -- the end -------------------------------------------------------------------------

    async def leave(self, *, clean: bool) -> list[GroupDelivery]:
        """Leave all groups, so many in each turn of the event loop; return them."""
        left = [seat.delivery for seat in self.seats.values() if seat.delivery is not None]
        seats = list(self.seats.values())
        while seats:
            await self._turn.done(lambda: self._leave_some(seats, clean=clean))
        return left

    def _leave_some(self, seats: list[Seat], *, clean: bool) -> None:
        count = min(len(seats), TURN_LEFT_MAX // 4)
        for _ in range(count):
            seat = seats.pop()
            self.seats.pop(seat.topic, None)
            if seat.delivery is not None:
                seat.delivery.leave(seat, clean=clean)
        self._turn.spend(count / TURN_LEFT_MAX)


def _due_ms(seat: Seat) -> int:
    due_ms = None if seat.delivery is None else seat.delivery.next_due_ms()
    return due_ms or 0  # nothing known waits: its pump costs little
