"""Plan of one schedule that recurs: what fires now, what is left out, what is next.

Pure: state, timing and time in, a SchedulePlan out. The leader proposes it (`fires.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

import google_crc32c

from tarry.node.recurring.timing import Timing
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.recurring_table import NONE_COMES

AHEAD_MS: Final = 500
"""So much earlier than due a fire becomes a message, so that the commit does not make it late."""
MISSED_AFTER_MS: Final = 60_000
"""Of schedules that say nothing."""
FIRES_MAX: Final = 64
"""Entries of one plan; the next goes on."""
WORKED_MAX: Final = 500
"""Fires that are worked out for one plan, at some 10 us of a cron expression's."""
BYTES_MAX: Final = 1 << 20
"""Of the records of one plan's messages, a lone one aside: applying copies each."""


class Look(NamedTuple):
    """Result of a look at a schedule."""

    plan: log_pb.SchedulePlan | None
    """None: nothing is to be done now."""
    again_ms: int | None = None
    """When to look again where there is no plan; None: once the schedule has changed."""
    needs_settled: bool = False
    """There is no plan, since it is not known whether the last message is settled."""
    worked: int = 0
    """Fires that were worked out."""
    size_bytes: int = 0
    """Of the records of the plan's messages."""


def look(
    state: log_pb.RecurringCheckpoint,
    spec: pb.RecurringSpec,
    timing: Timing,
    now_ms: int,
    *,
    settled: bool | None,
) -> Look:
    """Return what is to be done about a schedule now.

    ``settled``: every group is done with its last message; None: not known.
    """
    if state.paused or (state.next_ms == NONE_COMES and not state.waiting_ms):
        return Look(None)
    if settled is None and not state.has_last:
        settled = True
    allows = spec.overlap in (pb.OVERLAP_POLICY_UNSPECIFIED, pb.OVERLAP_POLICY_ALLOW)
    planning = _Planning(state, spec, timing, now_ms, settled=None if allows else settled, allows=allows)
    return planning.looked(_Peeked(_fires(state, timing)))


def _fires(state: log_pb.RecurringCheckpoint, timing: Timing) -> Iterator[int]:
    """Yield the fires that are not decided; the first as it was promised, whatever the zone's rules are."""
    if state.next_ms == NONE_COMES:
        return iter(())
    if state.next_ms:
        return chain((state.next_ms,), timing.fires(state.next_ms))
    return timing.fires(state.decided_ms)


def jitter_ms(number: int, fire_ms: int, most_ms: int) -> int:
    """Return by how much later a fire's message is due, 0 to a most: for the same fire always the same."""
    seed = int(google_crc32c.value(struct.pack("<Qq", number, fire_ms)))
    return seed * (most_ms + 1) >> 32


class _Peeked:
    """Fires in order, of which the first is looked at before it is taken."""

    def __init__(self, fires: Iterator[int]) -> None:
        self._fires = fires
        self.first = next(fires, None)

    def take(self) -> None:
        self.first = next(self._fires, None)


