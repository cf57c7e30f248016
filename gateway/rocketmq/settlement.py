"""Settlement: what becomes of deliveries, as consumers say, at the cluster.

Acknowledgements of one consumer that come while others of it are under way share the next request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

from tarry.client.aio import AckOutcome
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import TarryError
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.handle import Holder
from tarry.proto.reasons import Reason

OFFSETS_MAX: Final = 1_000
"""Of a request from which on acknowledgements wait for the one after."""
GONE: Final = (
    Reason.TOPIC_UNKNOWN,
    Reason.GROUP_UNKNOWN,
    Reason.QUEUE_UNKNOWN,
    Reason.OFFSET_NOT_DELIVERED,
)
"""Reasons by which what a receipt names is not there any more, whatever is there by its name now."""

_Outcomes: TypeAlias = dict[int, AckOutcome]
"""By offset."""


@dataclass(slots=True, eq=False)
class _Shared:
    """A request to be made, and its answer for all who share it."""

    offsets: dict[int, None] = field(default_factory=dict)
    answer: asyncio.Future[_Outcomes] = field(default_factory=asyncio.Future)
    callers: int = 0
    until_s: float = 0.0
    """When the last of them waits no longer."""


class Settlement:
    """Settles deliveries by their consumers' names."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[ClusterAccess, Holder], deque[_Shared]] = {}
        """Requests to be made, of each consumer that has one under way."""
        self._working: set[asyncio.Task[None]] = set()

    async def acknowledge(
        self, access: ClusterAccess, holder: Holder, offsets: Sequence[int], timeout_s: float
    ) -> list[AckOutcome]:
        """Acknowledge deliveries; an outcome for each. Raises TarryError, TimeoutError."""
        shared = self._shared(access, holder, offsets)
        shared.callers += 1
        shared.until_s = max(shared.until_s, time.monotonic() + timeout_s)
        try:
            await asyncio.wait({shared.answer}, timeout=timeout_s)
        finally:
            shared.callers -= 1
            if not shared.callers:
                self._leave(access, holder, shared)
        if not shared.answer.done():
            raise TimeoutError
        outcomes = shared.answer.result()
        return [outcomes[offset] for offset in offsets]

    async def settle(
        self,
        access: ClusterAccess,
        holder: Holder,
        verdict: Verdict,
        offsets: Sequence[int],
        timeout_s: float,
    ) -> list[AckOutcome]:
        """Settle deliveries; those of a deleted topic or group are in hand no more, and so STALE.

        Java's and Go's clients settle again, each second and for ever, whatever is answered otherwise.
        Raises TarryError, TimeoutError.
        """
        puller = access.client.puller(holder.topic, holder.group, name=holder.consumer)
        try:
            async with asyncio.timeout(timeout_s):
                return await puller.settle(verdict._replace(incarnation=holder.incarnation), offsets)
        except TarryError as error:
            if error.reason not in GONE:
                raise
            return [AckOutcome.STALE] * len(offsets)

    async def end(self) -> None:
        """Give up what is under way."""
        for shared in chain.from_iterable(self._waiting.values()):
            shared.answer.cancel()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    def _shared(self, access: ClusterAccess, holder: Holder, offsets: Sequence[int]) -> _Shared:
        """Have offsets acknowledged with others; return the request of all of them."""
        waiting = self._waiting.get((access, holder))
        if waiting is None:
            waiting = self._waiting[access, holder] = deque()
            task = asyncio.create_task(self._work(access, holder, waiting))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        if not waiting or len(waiting[-1].offsets) >= OFFSETS_MAX:
            waiting.append(_Shared())
        waiting[-1].offsets.update(dict.fromkeys(offsets))
        return waiting[-1]

    def _leave(self, access: ClusterAccess, holder: Holder, shared: _Shared) -> None:
        """Do not make a request that nobody waits for any more: so what waits is what callers wait for."""
        waiting = self._waiting.get((access, holder))
        if waiting and shared in waiting:
            waiting.remove(shared)

    async def _work(self, access: ClusterAccess, holder: Holder, waiting: deque[_Shared]) -> None:
        """Make one request after another, until none waits."""
        verdict = Verdict(holder.queue)
        try:
            while waiting:
                shared = waiting.popleft()
                offsets = list(shared.offsets)
                try:
                    left_s = shared.until_s - time.monotonic()
                    outcomes = await self.settle(access, holder, verdict, offsets, left_s)
                except asyncio.CancelledError:
                    shared.answer.cancel()
                    raise
                except Exception as error:  # noqa: BLE001 - those who share it tell of it
                    shared.answer.set_exception(error)
                    shared.answer.exception()  # retrieved: it may be that nobody waits for it any more
                else:
                    shared.answer.set_result(dict(zip(offsets, outcomes, strict=True)))
        finally:
            del self._waiting[access, holder]
