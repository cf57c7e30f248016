"""Application of what concerns schedules that recur: their changes, and their fires.

    RecurringCommand ─► the schedule as it is to be; its next fire is to be planned
    FireCommand      ─► of each plan: messages into the wheel, and the schedule's next fire;
                        nothing, where the schedule has changed since the plan was made

Both are in one entry, so no fire is doubled or left out. None is computed here, for zone data differ between
machines: the leader's plan says what fires and what is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.ledger.fires import FireDetail, detail_of
from tarry.proto.reasons import Reason
from tarry.proto.record_times import times
from tarry.replication.state_machine import event_details, keys
from tarry.replication.state_machine.events import Events
from tarry.replication.state_machine.outcomes import Fired, Recurred
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.recurring_table import (
    HISTORY,
    NONE_COMES,
    Entry,
    Schedules,
    size_bytes,
)
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX, Scheduler
from tarry.wheel.state import CancelOutcome, Numbers
from tarry.wheel.wheel import Wheel

FIRED: Final = pb.FIRE_OUTCOME_FIRED
TRIGGERED: Final = pb.FIRE_OUTCOME_TRIGGERED
SKIPPED: Final = pb.FIRE_OUTCOME_SKIPPED
MISSED: Final = pb.FIRE_OUTCOME_MISSED
QUEUED: Final = pb.FIRE_OUTCOME_QUEUED
CANCELLED: Final = pb.FIRE_OUTCOME_CANCELLED
FIRES_MAX: Final = 1 << 32
JITTERED_MAX: Final = 10
"""Entries kept beyond those of the history, of fires that by their jitter are not due yet."""
"""That one entry of a history stands for as it is made; more would be a leader's bug."""
MESSAGES: Final = (FIRED, TRIGGERED)
"""Outcomes that make a message."""
PLANNED: Final = (FIRED, TRIGGERED, SKIPPED, MISSED, QUEUED)


_Ids: TypeAlias = tuple[Numbers, Numbers]
"""Hours and global indices, columns of shape (n,)."""


class _Planned(NamedTuple):
    """A plan that applies, and its place in the command."""

    place: int
    plan: log_pb.SchedulePlan
    entry: Entry
    state: log_pb.RecurringCheckpoint