class _Planning:
    """The making of one plan."""

    def __init__(
        self,
        state: log_pb.RecurringCheckpoint,
        spec: pb.RecurringSpec,
        timing: Timing,
        now_ms: int,
        *,
        settled: bool | None,
        allows: bool,
    ) -> None:
        self._state, self._spec, self._timing, self._now_ms = state, spec, timing, now_ms
        self._settled, self._allows = settled, allows
        self._waiting = bool(state.waiting_ms)
        self._size_bytes = 0
        self._due_ms = now_ms - (spec.missed_after_ms or MISSED_AFTER_MS)
        """What fires earlier is missed."""
        self._plan = log_pb.SchedulePlan(
            number=state.number, changes=state.changes, decided_ms=max(state.decided_ms, 1)
        )

    def looked(self, fires: _Peeked) -> Look:
        again_ms: int | None = None
        worked = 0
        if self._waiting:
            if self._settled is None:
                return Look(None, needs_settled=True)
            if self._settled:
                self._fire(self._state.waiting_ms, fires.first)
                self._waiting = False
        fires = self._leapt(fires)
        for _ in range(WORKED_MAX):
            fire_ms = fires.first
            if fire_ms is None or fire_ms > self._now_ms + AHEAD_MS or self._is_full():
                break
            if not self._allows and self._settled is None:
                if self._plan.fires:
                    break
                return Look(None, needs_settled=True)
            if not self._allows and not self._settled and fire_ms > self._now_ms:
                again_ms = fire_ms  # until then it may be settled
                break
            fires.take()
            worked += 1
            self._decide(fire_ms, fires.first)
        self._plan.next_ms = NONE_COMES if fires.first is None else fires.first
        if not self._plan.fires and self._plan.next_ms == self._state.next_ms:
            return Look(None, fires.first if again_ms is None else again_ms)
        return Look(self._plan, worked=worked, size_bytes=self._size_bytes)

    def _is_full(self) -> bool:
        """Return whether the plan takes no more."""
        more_bytes = self._size_bytes + len(self._state.record) if self._size_bytes else 0
        return len(self._plan.fires) >= FIRES_MAX or more_bytes > BYTES_MAX

    def _leapt(self, fires: _Peeked) -> _Peeked:
        """Leave out at once what an interval has missed, however long nobody led; return the other fires."""
        first_ms, interval_ms = fires.first, self._timing.interval_ms
        if first_ms is None or not interval_ms or self._spec.missed == pb.MISSED_POLICY_ALL:
            return fires
        until_ms = min(self._due_ms, self._timing.end_ms or self._due_ms)
        count = -((first_ms - until_ms) // interval_ms)  # of fires earlier than that
        count -= self._spec.missed != pb.MISSED_POLICY_NONE  # the last of them fires
        last_ms = first_ms + (count - 1) * interval_ms
        if count < FIRES_MAX or self._timing.after(last_ms - 1) != last_ms:
            return fires
        self._plan.decided_ms = max(self._plan.decided_ms, last_ms)
        self._leave_out(pb.FIRE_OUTCOME_MISSED, last_ms, count)
        return _Peeked(self._timing.fires(last_ms))

    def _decide(self, fire_ms: int, next_ms: int | None) -> None:
        """Decide what becomes of a fire."""
        self._plan.decided_ms = max(self._plan.decided_ms, fire_ms)
        if self._is_missed(fire_ms, next_ms):
            self._leave_out(pb.FIRE_OUTCOME_MISSED, fire_ms)
        elif self._allows or (self._settled and not self._waiting):
            self._fire(fire_ms, next_ms)
        elif self._spec.overlap == pb.OVERLAP_POLICY_QUEUE and not self._waiting:
            self._plan.fires.add(outcome=pb.FIRE_OUTCOME_QUEUED, fire_ms=fire_ms)
            self._waiting = True
        else:
            self._leave_out(pb.FIRE_OUTCOME_SKIPPED, fire_ms)

    def _is_missed(self, fire_ms: int, next_ms: int | None) -> bool:
        """Return whether a fire is missed and does not fire."""
        if fire_ms >= self._due_ms or self._spec.missed == pb.MISSED_POLICY_ALL:
            return False
        return self._spec.missed == pb.MISSED_POLICY_NONE or (next_ms is not None and next_ms < self._due_ms)

    def _fire(self, fire_ms: int, next_ms: int | None) -> None:
        most_ms = self._spec.jitter_ms
        if next_ms is not None:
            most_ms = max(0, min(most_ms, next_ms - fire_ms - 1))
        due_ms = fire_ms + jitter_ms(self._state.number, fire_ms, most_ms)
        self._plan.fires.add(outcome=pb.FIRE_OUTCOME_FIRED, fire_ms=fire_ms, due_ms=due_ms)
        self._size_bytes += len(self._state.record)
        self._settled = False

    def _leave_out(self, outcome: pb.FireOutcome, fire_ms: int, count: int = 1) -> None:
        last = self._plan.fires[-1] if self._plan.fires else None
        if last is not None and last.outcome == outcome:
            last.fire_ms = fire_ms
            last.fires += count
        else:
            self._plan.fires.add(outcome=outcome, fire_ms=fire_ms, fires=count)
