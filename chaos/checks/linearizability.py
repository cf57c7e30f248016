"""Check that each message is a linearizable register: some one order explains all answers and deliveries.

    absent ──schedule──► pending ──release──► released ──deliver──► tried ──deliver──► delivered
                            └─────cancel─────────┴────────────────────┴───► cancelled, no group is given it

Delivered is what a group has had that acknowledges at once; tried, what only RETRYING groups have had, where
it may wait for its retry.
Each call takes effect at one moment between its sending and its answer; one without an answer at any
later moment or never. Nobody sees the release itself: it may come at any moment from a little ahead of the
due time. The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's
memory of what was tried; registers are independent, so each message is searched by itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from tarry.chaos.history import RETRYING, Answer, History

AHEAD_MS = 2_000
"""Greatest time by which a message may be released before it is due: two periods and a commit."""

GONE = ("cancelled", "already_cancelled")
"""The second also of a cancel whose own first answer was lost; the first, at level 1, of a repeated one."""
EFFECTS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("schedule", "absent"): {"pending": ()},
    ("release", "pending"): {"released": ()},
    ("deliver", "released"): {"delivered": ()},
    ("deliver", "tried"): {"delivered": ()},
    ("deliver", "delivered"): {"delivered": ()},
    ("try", "released"): {"tried": ()},
    ("try", "tried"): {"tried": ()},
    ("try", "delivered"): {"delivered": ()},
    ("cancel", "absent"): {"absent": ("not_found",)},
    ("cancel", "pending"): {"cancelled": GONE},
    ("cancel", "cancelled"): {"cancelled": GONE},
    # not cancelled: at level 1; or a leader before may have delivered it, and nobody knows
    ("cancel", "released"): {"cancelled": GONE, "released": ("already_released", "already_delivered")},
    ("cancel", "tried"): {
        "cancelled": GONE,
        "tried": ("already_released", "already_delivered", "already_done"),
    },
    ("cancel", "delivered"): {"delivered": ("already_released", "already_delivered", "already_done")},
    ("get", "absent"): {"absent": ("not_found",)},
    ("get", "pending"): {"pending": ("pending",)},
    ("get", "released"): {"released": ("released",)},
    ("get", "tried"): {"tried": ("released",)},
    ("get", "delivered"): {"delivered": ("released",)},
    ("get", "cancelled"): {"cancelled": ("cancelled",)},
}
"""Operation and state -> each state that may be after it, and the answers with which it is."""


StateT = TypeVar("StateT", bound=Hashable)
StepT = TypeVar("StepT", bound="Step")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that takes effect between two moments; not `certain`: or never."""

    does: str
    outcome: str  # empty: any
    from_ms: float
    to_ms: float
    certain: bool = True


def not_linearizable(history: History, ahead_ms: int = AHEAD_MS) -> tuple[int, ...]:
    """Return the tokens of messages that no single order explains. Times are of the monotonic clock.

    Those that were rescheduled or updated are left to `changes.not_explained`.
    """
    steps: defaultdict[int, list[Step]] = defaultdict(list)
    changed = history.changed()
    for sent in history.sent:
        if sent.answer is Answer.REFUSED or sent.token in changed:
            continue
        known = sent.answer is Answer.ACKNOWLEDGED
        answered_ms = sent.answered_mono_ms if known else math.inf
        steps[sent.token].append(Step("schedule", "", sent.sent_mono_ms, answered_ms, known))
        due_mono_ms = sent.sent_mono_ms + max(0, sent.due_ms - sent.sent_ms)
        steps[sent.token].append(Step("release", "", due_mono_ms - ahead_ms, math.inf, certain=False))
    for asked in history.operations:
        if asked.token in changed:
            continue
        ended_ms = asked.answered_mono_ms
        known = ended_ms is not None
        to_ms = math.inf if ended_ms is None else ended_ms
        steps[asked.token].append(Step(asked.asked, asked.outcome, asked.sent_mono_ms, to_ms, known))
    for delivery in history.first_deliveries().values():
        if delivery.token in changed:
            continue
        at_ms = delivery.received_mono_ms
        does = "try" if delivery.group in RETRYING else "deliver"
        steps[delivery.token].append(Step(does, "", at_ms, at_ms))
    return tuple(
        token for token, of_one in sorted(steps.items()) if not linearizable(of_one, "absent", phases)
    )


def phases(step: Step, phase: str) -> Iterable[str]:
    """Return the phases that may follow one by a step of this outcome."""
    for after, answers in EFFECTS.get((step.does, phase), {}).items():
        if not step.outcome or step.outcome in answers:
            yield after


def linearizable(
    steps: Sequence[StepT], state: StateT, following: Callable[[StepT, StateT], Iterable[StateT]]
) -> bool:
    """Say whether there is an order of the steps that keeps to their times and explains every outcome.

    `following`: the states that may follow one by a step; none where its outcome contradicts the state.
    Which steps are left is a set of bits. Of two ways to one state that have the same certain steps left, the
    one with more of the others left can do all that the other can.
    """
    steps = sorted(steps, key=lambda step: step.to_ms)
    certain = sum(1 << each for each, step in enumerate(steps) if step.certain)
    ways = [(0, 0, (1 << len(steps)) - 1, state)]  # fewer certain steps left first, then more others
    order = count(1)
    seen: defaultdict[tuple[int, StateT], list[int]] = defaultdict(list)
    while ways:
        _, _, left, now = heappop(ways)
        musts, others = left & certain, left & ~certain
        if not musts:
            return True
        if any(others | more == more for more in seen[musts, now]):
            continue
        seen[musts, now].append(others)
        first_end_ms = steps[_lowest(musts)].to_ms
        for each in _distinct(steps, left):
            step = steps[each]
            if step.from_ms <= first_end_ms:
                after = [one for one in following(step, now) if step.certain or one != now]
                still = left & ~(1 << each) & ~_over(steps, others, step.from_ms)
                rank = (still & certain).bit_count() * len(steps) - (still & ~certain).bit_count()
                for one in after:
                    heappush(ways, (rank, next(order), still, one))
    return False


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _distinct(steps: Sequence[Step], left: int) -> Iterator[int]:
    """Give the places of the steps that are left, of equal ones that of the first."""
    given = set[Step]()
    while left:
        each = _lowest(left)
        left &= left - 1
        if steps[each] not in given:
            given.add(steps[each])
            yield each


def _over(steps: Sequence[Step], others: int, from_ms: float) -> int:
    """Return those of the uncertain steps that have not happened if they had to before `from_ms`."""
    over = 0
    while others and steps[each := _lowest(others)].to_ms < from_ms:
        over |= 1 << each
        others &= others - 1
    return over