class Recurring:
    """Applies both commands to the table, and fires to the wheel."""

    def __init__(
        self,
        table: Schedules,
        wheel: Wheel,
        queues: Queues,
        scheduler: Scheduler,
        events: Events,
        keyed: keys.Keyed,
    ) -> None:
        self._table = table
        self._wheel = wheel
        self._queues = queues
        self._scheduler = scheduler
        self._events = events
        self._keyed = keyed

    def apply(self, command: log_pb.RecurringCommand | log_pb.FireCommand) -> Recurred | Fired | Refusal:
        """Apply a command of either kind."""
        return self.change(command) if isinstance(command, log_pb.RecurringCommand) else self.fire(command)

    # -- changes -------------------------------------------------------------------------

    def change(self, command: log_pb.RecurringCommand) -> Recurred | Refusal:
        """Create, change, delete, pause or resume a schedule; or delete some, whose topic goes next."""
        if command.numbers:
            return Recurred(0, changed=self._table.remove_all(self._of_topics(command)) > 0)
        entry = self._table.named(command.name)
        if entry is not None and command.topics and entry.topic not in command.topics:
            text = f"schedule {command.name!r} was moved to another topic just now: try again"
            return Refusal(Reason.OVERLOADED, text, retry_ms=10)
        state = entry.state() if entry is not None else None
        revision = 0 if state is None else state.revision
        if command.HasField("if_revision") and command.if_revision != revision:
            text = f"schedule {command.name!r} has revision {revision}, not {command.if_revision}: look again"
            return Refusal(Reason.RECURRING_CHANGED, text, {"revision": str(revision)})
        if command.change == log_pb.RECURRING_CHANGE_PUT:
            return self._put(command, state)
        if entry is None or state is None:
            return unknown(command.name)
        match command.change:
            case log_pb.RECURRING_CHANGE_DELETE:
                self._undo(state, command.now_ms, every=True)
                self._table.remove(entry)
                return Recurred(entry.number, changed=True)
            case log_pb.RECURRING_CHANGE_PAUSE:
                return self._pause(state, command.now_ms)
            case log_pb.RECURRING_CHANGE_RESUME:
                return self._resume(state, command.now_ms)
            case _:
                return Refusal(Reason.RECURRING_INVALID, f"there is no change {command.change}")

    def _of_topics(self, command: log_pb.RecurringCommand) -> list[int]:
        """Return the numbers that a deletion names; where it names a topic, of what has not left it since."""
        entries = (self._table.numbered(number) for number in command.numbers)
        topics = command.topics
        return [entry.number for entry in entries if entry and (not topics or entry.topic in topics)]

    def _put(
        self, command: log_pb.RecurringCommand, state: log_pb.RecurringCheckpoint | None
    ) -> Recurred | Refusal:
        given = {name: getattr(command, name) for name in ("spec", "record", "tag_mask", "lane")}
        if state is not None and all(getattr(state, name) == value for name, value in given.items()):
            return Recurred(state.number, changed=False)
        if (refusal := self._no_room(command, state)) is not None:
            return refusal
        if state is None:
            self._table.number += 1
            state = log_pb.RecurringCheckpoint(
                number=self._table.number,
                name=command.name,
                paused=command.paused,
                created_ms=command.now_ms,
                decided_ms=command.now_ms,
            )
        elif state.fired_ms > command.now_ms:  # what has come already stays
            self._undo(state, command.now_ms, every=False)
        for name, value in given.items():
            setattr(state, name, value)
        topic = pb.RecurringSpec.FromString(command.spec).topic
        self._queues.of(topic)  # made, so that it counts before it fires
        self._begin_anew(state, command.now_ms)
        return Recurred(state.number, changed=True)

    def _no_room(
        self, command: log_pb.RecurringCommand, state: log_pb.RecurringCheckpoint | None
    ) -> Refusal | None:
        count = len(self._table) + (state is None)
        if command.schedules_max and count > command.schedules_max and state is None:
            text = f"the cluster has {len(self._table)} schedules, and may have {command.schedules_max}"
            text += ": delete some, or raise limits.recurring_max"
            return Refusal(Reason.TOO_MANY_RECURRING, text, {"recurring_max": str(command.schedules_max)})
        grows = size_bytes(command.name, command.spec, command.record)
        grows -= 0 if state is None else size_bytes(state.name, state.spec, state.record)
        if command.bytes_max and grows > 0 and self._table.bytes + grows > command.bytes_max:
            text = f"the cluster's schedules have {self._table.bytes} bytes, and may have {command.bytes_max}"
            text += ": delete some, make their records smaller, or raise limits.recurring_bytes_max"
            return Refusal(Reason.TOO_MANY_RECURRING, text, {"recurring_bytes_max": str(command.bytes_max)})
        return None

    def _pause(self, state: log_pb.RecurringCheckpoint, now_ms: int) -> Recurred:
        if state.paused:
            return Recurred(state.number, changed=False)
        self._undo(state, now_ms, every=True)
        state.paused = True
        self._begin_anew(state, now_ms)
        return Recurred(state.number, changed=True)

    def _resume(self, state: log_pb.RecurringCheckpoint, now_ms: int) -> Recurred:
        if not state.paused:
            return Recurred(state.number, changed=False)
        state.paused = False
        self._begin_anew(state, now_ms)
        return Recurred(state.number, changed=True)

    def _begin_anew(self, state: log_pb.RecurringCheckpoint, now_ms: int) -> None:
        """Let the next fire be planned from now on, behind all that has fired, and store the state."""
        state.revision += 1
        state.changed_ms = now_ms
        if 0 < state.next_ms <= now_ms:  # it has come, and no leader was there to decide it
            _note(state, MISSED, state.next_ms, now_ms)
            state.missed += 1
        state.decided_ms = max(state.decided_ms, now_ms)
        state.next_ms = 0
        if state.waiting_ms:
            _note(state, SKIPPED, state.waiting_ms, now_ms)
            state.skipped += 1
            state.waiting_ms = 0
        self._table.store(state)

    def _undo(self, state: log_pb.RecurringCheckpoint, now_ms: int, *, every: bool) -> None:
        """Cancel the last fire's message where it is pending; a fire yet to come is not decided then.

        ``every``: the messages of earlier fires too, which by their jitter are not due yet.
        """
        fires = [
            (one.fire_ms, one.hour, one.global_index)
            for one in state.history
            if _is_fire(one, state.fired_ms) or (every and _is_jittered(one, state.fired_ms, now_ms))
        ]
        for fire_ms, hour, global_index in reversed(fires):
            if self._is_cancelled_now(hour, global_index, now_ms):
                _note_cancelled(state, fire_ms, (hour, global_index), now_ms)

    def _is_cancelled_now(self, hour: int, global_index: int, now_ms: int) -> bool:
        """Cancel a message; return whether it was pending."""
        places = self._wheel.places_of(np.array([hour], np.uint32), np.array([global_index], np.uint32))
        done = self._wheel.cancel(*places)
        if done.outcomes[0] != CancelOutcome.CANCELLED:
            return False
        if self._events.wanted:
            for event in event_details.cancelled(done, *places, now_ms):
                self._events.add(event)
        return True

    # -- fires ---------------------------------------------------------------------------

    def fire(self, command: log_pb.FireCommand) -> Fired:
        """Apply each plan whose schedule is as the leader saw it."""
        planned = self._applicable(command)
        ids = self._place(planned, command.now_ms)
        last: list[log_pb.FireCheckpoint | None] = [None] * len(command.plans)
        message = 0
        for place, plan, _, state in planned:
            for fire in plan.fires:
                if fire.outcome in MESSAGES:
                    _note_message(state, fire, ids, message, command.now_ms)
                    message += 1
                else:
                    _note_left_out(state, fire, command.now_ms)
            if plan.decided_ms:
                state.decided_ms, state.next_ms = plan.decided_ms, plan.next_ms
            self._table.store(state)
            last[place] = state.history[-1] if plan.fires else log_pb.FireCheckpoint()
        return Fired(tuple(last))

    def _applicable(self, command: log_pb.FireCommand) -> list[_Planned]:
        planned, numbers = [], set()
        for place, plan in enumerate(command.plans):
            entry = self._table.numbered(plan.number)
            if entry is None or entry.changes != plan.changes or plan.number in numbers:
                continue
            state = entry.state()
            if _is_sound(plan, state):
                numbers.add(plan.number)
                planned.append(_Planned(place, plan, entry, state))
        return planned

    def _place(self, planned: Sequence[_Planned], now_ms: int) -> _Ids | None:
        """Put the messages of all plans into the wheel, in order, and return their ids."""
        due_ms, queue, tag_mask, lane, records, details = [], [], [], [], [], []
        timed = times(now_ms, now_ms)  # the cluster is the producer
        for _, plan, entry, state in planned:
            number, before_ms = 0, state.fired_ms
            for fire in plan.fires:
                if fire.outcome not in MESSAGES:
                    continue
                number = number or self._queues.of(entry.topic).queue
                due_ms.append(min(max(fire.due_ms, now_ms), DUE_MS_MAX))
                queue.append(number)
                tag_mask.append(state.tag_mask)
                lane.append(state.lane)
                records.append(state.record + timed)
                fired = fire.outcome == FIRED
                told = FireDetail(entry.number, entry.name, fire.fire_ms if fired else None, before_ms)
                details.append(detail_of(told))
                before_ms = fire.fire_ms if fired else before_ms
        if not records:
            return None
        queues = np.array(queue, np.uint32)
        placed = self._scheduler.place(
            np.array(due_ms, np.int64),
            queues,
            np.array(tag_mask, np.uint64),
            records,
            now_ms,
            lane=np.array(lane, np.uint32) if any(lane) else None,
            detail=details,
        )
        if self._keyed.wanted:
            self._keyed.add(keys.of_records(records), queues, placed.hour, placed.global_index)
        return self._wheel.first_ids_of(placed.hour, placed.global_index)


