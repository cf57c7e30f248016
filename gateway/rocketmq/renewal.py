"""Renewal: what push consumers have in hand stays invisible while they are there.

A push consumer names no duration. Each delivery to one gets a lease, which is renewed at its half for as long
as the client is there, up to a bound. No gateway remembers more than these: where one ends, its leases end,
and what is not settled by then is delivered again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tarry.client.aio import AckOutcome
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import Refused, TarryError
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.handle import Holder, each_at_once
from tarry.gateway.rocketmq.access import Caller
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Limits
from tarry.gateway.rocketmq.handles import Receipt
from tarry.gateway.rocketmq.presence import Presence
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code

STEP_S: Final = 1.0
"""Between two looks at what is to be renewed."""
STEP_MAX: Final = 2_000
"""Deliveries renewed after one look."""
ATTEMPTS_MAX: Final = 10_000
"""Attempts to receive whose answers are remembered, in case they are made again."""
ATTEMPT_CHARS_MAX: Final = 100


@dataclass(slots=True)
class _Renewed:
    caller: Caller
    next_s: float
    end_s: float


_Due: TypeAlias = dict[tuple[ClusterAccess, Holder], list[tuple[int, _Renewed]]]
"""By token and holder: offsets, and what is known of each."""


class Renewals:
    """Deliveries to push consumers through this gateway that are not settled."""

    def __init__(self, limits: Limits, presence: Presence, clock_s: Callable[[], float]) -> None:
        self._limits, self._presence, self._clock_s = limits, presence, clock_s
        self._period_s = limits.renewed_lease_ms / 2_000
        self._waiting: OrderedDict[tuple[Holder, int], _Renewed] = OrderedDict()  # the next first
        self._answered: OrderedDict[tuple[Caller, str], Sequence[Receipt]] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def check_room(self) -> None:
        """Refuse to deliver more to push consumers than is renewed. Raises Refusal."""
        if len(self._waiting) >= self._limits.renewed_max:
            text = f"push consumers have {len(self._waiting):,} messages in hand, the maximum of a gateway"
            raise Refusal(Code.TOO_MANY_REQUESTS, text)

    def add(self, caller: Caller, attempt_id: str, receipts: Sequence[Receipt]) -> None:
        """Keep deliveries invisible from now on, which have just been leased, and answer an attempt."""
        now_s = self._clock_s()
        end_s = now_s + self._limits.renewed_ms_max / 1_000
        for receipt in receipts:
            renewed = _Renewed(caller, now_s + self._period_s, end_s)
            place = receipt.holder, receipt.offset
            self._waiting.pop(place, None)  # of before it came again: the last is the last
            self._waiting[place] = renewed
        if receipts and 0 < len(attempt_id) <= ATTEMPT_CHARS_MAX:
            self._answered[caller, attempt_id] = receipts
            if len(self._answered) > ATTEMPTS_MAX:
                self._answered.popitem(last=False)

    def taken_back(self, caller: Caller, attempt_id: str) -> list[Receipt]:
        """Return what was answered to an earlier call of an attempt and is not settled; renew it no more.

        A client makes another call with the id of the last where it has not had that one's answer.
        """
        receipts = self._answered.pop((caller, attempt_id), ())
        return [
            receipt
            for receipt in receipts
            if self._waiting.pop((receipt.holder, receipt.offset), None) is not None
        ]

    def drop(self, receipt: Receipt) -> None:
        """Leave a delivery alone: it is settled, or its client has said for how long it needs it."""
        self._waiting.pop((receipt.holder, receipt.offset), None)

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            if not await self.renew():
                await asyncio.sleep(STEP_S)

    async def renew(self) -> bool:
        """Renew what is due for it now. Return whether more is due than one look takes."""
        now_s = self._clock_s()
        chosen, looked_at = self._due(now_s)

        async def extended(key: tuple[ClusterAccess, Holder]) -> bool:
            return await self._extended(*key, chosen[key], now_s)

        answered = await each_at_once(chosen, extended)
        return looked_at == STEP_MAX and all(answered)

    def _due(self, now_s: float) -> tuple[_Due, int]:
        """Return what is to be renewed, by its holder, and how many were due, gone clients' too."""
        chosen: _Due = {}
        for looked_at in range(STEP_MAX):
            key = next(iter(self._waiting), None)
            if key is None or self._waiting[key].next_s > now_s:
                return chosen, looked_at
            renewed = self._waiting.pop(key)
            if renewed.end_s > now_s and self._presence.is_there(renewed.caller):
                holder, offset = key
                chosen.setdefault((renewed.caller[0], holder), []).append((offset, renewed))
                renewed.next_s = now_s + self._period_s
                self._waiting[key] = renewed
        return chosen, STEP_MAX

    async def _extended(
        self, access: ClusterAccess, holder: Holder, listed: list[tuple[int, _Renewed]], now_s: float
    ) -> bool:
        """Renew deliveries to one holder. Return whether the cluster has answered."""
        lease_ms = self._limits.renewed_lease_ms
        verdict = Verdict.extending(holder.queue, lease_ms, incarnation=holder.incarnation)
        puller = access.client.puller(holder.topic, holder.group, name=holder.consumer)
        try:
            outcomes = await puller.settle(verdict, [offset for offset, _ in listed])
        except Refused:
            return True  # once more at the next time: the right may be there again
        except TarryError:  # at the next look, since the lease ends as the next time comes
            for offset, renewed in listed:
                if self._waiting.get((holder, offset)) is renewed:
                    renewed.next_s = now_s
                    self._waiting.move_to_end((holder, offset), last=False)
            return False
        for (offset, renewed), outcome in zip(listed, outcomes, strict=True):
            if outcome is not AckOutcome.OK and self._waiting.get((holder, offset)) is renewed:
                del self._waiting[holder, offset]
        return True
