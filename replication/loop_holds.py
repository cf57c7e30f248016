"""Measurement of how long the event loop was held, by what, and when.

While it is held, no heartbeat leaves and no timer runs.

A turn is what the loop does between two waits for the system; its selector tells ``Holds`` of both ends. What
may take long tells of itself: ``with holds.by("status")``, and ``holds.steps("retention", work)`` for what
awaits. Parts may lie within one another: each counts without those within it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tarry.replication.durations import Durations

T = TypeVar("T")

BOUND_S: Final = 0.020
"""No turn is to take longer."""
COUNTED_S: Final = 0.001
"""Shorter turns are in no histogram."""
LONG_S: Final = 0.100
"""A turn that does is told of in the log."""
CAUSES_MAX: Final = 100
OTHER: Final = "other"
"""What no part accounts for."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A turn, and the part that took most of it."""

    cause: str = ""
    held_s: float = 0.0
    cpu_s: float = 0.0
    at_ms: int = 0
    """When it ended, ms since the epoch."""


@dataclass(slots=True)
class Cause:
    """The longest parts of one cause, and how many were too long."""

    held_s: float = 0.0
    cpu_s: float = 0.0
    at_ms: int = 0
    """When the longest by the wall clock ended, ms since the epoch."""
    over_bound: int = 0
    over_long: int = 0
    in_turn_s: float = 0.0
    in_turn_cpu_s: float = 0.0


class Holds:
    """Turns of one event loop. Each turn and part costs readings of two clocks, a message nothing."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Take ``cpu_s`` of the loop's thread: on a busy machine a turn takes longer than it works."""
        self.on_long: Callable[[Hold], None] = lambda hold: None
        self.now_s = now_s
        self.cpu_s = cpu_s
        self._wall_s = wall_s
        self.turns = Durations()
        self.forget()

    def forget(self) -> None:
        """Forget all there was, and the turn that goes on."""
        self.longest = Hold()
        """By the wall clock."""
        self.busiest = Hold()
        """By CPU time."""
        self.over_bound = self.over_long = 0
        self.causes: dict[str, Cause] = {}
        self._of_turn: dict[str, Cause] = {}
        self._began_s = self._began_cpu_s = -1.0  # not within a turn
        self._inner_s = self._inner_cpu_s = 0.0  # of the parts within the one that goes on

    def begin_turn(self) -> None:
        """Begin a turn: the loop has waited."""
        self._began_s, self._began_cpu_s = self.now_s(), self.cpu_s()

    def end_turn(self) -> None:
        """End the turn: the loop is about to wait."""
        if self._began_s < 0:
            return
        held_s, cpu_s = self.now_s() - self._began_s, self.cpu_s() - self._began_cpu_s
        self._began_s = -1.0
        if held_s >= COUNTED_S:
            self.turns.add(held_s)
        if held_s >= BOUND_S or held_s > self.longest.held_s or cpu_s > self.busiest.cpu_s:
            self._note(held_s, cpu_s)
        for cause in self._of_turn.values():
            cause.in_turn_s = cause.in_turn_cpu_s = 0.0
        self._of_turn.clear()
        self._inner_s = self._inner_cpu_s = 0.0

    def by(self, cause: str) -> _Part:
        """Return a context in which the loop is held by the cause; nothing is awaited in it."""
        return _Part(self, cause)

    def steps(self, cause: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return the same work; in each of its steps the loop is held by the cause."""
        return _Steps(self, cause, work)

    def took(self, name: str, held_s: float, cpu_s: float) -> None:
        """Count a part that has ended."""
        known = self.causes.get(name)
        if known is None:
            name = name if len(self.causes) < CAUSES_MAX else OTHER
            known = self.causes.setdefault(name, Cause())
        known.in_turn_s += held_s
        known.in_turn_cpu_s += cpu_s
        self._of_turn[name] = known
        known.cpu_s = max(known.cpu_s, cpu_s)
        if held_s > known.held_s:
            known.held_s, known.at_ms = held_s, int(self._wall_s() * 1000)
        if held_s >= BOUND_S:
            known.over_bound += 1
            known.over_long += held_s >= LONG_S

    def _note(self, held_s: float, cpu_s: float) -> None:
        at_ms, parts = int(self._wall_s() * 1000), self._of_turn
        held = {name: part.in_turn_s for name, part in parts.items()}
        held[OTHER] = held.get(OTHER, 0.0) + held_s - sum(held.values())
        worked = {name: part.in_turn_cpu_s for name, part in parts.items()}
        worked[OTHER] = worked.get(OTHER, 0.0) + cpu_s - sum(worked.values())
        hold = Hold(max(held, key=lambda name: held[name]), held_s, cpu_s, at_ms)
        if held_s > self.longest.held_s:
            self.longest = hold
        if cpu_s > self.busiest.cpu_s:
            self.busiest = Hold(max(worked, key=lambda name: worked[name]), held_s, cpu_s, at_ms)
        self.over_bound += held_s >= BOUND_S
        if held_s >= LONG_S:
            self.over_long += 1
            self.on_long(hold)

    # -- of the parts, which count without those within them

    def enter(self) -> tuple[float, float, float, float]:
        """Begin a part; return what ``leave`` needs."""
        before = self._inner_s, self._inner_cpu_s, self.now_s(), self.cpu_s()
        self._inner_s = self._inner_cpu_s = 0.0
        return before

    def leave(self, cause: str, before: tuple[float, float, float, float]) -> None:
        """End the part that ``enter`` has begun last."""
        inner_s, inner_cpu_s, began_s, began_cpu_s = before
        held_s, cpu_s = self.now_s() - began_s, self.cpu_s() - began_cpu_s
        self.took(cause, held_s - self._inner_s, cpu_s - self._inner_cpu_s)
        self._inner_s, self._inner_cpu_s = inner_s + held_s, inner_cpu_s + cpu_s


class _Part:
    __slots__ = ("_before", "_cause", "_holds")

    def __init__(self, holds: Holds, cause: str) -> None:
        self._holds = holds
        self._cause = cause

    def __enter__(self) -> None:
        self._before = self._holds.enter()

    def __exit__(self, *_: object) -> None:
        self._holds.leave(self._cause, self._before)


class _Steps(Coroutine[Any, Any, T]):
    """A coroutine around another; closed before its first step, so is the other."""

    __slots__ = ("__name__", "__qualname__", "_cause", "_holds", "_work")

    def __init__(self, holds: Holds, cause: str, work: Coroutine[Any, Any, T]) -> None:
        self._holds = holds
        self._cause = cause
        self._work = work
        self.__name__ = self.__qualname__ = cause

    def send(self, value: Any) -> Any:
        """Run a step, measured."""
        before = self._holds.enter()
        try:
            return self._work.send(value)
        finally:
            self._holds.leave(self._cause, before)

    def throw(self, *error: Any) -> Any:
        """Raise an error in the work, measured."""
        before = self._holds.enter()
        try:
            return self._work.throw(*error)
        finally:
            self._holds.leave(self._cause, before)

    def close(self) -> None:
        """Close the work."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __iter__(self) -> _Steps[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)
