"""Each check on whole runs finds its planted violation, and nothing in a history without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarry.chaos.checks import deliveries, duplicates, failovers, leaders, linearizability, stuck
from tarry.chaos.history import (
    Answer,
    Asked,
    Cancelled,
    Delivered,
    Event,
    History,
    NodeSeen,
    Operation,
    Repeated,
    Sent,
)  # fmt: skip

GROUP = "brisk"


def sent(token: int, *, at_ms: int = 0, due_ms: int = 5_000, key: str = "") -> Sent:
    """The wall clock is a million ahead of the monotonic one."""
    return Sent(
        token, "orders", due_ms + 1_000_000, at_ms + 1_000_000, at_ms, Answer.ACKNOWLEDGED,
        at_ms + 1_000_010, at_ms + 10, f"id-{token}", due_ms + 1_000_000, key=key,
    )  # fmt: skip


def delivered(token: int, *, at_ms: int = 5_002, node: str = "n1", term: int = 1) -> Delivered:
    return Delivered(
        token, "orders", GROUP, f"id-{token}", 1_005_000, 1, False, at_ms + 1_000_000, at_ms,
        consumer="c", queue=1, offset=token, node=node, term=term,
    )  # fmt: skip


def seen(node: str, *, index: int = 7, digest: str = "aa", leads: bool = False, term: int = 1) -> NodeSeen:
    return NodeSeen(node, 0, term, leads, index, digest)


def sound() -> History:
    return History(
        sent=[sent(token) for token in range(4)],
        delivered=[delivered(token) for token in range(4)],
        repeated=[Repeated(1, "id-1", "id-1")],
        nodes=[seen("n1", leads=True), seen("n2"), seen("n3", index=6, digest="bb")],
    )


def test_nothing_is_wrong_with_a_sound_history() -> None:
    history = sound()
    assert duplicates.repeats(history, GROUP) == ()
    assert duplicates.released_twice(history) == ()
    assert duplicates.unmarked(history) == ()
    assert duplicates.answered_differently(history) == ()
    assert linearizability.not_linearizable(history) == ()
    assert leaders.overlapping(history, travel_ms=0) == ()
    assert leaders.two_in_one_term(history) == ()
    assert leaders.diverged(history) == {}
    assert leaders.compared(history) == 1
    assert stuck.stuck(history, {GROUP}, patience_ms=2) == ()
    assert stuck.out_of_order(history) == ()


def test_a_repetition_is_within_its_bound_only_where_the_first_delivery_lay_in_a_window() -> None:
    history = sound()
    again = delivered(2, at_ms=5_900, term=2)
    history.delivered.append(again)
    assert duplicates.repeats(history, GROUP) == (again,)
    assert duplicates.repeats(history, GROUP, [(4_952, 5_002)]) == ()
    assert duplicates.repeats(history, GROUP, [(5_003, 5_053)]) == (again,)
    assert duplicates.repeats(history, "another") == ()


def test_a_repetition_that_does_not_say_so_is_found_whichever_copy_comes_first() -> None:
    history = sound()
    again = delivered(2, at_ms=5_001, term=2)
    history.delivered += [
        again,
        replace(delivered(1, at_ms=5_900, term=2), maybe_duplicate=True),
        replace(delivered(1, at_ms=6_900, term=2), attempt=2),
        replace(delivered(2), group="another"),
    ]
    assert duplicates.unmarked(history) == (again,)
    history.delivered[2] = replace(history.delivered[2], maybe_duplicate=True)  # as a leader may that doubts
    assert duplicates.unmarked(history) == (again,)


def test_one_leader_hands_a_message_over_once_without_a_mark() -> None:
    history = sound()
    history.delivered.insert(0, replace(delivered(2, at_ms=4_900), maybe_duplicate=True))  # overtook it
    assert duplicates.unmarked(history) == ()
    again = delivered(2, at_ms=5_900)
    history.delivered.append(again)
    assert duplicates.unmarked(history) == (again,)


def test_a_message_that_lies_at_two_places_of_its_ready_queue_was_released_twice() -> None:
    history = sound()
    twice = replace(delivered(2), offset=9)
    history.delivered += [
        twice,
        replace(delivered(3), queue=8, offset=1, attempt=2),
    ]  # a retry lies elsewhere
    assert duplicates.released_twice(history) == (twice,)


def test_a_repeated_request_with_another_id_was_scheduled_twice() -> None:
    history = sound()
    history.repeated.append(Repeated(3, "id-3", "id-4"))
    assert duplicates.answered_differently(history) == (3,)


@pytest.mark.parametrize(
    "operations",
    [
        [("cancel", "cancelled", 100, 110)],  # and delivered all the same
        [("get", "cancelled", 100, 110)],  # nobody cancelled it
        [("get", "released", 100, 110)],  # long before it is due
        [("get", "not_found", 100, 110)],  # after it was acknowledged
        [("get", "pending", 5_100, 5_110)],  # after it was delivered
        [("cancel", "already_released", 100, 110)],
        [("cancel", "cancelled", 4_900, 4_910)],  # once it was released, and delivered all the same
        [("cancel", "cancelled", 5_100, 5_110)],  # once it was delivered
        [("cancel", "already_cancelled", 5_100, 5_110)],
        [("cancel", "already_delivered", 100, 110)],  # before it was released
        [("cancel", "already_done", 4_800, 4_810)],  # before anybody had it
        [("get", "released", 4_800, 4_810), ("get", "pending", 4_820, 4_830)],  # back in time
    ],
)
def test_answers_that_no_order_explains_are_found(operations: list[tuple[str, str, int, int]]) -> None:
    history = sound()
    history.operations = [Operation(2, Asked(what), *rest) for what, *rest in operations]  # type: ignore[arg-type]
    assert linearizability.not_linearizable(history, ahead_ms=500) == (2,)


@pytest.mark.parametrize(
    "operations",
    [
        [("get", "pending", 100, 110), ("get", "released", 4_800, 4_810)],
        [("get", "released", 4_800, 4_830), ("get", "pending", 4_810, 4_820)],  # at the same time
        [("cancel", "already_released", 4_800, 4_810)],
        [("cancel", "already_delivered", 4_800, 4_810)],  # a leader before may have delivered it
        [("cancel", "already_delivered", 5_100, 5_110), ("cancel", "already_done", 5_200, 5_210)],
        [("cancel", "", 100, None)],  # no answer: never done, or too late
        [("get", "not_found", 2, 12)],  # before the schedule took effect
    ],
)
def test_answers_that_some_order_explains_are_not(operations: list[tuple[str, str, int, int | None]]) -> None:
    history = sound()
    history.operations = [Operation(2, Asked(what), *rest) for what, *rest in operations]  # type: ignore[arg-type]
    assert linearizability.not_linearizable(history, ahead_ms=500) == ()


def test_a_cancel_without_an_answer_may_have_been_done() -> None:
    history = sound()
    del history.delivered[2]
    history.operations = [
        Operation(2, Asked.CANCEL, "", 100, None),
        Operation(2, Asked.GET, "pending", 200, 210),
        Operation(2, Asked.GET, "cancelled", 300, 310),
    ]
    assert linearizability.not_linearizable(history) == ()
    history.operations.append(Operation(2, Asked.GET, "pending", 400, 410))
    assert linearizability.not_linearizable(history) == (2,)


@pytest.mark.parametrize("outcome", ["cancelled", "already_cancelled"])
def test_a_message_that_is_cancelled_once_it_is_released_comes_to_nobody(outcome: str) -> None:
    history = sound()
    of_two = [one for one in history.delivered if one.token == 2]
    history.delivered = [one for one in history.delivered if one.token != 2]
    history.operations = [
        Operation(2, Asked.GET, "released", 4_800, 4_810),
        Operation(2, Asked.CANCEL, outcome, 4_900, 4_910),
        Operation(2, Asked.GET, "cancelled", 5_200, 5_210),
    ]
    assert linearizability.not_linearizable(history, ahead_ms=500) == ()
    history.delivered.append(replace(of_two[0], attempt=2))  # as a retry
    assert linearizability.not_linearizable(history, ahead_ms=500) == (2,)


def test_what_a_group_gives_back_may_be_cancelled_and_does_not_come_again() -> None:
    history = sound()
    (of_two,) = [one for one in history.delivered if one.token == 2]
    history.delivered = [one for one in history.delivered if one.token != 2]
    history.delivered.append(replace(of_two, group="rough"))
    history.operations = [Operation(2, Asked.CANCEL, "cancelled", 5_100, 5_110)]
    assert linearizability.not_linearizable(history, ahead_ms=500) == ()
    history.cancelled.append(Cancelled(2, of_two.received_ms + 10))
    assert deliveries.delivered_after_cancel(history) == ()
    again = replace(of_two, group="rough", attempt=2, received_ms=of_two.received_ms + 20)
    history.delivered.append(again)
    assert deliveries.delivered_after_cancel(history) == (again,)
    history.delivered[-1] = replace(of_two, received_mono_ms=of_two.received_mono_ms + 500)
    assert linearizability.not_linearizable(history, ahead_ms=500) == (2,)


def test_an_old_leader_that_delivers_beside_its_successor_is_found() -> None:
    history = sound()
    late = delivered(5, at_ms=5_200, node="n1", term=1)
    history.delivered += [delivered(6, at_ms=5_050, node="n2", term=2), late]
    assert leaders.overlapping(history, travel_ms=100) == (late,)
    assert leaders.overlapping(history, travel_ms=150) == ()
    assert leaders.overlapping(history, travel_ms=100, pulling={"another"}) == (late,)
    assert leaders.overlapping(history, travel_ms=100, pulling={late.consumer}) == ()


def test_what_became_due_under_a_successor_has_no_excuse_to_come_from_the_old_leader() -> None:
    history = sound()
    late = replace(delivered(5, at_ms=5_200, node="n1", term=1), due_ms=1_005_100)
    history.delivered += [delivered(6, at_ms=5_050, node="n2", term=2), late]
    assert leaders.overlapping(history, travel_ms=4_000, pulling={late.consumer}) == (late,)
    assert leaders.overlapping(history, travel_ms=4_000, tolerance_ms=50) == ()


def test_two_leaders_in_one_term_are_found_by_what_they_say_and_by_what_they_deliver() -> None:
    history = sound()
    history.nodes.append(seen("n2", leads=True))
    history.delivered.append(delivered(5, node="n3", term=2))
    history.nodes.append(seen("n1", leads=True, term=2))
    assert leaders.two_in_one_term(history) == (1, 2)


def test_replicas_with_different_states_at_one_index_have_diverged() -> None:
    history = sound()
    history.nodes.append(seen("n3", digest="cc"))
    assert leaders.diverged(history) == {7: {"aa": "n1", "cc": "n3"}}


def test_the_last_moments_are_those_of_leaders_that_another_followed() -> None:
    history = sound()
    history.delivered.append(delivered(9, at_ms=5_700, node="n2", term=2))
    assert leaders.last_moments(history, within_ms=50) == [(4_952, 5_002)]
    assert leaders.last_moments(history, within_ms=50, known=[(5_500, 5_600)]) == []


def test_a_change_of_leaders_lasts_until_clients_have_found_the_next_one() -> None:
    history = sound()
    assert leaders.changes(history, recover_ms=1_000) == []
    history.delivered.append(delivered(9, at_ms=5_700, node="n2", term=2))
    assert leaders.changes(history, recover_ms=1_000) == [(5_002, 6_700)]


STARTS = [Event("start", name, 1_000_001, 1) for name in ("n1", "n2", "n3")]
KILL = Event("kill", "n1", 1_005_200, 5_200)


def failed_over(*others: Event, first_ms: int = 5_700, heard_ms: int = 4_500) -> failovers.Failovers:
    """n1 delivered and is killed, n3 goes on; n2 and n3 answer twice a second."""
    history = sound()
    history.delivered.append(delivered(9, at_ms=first_ms, node="n3", term=2))
    history.events = [*STARTS, *others, KILL]
    moments = range(heard_ms, 9_000, 500)
    history.nodes = [NodeSeen(name, at_ms, 1, False, 1, "") for at_ms in moments for name in ("n2", "n3")]
    return failovers.failovers_ms(history)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [Event("kill", "n2", 1_004_000, 4_000), Event("start", "n2", 1_004_100, 4_100)],
        [Event("pause", "n2", 1_005_000, 5_000), Event("resume", "n2", 1_005_199, 5_199)],
        [Event("pause", "n2", 1_005_301, 5_301)],
        [Event("stop", "n1", 1_004_900, 4_900), Event("start", "n1", 1_004_901, 4_901)],
    ],
)
def test_a_failover_is_timed_from_the_kill_of_the_leader_to_its_successor_s_first_delivery(
    others: list[Event],
) -> None:
    assert failed_over(*others) == ([500], [])


@pytest.mark.parametrize(
    ("others", "since_ms"),
    [
        ([Event("kill", "n2", 1_005_000, 5_000), Event("start", "n2", 1_005_100, 5_100)], 5_500),
        ([Event("kill", "n2", 1_005_299, 5_299), Event("start", "n2", 1_006_100, 6_100)], 6_500),
        ([Event("pause", "n2", 1_004_000, 4_000), Event("resume", "n2", 1_006_200, 6_200)], 6_200),
    ],
)
def test_a_failover_that_has_to_wait_for_a_majority_is_timed_from_when_there_is_one(
    others: list[Event], since_ms: int
) -> None:
    assert failed_over(*others, first_ms=7_000) == ([], [7_000 - since_ms])


def test_the_death_of_a_node_that_did_not_deliver_is_no_failover() -> None:
    history = sound()
    history.delivered.append(delivered(9, at_ms=5_700, node="n2", term=2))
    history.events = [*STARTS, Event("kill", "n3", 1_005_100, 5_100)]
    assert failovers.failovers_ms(history) == ([], [])


def test_the_time_without_service_is_the_longest_that_a_schedule_waited_for_any_answer() -> None:
    history = History(sent=[sent(number, at_ms=number * 100) for number in range(4)])
    assert leaders.unavailable_ms(history) == 10
    history.sent.append(replace(sent(9, at_ms=400), answered_mono_ms=1_400))
    history.sent.append(replace(sent(10, at_ms=500), answer=Answer.UNKNOWN, answered_mono_ms=700))
    assert leaders.unavailable_ms(history) == 1_000


def test_what_comes_late_is_stuck_but_for_the_time_in_which_something_was_broken() -> None:
    history = sound()
    late = delivered(2, at_ms=9_000)
    history.delivered[2] = late
    assert stuck.stuck(history, {GROUP}, patience_ms=3_000) == (late,)
    assert stuck.stuck(history, {GROUP}, patience_ms=3_000, disturbed=[(4_000, 6_000)]) == ()
    assert stuck.stuck(history, {GROUP}, patience_ms=3_000, disturbed=[(1_000, 4_900)]) == (late,)
    assert stuck.stuck(history, {"another"}, patience_ms=0) == ()


def test_what_a_frozen_leader_had_delivered_counts_as_of_its_freezing() -> None:
    history = sound()
    history.events = [Event("pause", "n1", 1_005_001, 5_001), Event("resume", "n1", 1_005_600, 5_600)]
    on_its_way = replace(delivered(3, at_ms=5_610), due_ms=1_004_995)
    history.delivered[3] = on_its_way
    history.delivered += [delivered(6, at_ms=5_400, node="n2", term=2)]
    again = delivered(3, at_ms=5_700, node="n2", term=2)
    history.delivered.append(again)
    assert leaders.overlapping(history, travel_ms=100) == ()
    assert duplicates.repeats(history, GROUP) == (again,)
    assert duplicates.repeats(history, GROUP, [(4_950, 5_050)]) == ()
    thawed = replace(on_its_way, due_ms=1_005_300)  # it became due meanwhile: the lease was over
    history.delivered[3] = thawed
    assert leaders.overlapping(history, travel_ms=100) == (thawed,)
    assert duplicates.repeats(history, GROUP, [(4_950, 5_050)]) == (again,)


def test_a_key_whose_later_message_came_first_is_out_of_order() -> None:
    history = History(
        sent=[sent(1, due_ms=5_000, key="k"), sent(2, due_ms=5_100, key="k"), sent(3, due_ms=5_200)],
        delivered=[delivered(3, at_ms=5_050), delivered(2, at_ms=5_101), delivered(1, at_ms=5_102)],
    )
    assert stuck.out_of_order(history) == (history.delivered[1],)
    assert stuck.out_of_order(history, ahead_ms=5_100) == ()  # the earlier one was sent too late to tell
    history.cancelled.append(Cancelled(1, 1_000_100, certain=False))
    assert stuck.out_of_order(history) == ()
    history.cancelled.clear()
    history.delivered[2] = delivered(1, at_ms=5_001)
    assert stuck.out_of_order(history) == ()


def test_a_key_whose_earlier_message_never_came_is_out_of_order() -> None:
    history = History(
        sent=[sent(1, due_ms=5_000, key="k"), sent(2, due_ms=5_100, key="k")],
        delivered=[delivered(2, at_ms=5_101)],
    )
    assert stuck.out_of_order(history) == (history.delivered[0],)
