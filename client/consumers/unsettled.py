"""Unsettled deliveries of one consumer, its unanswered settlements, its credit. No network, no clock.

received ──► in hand ──verdict──► waiting ──outgoing──► sent ──answered──► done
                ▲                                         │
                └──── subscribed again: what is resumed goes on, the rest is lost ────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from tarry.client.errors import InvalidSubscription, InvalidTime
from tarry.client.integers import whole
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.reasons import Reason

SENT_PER_CREDIT_MAX: Final = 4
"""Verdicts without an answer, per message of credit, above which no credit is due: the cluster is behind."""
SENT_MIN: Final = 4_000


class AckOutcome(StrEnum):
    """Outcome of an ack, nack or extend."""

    OK = "ok"
    STALE = "stale"
    """Not this consumer's any more: its lease was over, or it was acked before. It may come again."""
    UNKNOWN = "unknown"
    """The stream ended before the answer, and the delivery is in hand no more: it counts if it arrived."""


class Verdict(NamedTuple):
    """An ack, nack or extension of messages of a queue; equal verdicts go as one request."""

    queue: int
    nack: bool = False
    delay_ms: int | None = None
    extend_ms: int | None = None
    """Not None: they stay in hand, with a lease of so long from now."""
    dead_letter: bool = False
    """Of a nack: no more attempts, it is a dead letter at once."""
    incarnation: int | None = None
    """Of the cluster as it delivered them; in another one they are stale. None: it is not checked."""
    at_least: bool = False
    """Of a nack's delay: where the group's back-off is longer, that counts."""

    @classmethod
    def nacking(
        cls,
        queue: int,
        delay_ms: int | None,
        *,
        at_least: bool = False,
        dead_letter: bool = False,
        incarnation: int | None = None,
    ) -> Verdict:
        """Return a nack; raises InvalidTime for a delay that no request can carry."""
        if delay_ms is not None:
            delay_ms = whole("delay_ms", delay_ms, InvalidTime, "DELAY_INVALID")
        return cls(
            queue,
            True,
            delay_ms,
            dead_letter=bool(dead_letter),
            incarnation=incarnation,
            at_least=bool(at_least),
        )

    @classmethod
    def extending(cls, queue: int, lease_ms: int, *, incarnation: int | None = None) -> Verdict:
        """Return an extension; raises InvalidSubscription for a lease that no request can carry."""
        extend_ms = whole("lease_ms", lease_ms, InvalidSubscription, Reason.LEASE_INVALID)
        return cls(queue, extend_ms=extend_ms, incarnation=incarnation)


class FailedAcks(NamedTuple):
    """Acknowledgements that nobody waited for and that did not count, or may not have."""

    topic: str
    queue: int
    offsets: tuple[int, ...]
    outcome: AckOutcome
    """STALE or UNKNOWN."""


@dataclass(slots=True)
class _Group:
    """Offsets of one verdict, and the waiters for their outcomes."""

    offsets: list[int] = field(default_factory=list)
    singles: list[tuple[int, asyncio.Future[AckOutcome]]] = field(default_factory=list)
    many: list[tuple[Sequence[int], asyncio.Future[list[AckOutcome]]]] = field(default_factory=list)
    outcomes: dict[int, AckOutcome] = field(default_factory=dict)
    """Of those that are not OK."""

    def resolve(self) -> None:
        """Resolve the waiters; an offset without a noted outcome is OK."""
        outcome = self.outcomes.get
        for offset, single in self.singles:
            if not single.done():
                single.set_result(outcome(offset, AckOutcome.OK))
        for offsets, many in self.many:
            if not many.done():
                many.set_result([outcome(offset, AckOutcome.OK) for offset in offsets])

    def failed_unawaited(self) -> dict[AckOutcome, list[int]]:
        """Return the offsets that are not OK and that nobody waits for, by outcome."""
        awaited = {offset for offset, _ in self.singles}.union(*(offsets for offsets, _ in self.many))
        failed: dict[AckOutcome, list[int]] = {}
        for offset, outcome in self.outcomes.items():
            if offset not in awaited:
                failed.setdefault(outcome, []).append(offset)
        return failed


