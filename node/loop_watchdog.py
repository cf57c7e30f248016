"""Reports of turns of the event loop that took too long, in the log and in a node's status."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from tarry.proto import tarry_operator_pb2 as pb
from tarry.replication.loop_holds import Hold, Holds

log = structlog.get_logger()

TELL_S: Final = 10.0
"""One is told of in such a time, with how many there were."""
CAUSES_TOLD_MAX: Final = 20


class LongHolds:
    """Writes long turns to the log, at a bounded rate."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._told_s = -TELL_S
        self._untold = 0

    def log(self, hold: Hold) -> None:
        """Log a long turn, or only count it if one was logged lately."""
        if self._now_s() - self._told_s < TELL_S:
            self._untold += 1
            return
        log.warning(
            "event loop held",
            cause=hold.cause,
            held_ms=round(hold.held_s * 1000),
            cpu_ms=round(hold.cpu_s * 1000),
            untold=self._untold,
        )
        self._told_s, self._untold = self._now_s(), 0


class Collections:
    """Among ``gc.callbacks``: collections of all generations are a part of the turn in which they happen."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._thread = threading.get_ident()
        self._before = (0.0, 0.0, 0.0, 0.0)

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] < 2 or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._before = self._holds.enter()
        else:
            self._holds.leave("garbage collection", self._before)


def turns(holds: Holds) -> pb.TurnStatus:
    """Return what a status says of them."""
    causes = sorted(holds.causes.items(), key=lambda item: item[1].held_s, reverse=True)
    return pb.TurnStatus(
        longest=_hold(holds.longest),
        busiest=_hold(holds.busiest),
        over_20_ms=holds.over_bound,
        over_100_ms=holds.over_long,
        causes=[
            _hold(Hold(name, cause.held_s, cause.cpu_s, cause.at_ms))
            for name, cause in causes[:CAUSES_TOLD_MAX]
        ],
    )


def _hold(hold: Hold) -> pb.Hold:
    return pb.Hold(
        cause=hold.cause,
        held_us=max(0, round(hold.held_s * 1e6)),
        cpu_us=max(0, round(hold.cpu_s * 1e6)),
        at_ms=hold.at_ms,
    )
