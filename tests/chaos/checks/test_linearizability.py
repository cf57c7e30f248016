"""The search for an order says what trying every order says, and ends where many answers are lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.chaos.checks.linearizability import Step, linearizable

MOMENTS = st.integers(0, 6)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A write, a compare-and-set or a read of a small number; any of them may have no answer."""
    does = draw(st.sampled_from(("write", "set", "read")))
    value, before, at = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(MOMENTS)
    outcome = f"{before}>{value}" if does == "set" else str(value)
    certain = draw(st.booleans())
    to = at + draw(MOMENTS) if certain or draw(st.booleans()) else math.inf
    return Step(does, outcome, at, to, certain)


def following(step: Step, state: str) -> Iterable[str]:
    if step.does == "read":
        yield from [state] if step.outcome == state else []
    elif step.does == "write":
        yield step.outcome
    else:
        before, after = step.outcome.split(">")
        yield from [after] if state == before else []


def in_order(order: Sequence[Step]) -> bool:
    state = "0"
    for n, step in enumerate(order):
        if any(later.to_ms < step.from_ms for later in order[n + 1 :]):
            return False
        after = list(following(step, state))
        if not after:
            return False
        (state,) = after
    return True


def explained(history: Sequence[Step]) -> bool:
    """Try every order of all certain steps and any of the others."""
    everyone = range(len(history))
    return any(
        in_order([history[each] for each in order])
        for size in range(len(history) + 1)
        for order in permutations(everyone, size)
        if all(each in order for each in everyone if history[each].certain)
    )


@settings(max_examples=400, deadline=None)
@given(st.lists(steps(), max_size=5))
def test_the_search_says_what_trying_every_order_says(history: list[Step]) -> None:
    assert linearizable(history, "0", following) == explained(history)


def test_steps_without_an_answer_do_not_multiply_the_ways() -> None:
    asked = 0

    def counted(step: Step, state: str) -> Iterable[str]:
        nonlocal asked
        asked += 1
        return following(step, state)

    history = [Step("write", str(n // 2), n // 2, math.inf, False) for n in range(40)]
    history += [Step("read", str(n), 50 + n, 50 + n) for n in (3, 2, 9)]
    assert linearizable(history, "0", counted)
    assert not linearizable([*history, Step("read", "none of them", 60, 60)], "0", counted)
    assert asked < 5_000
