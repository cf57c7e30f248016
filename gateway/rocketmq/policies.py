"""Policies: how often, and after which waits, a group's messages are delivered, as push consumers are told.

The cluster's counts, whatever they are told: they name a wait with each failure, and repeat messages on their
own only in groups in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tarry.client.aio import Client, Exponential
from tarry.client.errors import NotFound, TarryError
from tarry.client.operators.group_policy import BackOff, PolicyOptions
from tarry.client.settings import Settings

KEPT_S: Final = 30.0
KEPT_MAX: Final = 10_000
ANSWER_S: Final = 1.0
"""Within which a policy is known; a client waits for its settings meanwhile."""
ASKED_MAX: Final = 16
"""Questions at once; who waits longer than an answer may take is told the usual policy."""
WAITS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Policy:
    """Deliveries of a message in all, and the waits behind each."""

    attempts_max: int = 16
    back_off_ms: tuple[int, ...] = (
        1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000
    )  # fmt: skip


USUAL: Final = Policy()
"""The one that nodes have by default: for a group whose policy may not be asked for, or comes too late."""


def waits_of(back_off: BackOff) -> tuple[int, ...]:
    """Return the waits of a back-off one by one, the last of which repeats."""
    match back_off:
        case int():
            return (back_off,)
        case Exponential():
            waits = [min(back_off.first_ms, back_off.max_ms)]
            while waits[-1] < back_off.max_ms and len(waits) < WAITS_MAX and back_off.factor > 1:
                waits.append(min(back_off.max_ms, math.ceil(waits[-1] * back_off.factor)))
            return tuple(waits)
        case _:
            return tuple(back_off[:WAITS_MAX]) or USUAL.back_off_ms


class Policies:
    """Asks the cluster for policies with the gateway's own token, and keeps them for a while."""

    def __init__(self, settings: Settings, clock_s: Callable[[], float]) -> None:
        self._client = Client(replace(settings, deadline_ms=int(ANSWER_S * 1_000)))
        self._clock_s = clock_s
        self._gate = asyncio.Semaphore(ASKED_MAX)
        self._kept: OrderedDict[tuple[str, str], tuple[float, Policy]] = OrderedDict()  # the oldest first

    async def of(self, topic: str, group: str) -> Policy:
        """Return the policy of a group; the usual one where it cannot be known in time."""
        known = self._kept.get((topic, group))
        if known is not None and self._clock_s() - known[0] < KEPT_S:
            return known[1]
        try:
            async with asyncio.timeout(ANSWER_S), self._gate:
                told = await self._told(topic, group)
            policy = Policy(
                told.get("attempts_max", USUAL.attempts_max),
                waits_of(told.get("back_off", USUAL.back_off_ms)),
            )
        except (TarryError, TimeoutError):
            policy = USUAL
        self._kept[topic, group] = self._clock_s(), policy
        self._kept.move_to_end((topic, group))
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return policy

    async def _told(self, topic: str, group: str) -> PolicyOptions:
        """Return a group's policy; of one that is not there yet, the one that it will have."""
        operator = self._client.operator()
        with contextlib.suppress(NotFound):
            return (await operator.describe_group(topic, group)).policy
        with contextlib.suppress(NotFound):
            return (await operator.describe_topic(topic)).policy
        return (await operator.describe_cluster()).settings

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()
