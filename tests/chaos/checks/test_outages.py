"""After a majority lost its power only what was answered just before is doubted; all else is still found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarry.chaos.checks import deliveries, duplicates, leaders
from tarry.chaos.checks.linearizability import not_linearizable
from tarry.chaos.checks.outages import doubted, forgotten, remembered
from tarry.chaos.history import (
    Answer,
    Asked,
    Cancelled,
    Delivered,
    History,
    NodeSeen,
    Operation,
    Outage,
    Repeated,
    Sent,
)

GROUPS = [("orders", "brisk")]
WALL_MS = 1_000_000
OUTAGE = Outage(5_000, 6_000, WALL_MS)
BEFORE, WITHIN, AFTER = 4_999, 5_000, 6_001


def sent(token: int, answered_mono_ms: int) -> Sent:
    due_ms = WALL_MS + 7_000
    return Sent(
        token, "orders", due_ms, WALL_MS, 0, Answer.ACKNOWLEDGED,
        WALL_MS + answered_mono_ms, answered_mono_ms, f"i{token}", due_ms,
    )  # fmt: skip


def delivered(token: int, at_mono_ms: int, *, due_mono_ms: int = 7_000, offset: int = 0) -> Delivered:
    return Delivered(
        token, "orders", "brisk", f"i{token}", WALL_MS + due_mono_ms, 1, False,
        WALL_MS + at_mono_ms, at_mono_ms, offset=offset,
    )  # fmt: skip


def history(**other: list[object]) -> History:
    return replace(History(outages=[OUTAGE]), **other)  # type: ignore[arg-type]


def test_a_history_without_an_outage_is_as_it_was() -> None:
    plain = History(sent=[sent(1, WITHIN)], delivered=[delivered(1, WITHIN)])
    assert doubted(plain) is plain
    assert remembered(plain) is plain


@pytest.mark.parametrize(("answered_ms", "lost"), [(BEFORE, 1), (WITHIN, 0), (6_000, 0), (AFTER, 1)])
def test_a_message_is_lost_unless_it_was_acknowledged_in_the_outage(answered_ms: int, lost: int) -> None:
    played = history(sent=[sent(1, answered_ms)])
    assert len(deliveries.lost(doubted(played), GROUPS)) == lost
    assert forgotten(played, ("brisk",)) == 1 - lost


def test_what_is_delivered_early_is_found_also_where_its_answer_is_doubted() -> None:
    played = history(sent=[sent(1, WITHIN)], delivered=[delivered(1, 6_500)])
    assert deliveries.early(doubted(played)) == (played.delivered[0],)
    assert forgotten(played, ("brisk",)) == 0


@pytest.mark.parametrize(("answered_ms", "found"), [(BEFORE, 1), (WITHIN, 0), (AFTER, 1)])
def test_a_cancel_holds_unless_it_was_answered_in_the_outage(answered_ms: int, found: int) -> None:
    played = history(
        sent=[sent(1, 10)],
        delivered=[delivered(1, 7_001)],
        cancelled=[Cancelled(1, WALL_MS + answered_ms)],
        operations=[Operation(1, Asked.CANCEL, "cancelled", answered_ms - 1, answered_ms)],
    )
    known = remembered(doubted(played))
    assert len(deliveries.delivered_after_cancel(known)) == found
    assert len(not_linearizable(known)) == found


@pytest.mark.parametrize(("first_ms", "found"), [(BEFORE, 1), (WITHIN, 0), (AFTER, 1)])
def test_a_delivery_repeats_another_unless_that_was_in_the_outage(first_ms: int, found: int) -> None:
    played = history(
        sent=[replace(sent(1, 10), due_ms=WALL_MS + 4_000, acknowledged_due_ms=WALL_MS + 4_000)],
        delivered=[
            delivered(1, first_ms, due_mono_ms=4_000), delivered(1, 8_000, due_mono_ms=4_000, offset=1)
        ],
    )  # fmt: skip
    known = remembered(doubted(played))
    assert len(duplicates.unmarked(known)) == found
    assert len(duplicates.released_twice(known)) == found
    assert len(duplicates.repeats(known, "brisk")) == found


@pytest.mark.parametrize(("seen_ms", "found"), [(BEFORE, 1), (WITHIN, 0), (AFTER, 1)])
def test_replicas_diverge_unless_one_was_seen_in_the_outage(seen_ms: int, found: int) -> None:
    played = history(
        nodes=[NodeSeen("n1", seen_ms, 1, False, 7, "aa"), NodeSeen("n2", 9_000, 2, False, 7, "bb")]
    )
    assert len(leaders.diverged(remembered(played))) == found


@pytest.mark.parametrize(("answered_ms", "found"), [(BEFORE, 1), (WITHIN, 0)])
def test_a_repeated_request_is_answered_the_same_unless_its_answer_is_doubted(
    answered_ms: int, found: int
) -> None:
    played = history(sent=[sent(1, answered_ms)], repeated=[Repeated(1, "i1", "i2")])
    assert len(duplicates.answered_differently(doubted(played))) == found


def test_an_id_is_given_again_only_where_its_message_is_doubted() -> None:
    again = replace(sent(2, 9_000), id="i1")
    assert deliveries.ids_given_twice(doubted(history(sent=[sent(1, WITHIN), again]))) == ()
    assert deliveries.ids_given_twice(doubted(history(sent=[sent(1, BEFORE), again]))) == ("i1",)