def fault(command: log_pb.RecurringCommand) -> str:
    """Return why a change cannot be applied, whatever the state is; empty: it can."""
    if command.numbers:
        deletes = command.change == log_pb.RECURRING_CHANGE_DELETE and not command.name
        return "" if deletes else "only a deletion names numbers"
    if not command.name:
        return "the schedule has no name"
    if command.change == log_pb.RECURRING_CHANGE_PUT:
        try:
            topic = pb.RecurringSpec.FromString(command.spec).topic
        except DecodeError:
            return "the specification is none"
        if not topic:
            return "the schedule has no topic"
    return ""


def unknown(name: str) -> Refusal:
    """Return the refusal of a name that no schedule has."""
    return Refusal(
        Reason.RECURRING_UNKNOWN, f"there is no schedule {name!r}, or none that this caller may know of"
    )


def _is_sound(plan: log_pb.SchedulePlan, state: log_pb.RecurringCheckpoint) -> bool:
    """Return whether a plan fires nothing that is decided, in order; another would be a leader's bug."""
    if any(fire.outcome not in PLANNED for fire in plan.fires):
        return False
    if not plan.decided_ms:  # what was triggered leaves the schedule's own fires alone
        return all(fire.outcome == TRIGGERED for fire in plan.fires)
    if plan.decided_ms < state.decided_ms or state.paused:
        return False
    if plan.next_ms not in (0, NONE_COMES) and plan.next_ms <= plan.decided_ms:
        return False
    after_ms = state.decided_ms
    for position, fire in enumerate(plan.fires):
        waited = position == 0 and fire.fire_ms == state.waiting_ms > 0 and fire.outcome == FIRED
        if not waited and not after_ms < fire.fire_ms <= plan.decided_ms:
            return False
        after_ms = max(after_ms, fire.fire_ms)
    return True


