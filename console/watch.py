"""Looks at the cluster, shared by all pages of one token: one at a time, and none while nobody watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, NamedTuple

from tarry.client.errors import Refused, TarryError, Unavailable
from tarry.client.operators.cluster_operator import Operator
from tarry.client.operators.cluster_status import Answers, ClusterStatus, best_of, released_per_s

EVERY_S: Final = 2.0
"""Time between two looks, and for which the last one is shown to pages that are opened."""
RATE_S_MAX: Final = 10.0
"""A rate over more time would say little of now."""
KEPT_MS: Final = 900_000
"""Of the history."""
KEPT: Final = 1_000
"""Points of it at most."""
LEADERS_KEPT: Final = 100
SECONDS_AHEAD: Final = 3_600


class Point(NamedTuple):
    """A look in figures."""

    at_ms: int
    pending: int
    overdue: int
    released_per_s: int | None
    p50_ms: int | None
    p99_ms: int | None
    """None: not known, or nothing was released."""


class Led(NamedTuple):
    """A leader that was seen."""

    at_ms: int
    """At the first look that had it."""
    leader: str
    """Empty: none was known."""
    term: int


class Look(NamedTuple):
    """The answers of all nodes."""

    answers: Answers
    best: ClusterStatus | None
    """Of the node that leads, or is nearest to it; None: no node answers."""
    rates: dict[str, float]
    """Messages of each topic released a second, since the look before."""
    history: tuple[Point, ...]
    """This look the last."""
    leaders: tuple[Led, ...]
    """The newest last."""


class Watch:
    """The looks of one token."""

    def __init__(self, operator: Callable[[], Operator]) -> None:
        self._operator_of = operator
        self._operator: Operator | None = None
        self._looking = asyncio.Lock()
        self._last: Look | None = None
        self._at_s = 0.0
        self._outdated = False
        self._history: deque[Point] = deque(maxlen=KEPT)
        self._leaders: deque[Led] = deque(maxlen=LEADERS_KEPT)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End all who follow; there are no looks any more."""
        self._ended.set()

    async def ended(self) -> None:
        """End, and return when no look is under way."""
        self.end()
        async with self._looking:
            return

    @property
    def last(self) -> Look | None:
        """The last look; None: there was none."""
        return self._last

    def outdate(self) -> None:
        """Have the next look be a new one: something has changed."""
        self._outdated = True

    async def look(self) -> Look:
        """Return a look that is not older than the time between two.

        Raises Refused where no node answers and one refuses: the token is unknown, or is none and asked for;
        Unavailable after the end.
        """
        async with self._looking:
            if self._ended.is_set():
                raise Unavailable("UNREACHABLE", "the visit has ended: load the page again")
            loop = asyncio.get_running_loop()
            if self._last is None or self._outdated or loop.time() - self._at_s >= EVERY_S:
                passed_s, self._outdated = loop.time() - self._at_s, False
                self._last = await self._new(passed_s < RATE_S_MAX)
                self._at_s = loop.time()
            return self._last

    async def follow(self) -> AsyncIterator[Look]:
        """Yield a look now and whenever there is a new one, until the end. Raises as ``look``."""
        shown: Look | None = None
        while not self._ended.is_set():
            look = await self.look()
            if look is not shown:
                shown = look
                yield look
            wait_s = self._at_s + EVERY_S - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._ended.wait(), max(0.05, wait_s))
            except TimeoutError:
                continue

    async def _new(self, rates_known: bool) -> Look:
        operator = self._operator = self._operator or self._operator_of()
        answers = await operator.status_of_all(seconds_ahead=SECONDS_AHEAD)
        best = best_of(answers)
        if best is None:
            _raise_refusal(answers.values())
            return Look(answers, None, {}, tuple(self._history), tuple(self._leaders))
        before = self._last.best if self._last is not None and rates_known else None
        rates, late = released_per_s(before, best), best.lateness
        rate = None if before is None else round(sum(rates.values()))
        late_ms = (late.p50_ms, late.p99_ms) if late.released else (None, None)
        while self._history and self._history[0].at_ms < best.now_ms - KEPT_MS:
            self._history.popleft()
        self._history.append(Point(best.now_ms, best.pending, best.overdue, rate, *late_ms))
        leader = best.leader if best.lease else ""
        if not self._leaders or self._leaders[-1][1:] != (leader, best.term):
            self._leaders.append(Led(best.now_ms, leader, best.term))
        return Look(answers, best, rates, tuple(self._history), tuple(self._leaders))


def _raise_refusal(answers: Iterable[ClusterStatus | TarryError]) -> None:
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer
