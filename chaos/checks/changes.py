"""Check messages that were rescheduled or updated: some one order explains all answers and deliveries.

    state: phase of `linearizability`, due time, version of the body

A reschedule gives a pending message another due time, an update another version. A release takes a message
at the due time that it has then; a delivery tells that due time and that version. So a delivery at an old due
time contradicts the answer to the reschedule, and two reschedules that both won by naming one expected due
time contradict each other.

The client repeats a call whose answer was lost: a change takes effect once or more between its sending and
its answer. What became of one without an answer is unknown for good.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tarry.chaos.checks.linearizability import AHEAD_MS, EFFECTS, Step, linearizable
from tarry.chaos.history import CHANGES, RETRYING, Asked, History, Operation, Sent, Sweep

ATTEMPTS_ASSUMED = 2
"""Times that a change may have taken effect, beside that which its answer tells of."""
CLOCK_MS = 200
OVERDUE_MS = 3_000
"""After which a message that still is pending was forgotten."""


class State(NamedTuple):
    """A message; of one that is gone, only the phase counts."""

    phase: str
    due_ms: int = 0
    version: int = 0


GONE = State("cancelled")


@dataclass(frozen=True, slots=True)
class ChangeStep(Step):
    """A step with what it asks for, and what was told of the message (`told_*`: 0, None: nothing)."""

    due_ms: tuple[int, ...] = ()
    """Of a release its due time; of other steps the one asked for, or from which on it looks, and for those
    that it gives instead of a past one: the cluster's now, as answers and deliveries tell."""
    due_to_ms: int = 0
    if_due_ms: int = 0
    version: int = 0
    told_due_ms: int = 0
    told_version: int | None = None

    def tells_of(self, state: State) -> bool:
        """Return whether what was told is so."""
        return self.told_due_ms in (0, state.due_ms) and self.told_version in (None, state.version)

    def covers(self, state: State) -> bool:
        """Return whether a listing or a sweep would have the message, as far as due times decide."""
        before = not self.due_to_ms or state.due_ms < self.due_to_ms
        return state.phase == "pending" and self.due_ms[0] <= state.due_ms and before


def not_explained(history: History, ahead_ms: int = AHEAD_MS, clock_ms: int = CLOCK_MS) -> tuple[int, ...]:
    """Return the tokens of changed messages that no single order explains. Times are monotonic ones.

    `clock_ms`: by which the cluster's now may differ from the clients', at most.
    """
    changed = history.changed()
    asked: defaultdict[int, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.token in changed:
            asked[operation.token].append(operation)
    given: defaultdict[int, list[ChangeStep]] = defaultdict(list)
    for delivery in history.first_deliveries().values():
        if delivery.token in changed:
            gives_back = delivery.gives_back or delivery.group in RETRYING
            does, at_ms = "try" if gives_back else "deliver", delivery.received_mono_ms
            told = {"told_due_ms": delivery.due_ms, "told_version": delivery.version}
            given[delivery.token].append(ChangeStep(does, "", at_ms, at_ms, **told))  # type: ignore[arg-type]
    return tuple(
        sent.token
        for sent in history.acknowledged()
        if sent.token in changed
        and not linearizable(
            _steps(sent, asked[sent.token], given[sent.token], ahead_ms, clock_ms),
            State("absent"),
            _following,
        )
    )


def _steps(
    sent: Sent, asked: Sequence[Operation], given: Sequence[ChangeStep], ahead_ms: int, clock_ms: int
) -> list[ChangeStep]:
    first_ms = sent.acknowledged_due_ms
    told = {one.told_due_ms for one in asked} | {one.told_due_ms for one in given}
    told.discard(0)
    wanted = {one.due_ms for one in asked if one.asked is Asked.RESCHEDULE}
    steps = [ChangeStep("schedule", "", sent.sent_mono_ms, sent.answered_mono_ms, due_ms=(first_ms,)), *given]
    for due_ms in sorted({first_ms} | told | wanted):
        at_ms = sent.sent_mono_ms + due_ms - sent.sent_ms - ahead_ms
        steps.append(ChangeStep("release", "", at_ms, math.inf, certain=False, due_ms=(due_ms,)))
    busy = [(one.sent_mono_ms, _end_ms(one)) for one in asked if one.asked in CHANGES]
    for one in asked:
        begin_ms, end_ms = (
            at_ms + sent.sent_ms - sent.sent_mono_ms for at_ms in (one.sent_mono_ms, _end_ms(one))
        )
        now_ms = sorted(due_ms for due_ms in told if begin_ms - clock_ms <= due_ms <= end_ms + clock_ms)
        step = ChangeStep(
            one.asked, one.outcome, one.sent_mono_ms, _end_ms(one), one.answered_mono_ms is not None,
            (one.due_ms, *now_ms), one.due_to_ms, one.if_due_ms, one.version, one.told_due_ms,
            one.told_version,
        )  # fmt: skip
        if one.asked in CHANGES:
            steps += _of_change(step)
        elif one.asked in (Asked.LIST, Asked.SWEEP):
            meanwhile = any(start <= step.to_ms and end >= step.from_ms for start, end in busy)
            steps += _of_look(step, meanwhile=meanwhile)
        else:
            steps.append(step)
    return steps


def _end_ms(one: Operation) -> float:
    return math.inf if one.answered_mono_ms is None else one.answered_mono_ms


def _of_change(step: ChangeStep) -> list[ChangeStep]:
    maybe = replace(step, outcome="", certain=False, told_due_ms=0)
    return [*([step] if step.certain else []), *[maybe] * ATTEMPTS_ASSUMED]


def _of_look(step: ChangeStep, *, meanwhile: bool) -> list[ChangeStep]:
    """Return a listing or a sweep: what is changed `meanwhile` may be left out of either.

    A sweep cancels what it has looked at before: it may cancel what was moved out of its range since.
    """
    if not meanwhile or step.outcome == "pending":
        return [step]
    return [replace(step, certain=False, due_ms=(0,), due_to_ms=0)] if step.does == Asked.SWEEP else []


def _following(step: ChangeStep, state: State) -> Iterable[State]:
    if step.does == Asked.RESCHEDULE:
        yield from _rescheduled(step, state)
    elif step.does == Asked.UPDATE:
        yield from _updated(step, state)
    elif step.does == Asked.LIST:
        seen = state.phase == "pending" and step.tells_of(state)
        yield from [state] if (seen if step.outcome == "pending" else not step.covers(state)) else []
    elif step.does == Asked.SWEEP:
        yield GONE if step.covers(state) else state
    elif step.does == "schedule":
        yield from (State("pending", due_ms) for due_ms in step.due_ms if state.phase == "absent")
    elif step.does != "release" or step.due_ms[0] == state.due_ms:
        yield from _as_unchanged(step, state)


def _as_unchanged(step: ChangeStep, state: State) -> Iterable[State]:
    if not step.tells_of(state):
        return
    for phase, answers in EFFECTS.get((step.does, state.phase), {}).items():
        if not step.outcome or step.outcome in answers:
            yield GONE if phase == GONE.phase else state._replace(phase=phase)


def _refused(step: ChangeStep, state: State) -> str:
    """Return the outcome of a change that finds no pending message, or one that is due at another time."""
    if state.phase != "pending":
        return {"absent": "not_found", "cancelled": "already_cancelled"}.get(state.phase, "already_released")
    return "due_differs" if step.if_due_ms not in (0, state.due_ms) else ""


def _rescheduled(step: ChangeStep, state: State) -> Iterable[State]:
    if step.outcome == "already_so":
        yield from [state] if state.phase == "pending" and state.due_ms in step.due_ms else []
    elif refused := _refused(step, state):
        yield from [state] if step.outcome == refused and step.tells_of(state) else []
    elif step.outcome in ("", "changed"):
        for due_ms in step.due_ms:
            if due_ms >= step.due_ms[0] and step.told_due_ms in (0, due_ms):
                yield state._replace(due_ms=due_ms)


def _updated(step: ChangeStep, state: State) -> Iterable[State]:
    if step.outcome == "already_so":
        yield from [state] if state.phase == "pending" and state.version == step.version else []
    elif refused := _refused(step, state):
        yield from [state] if step.outcome == refused and step.tells_of(state) else []
    elif step.outcome in ("", "changed"):
        for due_ms in (
            state.due_ms,
            *step.due_ms[1:],
        ):  # that of an overdue message becomes the cluster's now
            if due_ms >= state.due_ms and step.told_due_ms in (0, due_ms):
                yield state._replace(due_ms=due_ms, version=step.version)


def last_looks(history: History) -> dict[int, Operation]:
    """Return the last answered look-up of each message."""
    return {
        one.token: one
        for one in history.operations
        if one.asked is Asked.GET and one.answered_mono_ms is not None
    }


def overdue(history: History, forgotten: Collection[int] = ()) -> tuple[int, ...]:
    """Return the tokens of changed messages that were pending long after they were due, at the last look.

    `forgotten`: tokens of those that the cluster has forgotten since, so that no look has an answer any more.
    """
    changed = history.changed() - set(forgotten)
    ahead_ms = {one.token: one.sent_ms - one.sent_mono_ms for one in history.acknowledged()}
    return tuple(
        token
        for token, look in last_looks(history).items()
        if token in changed
        and look.outcome == "pending"
        and look.told_due_ms + OVERDUE_MS < look.sent_mono_ms + ahead_ms[token]
    )


def miscounted(history: History, forgotten: Collection[int] = ()) -> tuple[Sweep, ...]:
    """Return the cancels of many messages whose counts are not what the messages' states say.

    Counted are all that are cancelled at the end but for those that another cancel may have cancelled, or
    that are `forgotten` since, which may be counted.
    """
    gone = {token for token, look in last_looks(history).items() if look.outcome == "cancelled"}
    cancels: defaultdict[int, set[str]] = defaultdict(set)
    for one in history.operations:
        if one.asked is Asked.CANCEL:
            cancels[one.token].add(one.outcome)
    maybe = {
        token for token, outcomes in cancels.items() if outcomes & {"cancelled", "already_cancelled", ""}
    }
    least, most = gone - maybe - set(forgotten), gone | set(forgotten)
    return tuple(
        sweep
        for sweep in history.sweeps
        if not len(least.intersection(sweep.tokens))
        <= sweep.cancelled
        <= len(most.intersection(sweep.tokens))
        or sweep.matched != sweep.cancelled + sweep.released + sweep.other
    )
