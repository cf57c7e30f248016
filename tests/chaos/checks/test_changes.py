"""The checks of changed messages find each planted violation, and nothing in a history without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarry.chaos.checks import changes, deliveries, linearizability, stuck
from tarry.chaos.history import Answer, Asked, Delivered, History, Operation, Sent, Sweep

AHEAD_MS = 500
WALL_MS = 1_000_000
"""The wall clock is so far ahead of the monotonic one."""
GROUP = "changed"


def sent(due_ms: int = 5_000, token: int = 1) -> Sent:
    return Sent(
        token, "changed", due_ms + WALL_MS, WALL_MS, 0, Answer.ACKNOWLEDGED,
        WALL_MS + 10, 10, f"id-{token}", due_ms + WALL_MS,
    )  # fmt: skip


def delivered(due_ms: int, at_ms: int = 0, version: int = 0) -> Delivered:
    at_ms = at_ms or due_ms + 2
    return Delivered(
        1, "changed", GROUP, "id-1", due_ms + WALL_MS, 1, False, at_ms + WALL_MS, at_ms, version=version,
    )  # fmt: skip


def asked(what: Asked, outcome: str, from_ms: int, to_ms: int | None, **more: Any) -> Operation:
    more = {name: value + WALL_MS if name.endswith("_ms") else value for name, value in more.items()}
    return Operation(1, what, outcome, from_ms, to_ms, **more)


def move(due_ms: int, from_ms: int, *, outcome: str = "changed", told_ms: int = -1, **more: Any) -> Operation:
    """A reschedule that takes 10 ms; without an outcome it has no answer."""
    told = {"told_due_ms": due_ms if told_ms < 0 else told_ms} if outcome and told_ms != 0 else {}
    to_ms = from_ms + 10 if outcome else None
    return asked(Asked.RESCHEDULE, outcome, from_ms, to_ms, due_ms=due_ms, **told, **more)


def update(version: int, from_ms: int, outcome: str = "changed") -> Operation:
    return asked(Asked.UPDATE, outcome, from_ms, from_ms + 10 if outcome else None, version=version)


def get(state: str, from_ms: int, due_ms: int = 0, version: int | None = None) -> Operation:
    told = {"told_due_ms": due_ms} if due_ms else {}
    return asked(Asked.GET, state, from_ms, from_ms + 10, told_version=version, **told)


def cancel(outcome: str, from_ms: int) -> Operation:
    return asked(Asked.CANCEL, outcome, from_ms, from_ms + 10 if outcome else None)


def sweep(from_ms: int, due_ms: int = 0, due_to_ms: int = 9_000) -> Operation:
    return asked(Asked.SWEEP, "done", from_ms, from_ms + 50, due_ms=due_ms, due_to_ms=due_to_ms)


def listing(outcome: str, from_ms: int, told_ms: int = 0, version: int | None = None) -> Operation:
    told = {"told_due_ms": told_ms} if told_ms else {}
    bounds = {"due_ms": 0, "due_to_ms": 9_000}
    return asked(Asked.LIST, outcome, from_ms, from_ms + 10, told_version=version, **bounds, **told)


def wrong(*done: Operation | Delivered) -> bool:
    history = History(sent=[sent()])
    history.delivered = [one for one in done if isinstance(one, Delivered)]
    history.operations = [one for one in done if isinstance(one, Operation)]
    assert linearizability.not_linearizable(history) == ()  # it is left to the other check
    return changes.not_explained(history, AHEAD_MS) == (1,)


@pytest.mark.parametrize(
    "done",
    [
        (move(7_000, 100), delivered(5_000)),  # at its old time
        (move(7_000, 100), delivered(7_000, 5_002)),  # released at its old time, whatever it says
        (move(2_000, 100), delivered(5_000)),  # moved to sooner
        (move(7_000, 100), move(9_000, 200), delivered(7_000)),
        (move(7_000, 100), get("pending", 200, 5_000)),
        (move(7_000, 100, told_ms=6_000),),  # earlier than it was asked for
        (move(7_000, 100, told_ms=8_000),),  # later, though that is not past
        (move(7_000, 100, if_due_ms=5_000), move(8_000, 105, if_due_ms=5_000)),  # two winners
        (move(7_000, 100, if_due_ms=5_000), move(8_000, 200, if_due_ms=5_000)),
        (move(7_000, 100, outcome="due_differs", told_ms=5_000, if_due_ms=5_000),),
        (move(7_000, 100, outcome="due_differs", told_ms=6_000, if_due_ms=4_000),),  # it is not due then
        (move(7_000, 100), move(8_000, 200), move(7_000, 300, outcome="already_so"), delivered(8_000)),
        (move(7_000, 100, outcome="already_released", told_ms=0),),  # long before
        (move(7_000, 100, outcome="already_cancelled", told_ms=0),),  # nobody cancelled it
        (cancel("cancelled", 50), move(7_000, 100, outcome="already_cancelled", told_ms=7_000)),
        (cancel("cancelled", 50), move(7_000, 100)),
        (move(7_000, 100), cancel("cancelled", 200), delivered(7_000)),
        (delivered(5_000), move(7_000, 5_100)),
        (update(1, 100), delivered(5_000)),  # with its old body
        (update(1, 100), update(2, 200), delivered(5_000, version=1)),
        (update(1, 100, "due_differs"), delivered(5_000, version=1)),  # it was not updated
        (update(1, 100), get("pending", 200, 5_000, 0)),
        (listing("absent", 100), move(7_000, 3_000)),  # it is pending all the time
        (listing("pending", 200, 5_000, 0), update(1, 100)),
        (cancel("cancelled", 50), listing("pending", 100, 5_000, 0)),
        (sweep(100), get("pending", 200, 5_000)),
        (sweep(100), delivered(5_000)),
        (move(9_500, 100), sweep(200), get("cancelled", 300)),  # due behind the range
    ],
)
def test_answers_and_deliveries_that_no_order_explains_are_found(
    done: tuple[Operation | Delivered, ...],
) -> None:
    assert wrong(*done)


@pytest.mark.parametrize(
    "done",
    [
        (move(7_000, 100), delivered(7_000)),
        (move(2_000, 100), delivered(2_000)),
        (move(7_000, 100, outcome=""), delivered(5_000)),  # no answer: perhaps never done
        (move(7_000, 100, outcome=""), delivered(7_000)),
        (move(100, 150, told_ms=160), delivered(160, 165)),  # a past due time becomes the cluster's now
        (move(100, 150, outcome=""), delivered(160, 165)),
        (move(7_000, 100), move(8_000, 105), delivered(7_000)),  # at the same time
        (
            move(7_000, 100, if_due_ms=5_000),
            move(8_000, 105, outcome="due_differs", told_ms=7_000, if_due_ms=5_000),
        ),
        # its first answer was lost, and the other came between the client's two attempts
        (
            move(7_000, 100, outcome="due_differs", told_ms=8_000, if_due_ms=5_000),
            move(8_000, 102, if_due_ms=7_000),
        ),
        (move(7_000, 100, outcome="already_so"), move(7_000, 95)),
        (move(7_000, 100, outcome="already_so"), delivered(7_000)),  # by its own first attempt
        (move(7_000, 4_800, outcome="already_released", told_ms=0), delivered(5_000)),
        (cancel("", 50), move(7_000, 100, outcome="already_cancelled", told_ms=0)),
        (update(1, 100), update(2, 105), delivered(5_000, version=1)),
        (update(1, 100, ""), delivered(5_000)),
        (update(1, 100, ""), delivered(5_000, version=1)),
        (  # three attempts of a call, each of which gives what is overdue the time of its own
            asked(Asked.UPDATE, "changed", 4_900, 6_450, version=4, told_due_ms=6_400),
            get("pending", 4_920, 5_000, 4),
            asked(Asked.UPDATE, "changed", 4_910, 5_560, version=5, told_due_ms=5_550),
            get("pending", 5_600, 5_550, 5),
            move(7_000, 6_020, outcome="due_differs", told_ms=6_000, if_due_ms=5_000),
            delivered(6_400, version=4),
        ),
        (listing("absent", 100), move(7_000, 105)),  # it is moved while it is listed
        (listing("pending", 100, 7_000, 0), move(7_000, 105), delivered(7_000)),
        (sweep(100), get("cancelled", 200)),
        (sweep(100), move(7_000, 120), delivered(7_000)),  # it may be left out
        (sweep(100), move(7_000, 120), get("cancelled", 300)),
        (sweep(100), move(9_500, 120), get("cancelled", 300)),  # it was looked at before
        (sweep(100, due_to_ms=4_000), delivered(5_000)),
        (sweep(4_800), delivered(5_000)),
    ],
)  # fmt: skip
def test_answers_and_deliveries_that_some_order_explains_are_not(
    done: tuple[Operation | Delivered, ...],
) -> None:
    assert not wrong(*done)


def test_a_message_that_is_pending_long_after_its_new_time_was_forgotten() -> None:
    history = History(sent=[sent()], operations=[move(6_000, 100), get("pending", 8_990, 6_000)])
    assert changes.overdue(history) == ()
    history.operations.append(get("pending", 9_010, 6_000))
    assert changes.overdue(history) == (1,)
    assert changes.overdue(history, forgotten={1}) == ()
    history.operations.append(get("released", 9_020, 6_000))
    assert changes.overdue(history) == ()


def test_a_cancel_of_many_that_counts_other_than_the_states_say_is_found() -> None:
    def of(token: int, one: Operation) -> Operation:
        return replace(one, token=token)

    history = History(operations=[of(token, get("cancelled", 900)) for token in (1, 2, 3)])
    history.operations += [of(4, get("released", 900, 5_000)), of(3, cancel("cancelled", 100))]
    right = [Sweep((1, 2, 3, 4), cancelled + 1, cancelled, 1, 0) for cancelled in (2, 3)]  # 3 may be counted
    few, many = (Sweep((1, 2, 3, 4), cancelled + 1, cancelled, 1, 0) for cancelled in (1, 4))
    unequal = Sweep((1, 2, 3, 4), 5, 3, 1, 0)
    history.sweeps = [*right, few, many, unequal]
    assert changes.miscounted(history) == (few, many, unequal)
    assert changes.miscounted(history, forgotten={1}) == (many, unequal)
    assert changes.miscounted(history, forgotten={4}) == (few, unequal)


def test_a_moved_message_is_early_or_stuck_by_the_due_time_that_it_was_moved_to() -> None:
    history = History(sent=[sent()], delivered=[delivered(2_000)], operations=[move(2_000, 100)])
    assert deliveries.early(history) == ()
    assert stuck.stuck(history, {GROUP}, 10) == ()
    history.delivered = [delivered(2_000, 1_999)]
    assert deliveries.early(history) == tuple(history.delivered)
    history.delivered = [delivered(2_000, 2_011)]
    assert stuck.stuck(history, {GROUP}, 10) == tuple(history.delivered)