class Unsettled:
    """Table of one consumer, which may have ``credit`` messages in hand at once."""

    def __init__(self, credit: int) -> None:
        self.on_acked: Callable[[int, list[int]], None] | None = None
        """Told the queue and offsets of acks that counted."""
        self.on_failed: Callable[[int, list[int], AckOutcome], None] | None = None
        """Told the queue and offsets of acks that nobody waits for, and that did not count."""
        self.credit = credit
        self.incarnation = 0
        """Of the cluster that has delivered what is in hand."""
        self.stale = 0
        """Verdicts that came to STALE."""
        self.lost = 0
        """Deliveries that were in hand no more before they were settled."""
        self._in_hand: dict[int, set[int]] = {}
        self._lapsed: dict[int, set[int]] = {}  # of what is in hand, what uses no credit any more
        self._in_hand_count = 0  # without what has lapsed
        self._lost_last: dict[int, set[int]] = {}
        self._server_credit = 0
        self._waiting: dict[Verdict, _Group] = {}
        self._sent: dict[int, tuple[Verdict, _Group]] = {}
        self._sent_count = 0
        self._request = 0

    @property
    def in_hand(self) -> int:
        """Messages received, not yet acked or nacked, and not lapsed."""
        return self._in_hand_count

    @property
    def has_unanswered(self) -> bool:
        """True while verdicts wait to be sent or answered."""
        return bool(self._waiting or self._sent)

    @property
    def owes_credit(self) -> bool:
        """True where the cluster waits, or soon will, for credit to send more."""
        return self._credit_owed() > 0

    def holds(self, queue: int, offset: int) -> bool:
        """Return whether the delivery is in hand."""
        return offset in self._in_hand.get(queue, ())

    def is_of_now(self, verdict: Verdict) -> bool:
        """Return whether its offsets are of what is in hand; else another incarnation has delivered them."""
        return verdict.incarnation is None or verdict.incarnation == self.incarnation

    def among(self, queue: int, offsets: Sequence[int]) -> set[int]:
        """Return which offsets were handed out before and never settled: in hand, or lost the last time.

        What has lapsed is not among them: it is handed out once more.
        """
        held, lost = self._in_hand.get(queue, set()), self._lost_last.get(queue, set())
        known = held.intersection(offsets) | lost.intersection(offsets)
        return known - self._lapsed.get(queue, set())

    def received(self, queue: int, offsets: Sequence[int]) -> None:
        """Take deliveries in hand; each uses one of the credit."""
        held = self._in_hand.setdefault(queue, set())
        if self._lost_last:
            self._lost_last.get(queue, set()).difference_update(offsets)
        before = len(held)
        held.update(offsets)
        self._in_hand_count += len(held) - before + self._take_lapsed(queue, offsets)
        self._server_credit -= len(offsets)

    def settle(self, verdict: Verdict, offset: int, waiter: asyncio.Future[AckOutcome] | None = None) -> None:
        """Give a verdict on one delivery. One that is not in hand is stale at once."""
        held, lost = self._known(verdict)
        if offset not in held:
            self.stale += 1
            lost.discard(offset)
            if waiter is not None:
                waiter.set_result(AckOutcome.STALE)
            else:
                self._resolve(verdict, _Group(outcomes={offset: AckOutcome.STALE}))
            return
        if verdict.extend_ms is None:
            held.remove(offset)
            self._in_hand_count -= 1
            if self._lapsed:
                self._in_hand_count += self._take_lapsed(verdict.queue, (offset,))
        group = self._waiting.get(verdict)
        if group is None:
            group = self._waiting[verdict] = _Group()
        group.offsets.append(offset)
        if waiter is not None:
            group.singles.append((offset, waiter))

    def settle_many(
        self,
        verdict: Verdict,
        offsets: Sequence[int],
        waiter: asyncio.Future[list[AckOutcome]] | None = None,
    ) -> None:
        """Give one verdict on many deliveries of its queue."""
        held, lost = self._known(verdict)
        mine = held.intersection(offsets)
        if verdict.extend_ms is None:
            held -= mine
            self._in_hand_count -= len(mine) - self._take_lapsed(verdict.queue, mine)
        group = self._waiting.setdefault(verdict, _Group()) if mine else _Group()
        group.offsets.extend(mine)
        if len(mine) < len(offsets):
            strange = set(offsets) - mine
            lost.difference_update(strange)
            self.stale += len(strange)
            group.outcomes.update(dict.fromkeys(strange, AckOutcome.STALE))
        if waiter is not None:
            group.many.append((offsets, waiter))
        if not mine:
            self._resolve(verdict, group)

    def _known(self, verdict: Verdict) -> tuple[set[int], set[int]]:
        """Return what of a verdict's queue is in hand, and what was lost the last time."""
        if not self.is_of_now(verdict):
            return set(), set()
        return self._in_hand.get(verdict.queue, set()), self._lost_last.get(verdict.queue, set())

    def outgoing(self) -> list[consumer_pb.ConsumeRequest]:
        """Return the requests to send now: verdicts that wait, and credit."""
        requests = []
        for verdict, group in self._waiting.items():
            self._request += 1
            self._sent[self._request] = (verdict, group)
            self._sent_count += len(group.offsets)
            requests.append(_request(self._request, verdict, group.offsets))
        self._waiting = {}
        owed = self._credit_owed()
        if owed > 0:
            self._server_credit += owed
            requests.append(consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=owed)))
        return requests

    def answered(self, acked: consumer_pb.Acked) -> None:
        """Take the answer to a request of ``outgoing``; an answer to an unknown one is passed over."""
        if acked.request not in self._sent:
            return
        verdict, group = self._sent.pop(acked.request)
        self._sent_count -= len(group.offsets)
        if verdict.extend_ms is None:
            self.stale += len(acked.stale)
        else:
            self.forget(verdict.queue, acked.stale)
        if self.on_acked is not None and not verdict.nack and verdict.extend_ms is None:
            self.on_acked(verdict.queue, [offset for offset in group.offsets if offset not in acked.stale])
        group.outcomes.update(dict.fromkeys(acked.stale, AckOutcome.STALE))
        self._resolve(verdict, group)

    def held(self) -> dict[int, set[int]]:
        """Return what is in hand and has not lapsed, by queue."""
        lapsed = self._lapsed
        return {
            queue: offsets - lapsed.get(queue, set()) for queue, offsets in self._in_hand.items() if offsets
        }

    def lapse(self, queue: int, offsets: Iterable[int]) -> None:
        """Free the credit of deliveries whose leases seem to be over. The cluster knows: they may be settled.

        It may have leased them for longer, as where they were resumed, or are of a group with longer leases.
        More of them than there is credit are forgotten: nobody is going to settle all of those.
        """
        lapsed = self._lapsed.setdefault(queue, set())
        before = len(lapsed)
        lapsed.update(self._in_hand.get(queue, set()).intersection(offsets))
        self._in_hand_count -= len(lapsed) - before
        if sum(map(len, self._lapsed.values())) > self.credit:
            for each, gone in list(self._lapsed.items()):
                self.forget(each, set(gone))

    def _take_lapsed(self, queue: int, offsets: Iterable[int]) -> int:
        """Let offsets count no longer as lapsed; return how many did."""
        lapsed = self._lapsed.get(queue)
        if not lapsed:
            return 0
        before = len(lapsed)
        lapsed.difference_update(offsets)
        if not lapsed:
            del self._lapsed[queue]
        return before - len(lapsed)

    def forget(self, queue: int, offsets: Iterable[int]) -> None:
        """Forget deliveries that are known to be leased no more."""
        held = self._in_hand.get(queue, set())
        gone = held.intersection(offsets)
        held -= gone
        self._in_hand_count -= len(gone) - self._take_lapsed(queue, gone)
        self.lost += len(gone)

    def holding(self) -> list[consumer_pb.Holding]:
        """Return all that is in hand or whose verdict has no answer yet: what Subscribe has to list."""
        offsets = {queue: set(held) for queue, held in self._in_hand.items() if held}
        for verdict, group in [*self._sent.values(), *self._waiting.items()]:
            offsets.setdefault(verdict.queue, set()).update(group.offsets)
        return [consumer_pb.Holding(queue=queue, offset=sorted(held)) for queue, held in offsets.items()]

    def credit_to_start(self) -> int:
        """Return the credit of a new stream: what of it is not in hand."""
        self._server_credit = max(0, self.credit - self._in_hand_count)
        return self._server_credit

    def subscribed(self, resumed: Mapping[int, frozenset[int]]) -> None:
        """Continue on a new stream: keep what is resumed, send its verdicts again; the rest is lost."""
        self._lost_last = {}
        for queue, held in self._in_hand.items():
            gone, lapsed = held - resumed.get(queue, frozenset()), self._lapsed.get(queue, set())
            self._lost_last[queue] = gone - lapsed
            self.forget(queue, gone)
        sent, waiting = self._sent, self._waiting
        self._sent, self._waiting, self._sent_count = {}, {}, 0
        for verdict, group in sent.values():
            self._again(verdict, group, resumed, AckOutcome.UNKNOWN)
        for verdict, group in waiting.items():
            self._again(verdict, group, resumed, AckOutcome.STALE)

    def begin_anew(self, incarnation: int) -> None:
        """Go on in another incarnation of the cluster, where offsets are of other messages.

        To be called behind ``subscribed``, which has kept nothing.
        """
        self.incarnation = incarnation
        self._lost_last = {}

    def abandon(self) -> None:
        """Give every outcome as UNKNOWN, because no stream will follow; a later verdict is STALE."""
        self._in_hand, self._lapsed, self._in_hand_count = {}, {}, 0
        groups = [*self._sent.values(), *self._waiting.items()]
        self._sent, self._waiting, self._sent_count = {}, {}, 0
        for verdict, group in groups:
            group.outcomes.update(dict.fromkeys(group.offsets, AckOutcome.UNKNOWN))
            self._resolve(verdict, group)

    def _resolve(self, verdict: Verdict, group: _Group) -> None:
        group.resolve()
        if self.on_failed is None or verdict.nack or verdict.extend_ms is not None or not group.outcomes:
            return
        for outcome, offsets in group.failed_unawaited().items():
            self.on_failed(verdict.queue, offsets, outcome)

    def _again(
        self, verdict: Verdict, group: _Group, resumed: Mapping[int, frozenset[int]], otherwise: AckOutcome
    ) -> None:
        kept = resumed.get(verdict.queue, frozenset())
        gone = [offset for offset in group.offsets if offset not in kept]
        group.outcomes.update(dict.fromkeys(gone, otherwise))
        group.offsets = [offset for offset in group.offsets if offset in kept]
        if otherwise is AckOutcome.STALE:
            self.stale += len(gone)
        if not group.offsets:
            self._resolve(verdict, group)
            return
        before = self._waiting.setdefault(verdict, group)
        if before is not group:
            before.offsets += group.offsets
            before.singles += group.singles
            before.many += group.many
            before.outcomes |= group.outcomes

    def _credit_owed(self) -> int:
        # Given back in large steps: while the server has more than half left, nothing waits for it.
        if self._server_credit > self.credit // 2:
            return 0
        if self._sent_count > max(SENT_MIN, SENT_PER_CREDIT_MAX * self.credit):
            return 0
        return self.credit - self._in_hand_count - self._server_credit


def _request(request: int, verdict: Verdict, offsets: list[int]) -> consumer_pb.ConsumeRequest:
    if verdict.extend_ms is not None:
        extend = consumer_pb.Extend(
            request=request, queue=verdict.queue, offset=offsets, lease_ms=verdict.extend_ms
        )
        return consumer_pb.ConsumeRequest(extend=extend)
    if verdict.nack:
        nack = consumer_pb.Nack(
            request=request,
            queue=verdict.queue,
            offset=offsets,
            delay_ms=verdict.delay_ms,
            dead_letter=verdict.dead_letter,
            at_least=verdict.at_least,
        )
        return consumer_pb.ConsumeRequest(nack=nack)
    ack = consumer_pb.Ack(request=request, queue=verdict.queue, offset=offsets)
    return consumer_pb.ConsumeRequest(ack=ack)