def _note_message(
    state: log_pb.RecurringCheckpoint,
    fire: log_pb.PlannedFire,
    ids: _Ids | None,
    message: int,
    now_ms: int,
) -> None:
    assert ids is not None  # there is a message
    hour, global_index = int(ids[0][message]), int(ids[1][message])
    due_ms = min(max(fire.due_ms, now_ms), DUE_MS_MAX)
    triggered = fire.outcome == TRIGGERED
    entry = state.history.add(
        outcome=fire.outcome,
        fire_ms=now_ms if triggered else fire.fire_ms,
        hour=hour,
        global_index=global_index,
        due_ms=max(due_ms, 1),
        decided_ms=now_ms,
    )
    _cut(state, state.fired_ms if triggered else fire.fire_ms)
    state.has_last, state.last_hour, state.last_index, state.last_due_ms = (
        True,
        hour,
        global_index,
        entry.due_ms,
    )
    if triggered:
        state.triggered += 1
        return
    state.fired += 1
    state.fired_before_ms, state.fired_ms = state.fired_ms, fire.fire_ms
    if fire.fire_ms == state.waiting_ms:
        state.waiting_ms = 0


def _note_cancelled(
    state: log_pb.RecurringCheckpoint, fire_ms: int, message: tuple[int, int], now_ms: int
) -> None:
    """Note that a fire's message is cancelled; a fire that is yet to come is not decided any more."""
    _note(state, CANCELLED, fire_ms, now_ms)
    if fire_ms > now_ms:
        state.decided_ms = min(state.decided_ms, fire_ms - 1)
    state.fired -= 1
    if fire_ms == state.fired_ms:
        state.fired_ms = state.fired_before_ms
        state.fired_before_ms = _fired_before(state, state.fired_ms)
    if (state.last_hour, state.last_index) == message:
        state.has_last = False


def _fired_before(state: log_pb.RecurringCheckpoint, fire_ms: int) -> int:
    """Return the last fire before one that the history has and that stands; 0: it has none.

    One that was cancelled may have fired again.
    """
    stand = set[int]()
    for one in state.history:
        if one.outcome == FIRED:
            stand.add(one.fire_ms)
        elif one.outcome == CANCELLED:
            stand.discard(one.fire_ms)
    return max((each for each in stand if each < fire_ms), default=0)


def _note_left_out(state: log_pb.RecurringCheckpoint, fire: log_pb.PlannedFire, now_ms: int) -> None:
    count = min(max(fire.fires, 1), FIRES_MAX)
    if fire.outcome == QUEUED:
        state.waiting_ms = fire.fire_ms
    elif fire.outcome == SKIPPED:
        state.skipped += count
    else:
        state.missed += count
    _note(state, fire.outcome, fire.fire_ms, now_ms, count)


def _note(
    state: log_pb.RecurringCheckpoint, outcome: pb.FireOutcome, fire_ms: int, now_ms: int, fires: int = 1
) -> None:
    """Add to the history; what is left out one after another has one entry."""
    last = state.history[-1] if state.history else None
    if last is not None and last.outcome == outcome and outcome in (SKIPPED, MISSED):
        last.fire_ms, last.decided_ms = max(last.fire_ms, fire_ms), now_ms  # one that waited is the older
        last.fires = min(last.fires + fires, FIRES_MAX)
        return
    state.history.add(outcome=outcome, fire_ms=fire_ms, decided_ms=now_ms, fires=fires)
    _cut(state, state.fired_ms)


def _cut(state: log_pb.RecurringCheckpoint, fired_ms: int) -> None:
    """Forget the oldest entries of too many, but not those of fires that may be cancelled: they name what.

    These are the last fire's, and some of earlier ones that by their jitter are not due yet.
    """
    if len(state.history) <= HISTORY:
        return
    now_ms, old = state.history[-1].decided_ms, range(len(state.history) - 1)
    of_last = [place for place, one in enumerate(state.history) if _is_fire(one, fired_ms)]
    free = [place for place in old if place not in of_last[-1:]]
    due = [place for place in free if not _is_jittered(state.history[place], fired_ms, now_ms)]
    gone = due[: len(state.history) - HISTORY]
    if not gone and len(old) >= HISTORY + JITTERED_MAX:
        gone = free[:1]
    for place in reversed(gone):
        del state.history[place]


def _is_jittered(one: log_pb.FireCheckpoint, fired_ms: int, now_ms: int) -> bool:
    """Return whether an entry is of a fire before the last one that by its jitter is not due yet."""
    return one.outcome == FIRED and one.fire_ms < fired_ms and one.due_ms > now_ms


def _is_fire(one: log_pb.FireCheckpoint, fire_ms: int) -> bool:
    """Return whether an entry is of a fire's message; one that was cancelled and fired again has two."""
    return one.outcome == FIRED and one.fire_ms == fire_ms
