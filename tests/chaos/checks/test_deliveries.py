"""Each check finds its planted violation, and nothing in a history without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarry.chaos.checks import deliveries, duplicates, stuck
from tarry.chaos.history import Answer, Cancelled, Delivered, History, Sent

SOUND_GROUPS = [("orders", "mailer")]


def sent(token: int, *, due_ms: int = 5_000) -> Sent:
    return Sent(
        token=token,
        topic="orders",
        due_ms=due_ms,
        sent_ms=1_000,
        sent_mono_ms=0,
        answer=Answer.ACKNOWLEDGED,
        answered_ms=1_010,
        answered_mono_ms=10,
        id=f"id-{token}",
        acknowledged_due_ms=due_ms,
    )


def delivered(token: int, *, at_ms: int = 5_002) -> Delivered:
    return Delivered(
        token=token,
        topic="orders",
        group="mailer",
        id=f"id-{token}",
        due_ms=5_000,
        attempt=1,
        maybe_duplicate=False,
        received_ms=at_ms,
        received_mono_ms=at_ms - 1_000,
    )


def sound() -> History:
    return History(
        sent=[sent(token) for token in range(5)], delivered=[delivered(token) for token in range(5)]
    )


def test_nothing_is_wrong_with_a_sound_history() -> None:
    history = sound()
    assert deliveries.lost(history, SOUND_GROUPS) == ()
    assert deliveries.early(history) == ()
    assert history.later_deliveries() == ()
    assert duplicates.unmarked(history) == ()
    assert deliveries.delivered_after_cancel(history) == ()
    assert deliveries.unexpected(history) == ()
    assert deliveries.ids_given_twice(history) == ()
    assert stuck.stuck(history, {"mailer"}, patience_ms=100) == ()


def test_an_acknowledged_message_that_never_came_is_lost() -> None:
    history = sound()
    del history.delivered[3]
    assert deliveries.lost(history, SOUND_GROUPS) == (("mailer", history.sent[3]),)


def test_a_group_that_got_nothing_lost_everything() -> None:
    history = sound()
    assert len(deliveries.lost(history, [*SOUND_GROUPS, ("orders", "audit")])) == 5


@pytest.mark.parametrize("answer", [Answer.UNKNOWN, Answer.REFUSED])
def test_what_was_not_acknowledged_cannot_be_lost(answer: Answer) -> None:
    history = sound()
    history.sent.append(replace(sent(9), answer=answer))
    assert deliveries.lost(history, SOUND_GROUPS) == ()


def test_a_cancelled_message_is_not_lost() -> None:
    history = sound()
    del history.delivered[3]
    history.cancelled.append(Cancelled(3, answered_ms=2_000))
    assert deliveries.lost(history, SOUND_GROUPS) == ()


def test_a_delivery_one_millisecond_before_its_due_time_is_early() -> None:
    history = sound()
    history.delivered[2] = delivered(2, at_ms=4_999)
    assert deliveries.early(history) == (history.delivered[2],)
    assert deliveries.early(history, tolerance_ms=1) == ()


def test_a_delivery_at_its_due_time_is_not_early() -> None:
    history = sound()
    history.delivered[2] = delivered(2, at_ms=5_000)
    assert deliveries.early(history) == ()


def test_a_delivery_before_the_due_time_that_the_server_answered_is_early() -> None:
    history = sound()
    history.sent[2] = replace(history.sent[2], acknowledged_due_ms=5_010)
    assert deliveries.early(history) == (history.delivered[2],)


def test_a_wall_clock_that_jumped_forward_does_not_hide_an_early_delivery() -> None:
    history = sound()
    history.delivered[2] = replace(history.delivered[2], received_mono_ms=100)
    assert deliveries.early(history) == (history.delivered[2],)


def test_an_early_delivery_of_a_message_with_no_answer_is_found() -> None:
    history = sound()
    history.sent[2] = replace(history.sent[2], answer=Answer.UNKNOWN, acknowledged_due_ms=0)
    history.delivered[2] = delivered(2, at_ms=4_000)
    assert deliveries.early(history) == (history.delivered[2],)


def test_a_second_delivery_is_a_duplicate() -> None:
    history = sound()
    again = delivered(1, at_ms=5_040)
    history.delivered.insert(0, again)  # recorded first, received last
    assert history.later_deliveries() == (again,)
    assert len(duplicates.unmarked(history)) == 1


@pytest.mark.parametrize("mark", [{"attempt": 2}, {"maybe_duplicate": True}])
def test_a_marked_duplicate_is_counted_but_not_unmarked(mark: dict[str, int]) -> None:
    history = sound()
    history.delivered.append(replace(delivered(1, at_ms=5_040), **mark))  # type: ignore[arg-type]
    assert len(history.later_deliveries()) == 1
    assert duplicates.unmarked(history) == ()


def test_the_same_message_in_two_groups_is_no_duplicate() -> None:
    history = sound()
    history.delivered.append(replace(delivered(1), group="audit"))
    assert history.later_deliveries() == ()


def test_a_delivery_of_a_cancelled_message_is_found_even_before_the_cancel_was_answered() -> None:
    history = sound()
    history.cancelled.append(Cancelled(4, answered_ms=9_000))
    assert deliveries.delivered_after_cancel(history) == (history.delivered[4],)


def test_a_cancel_without_an_answer_allows_both() -> None:
    history = sound()
    del history.delivered[3]
    history.cancelled += [Cancelled(3, 2_000, certain=False), Cancelled(4, 2_000, certain=False)]
    assert deliveries.lost(history, SOUND_GROUPS) == ()
    assert deliveries.delivered_after_cancel(history) == ()


def test_what_nobody_sent_is_unexpected() -> None:
    history = sound()
    history.delivered.append(delivered(77))
    assert deliveries.unexpected(history) == (history.delivered[-1],)


def test_what_was_refused_is_unexpected_when_it_comes() -> None:
    history = sound()
    history.sent[0] = replace(history.sent[0], answer=Answer.REFUSED)
    assert deliveries.unexpected(history) == (history.delivered[0],)


def test_a_message_on_another_topic_is_unexpected() -> None:
    history = sound()
    history.delivered[0] = replace(history.delivered[0], topic="payments")
    assert deliveries.unexpected(history) == (history.delivered[0],)


def test_one_id_for_two_messages_is_found() -> None:
    history = sound()
    history.sent[1] = replace(history.sent[1], id="id-0")
    assert deliveries.ids_given_twice(history) == ("id-0",)


def test_a_message_that_came_too_late_was_stuck() -> None:
    history = sound()
    history.delivered[2] = delivered(2, at_ms=5_101)
    assert stuck.stuck(history, {"mailer"}, patience_ms=100) == (history.delivered[2],)


def test_a_message_overdue_on_arrival_is_stuck_only_from_its_acknowledgement_on() -> None:
    history = History(sent=[sent(0, due_ms=0)], delivered=[delivered(0, at_ms=1_050)])
    assert stuck.stuck(history, {"mailer"}, patience_ms=100) == ()
    assert stuck.stuck(history, {"mailer"}, patience_ms=30) == tuple(history.delivered)


def test_lateness_counts_from_the_answered_due_time() -> None:
    history = sound()
    history.delivered[4] = delivered(4, at_ms=5_060)
    assert deliveries.lateness(history) == deliveries.Lateness(count=5, p50_ms=2, p99_ms=60, max_ms=60)


def test_lateness_leaves_out_what_was_due_before_its_acknowledgement() -> None:
    history = sound()
    history.sent[0] = sent(0, due_ms=1_009)
    assert deliveries.lateness(history).count == 4


def test_lateness_outside_a_span_leaves_out_what_was_due_in_it() -> None:
    history = sound()
    history.sent[4] = sent(4, due_ms=6_000)
    history.delivered[4] = delivered(4, at_ms=6_400)
    assert deliveries.lateness(history).max_ms == 400
    assert deliveries.lateness(history, outside=[(6_000, 7_000)]) == deliveries.Lateness(4, 2, 2, 2)
    assert deliveries.lateness(history, outside=[(6_001, 7_000)]).count == 5


def test_lateness_of_nothing_is_zero() -> None:
    assert deliveries.lateness(History()) == deliveries.Lateness(0, 0, 0, 0)


def test_a_percentile_is_one_of_the_values() -> None:
    assert [deliveries.percentile([10, 20, 30, 40], percent) for percent in (0, 25, 50, 51, 99, 100)] == [
        10,
        10,
        20,
        30,
        40,
        40,
    ]
    with pytest.raises(ValueError, match="no values"):
        deliveries.percentile([], 50)


def test_an_outage_lasts_until_something_sent_in_it_is_acknowledged() -> None:
    history = sound()
    history.sent[3] = replace(history.sent[3], sent_mono_ms=500, answered_mono_ms=900)
    history.sent[4] = replace(history.sent[4], sent_mono_ms=600, answered_mono_ms=800)
    assert deliveries.outage_ms(history, since_mono_ms=400) == 400
    assert deliveries.outage_ms(history, since_mono_ms=700) is None
