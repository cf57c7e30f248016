"""A group, whatever happens to it: nothing is lost, nothing is in two places, and keys keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.delivery import waiting_messages
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.group import TURN_ENDS_MAX
from tarry.node.delivery.settlement import ANSWERS_PIECE
from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.group_in_process import GROUP, OVER, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play, rest
from tests.simulation.checker import Violation
from tests.simulation.whole_world import check_places


async def drain(group: Group) -> None:
    """Take and acknowledge everything that is left; nothing may be stuck."""
    group.disk.delay_s = min(group.disk.delay_s, 0.001)
    for name in "ab":
        group.leave(name, clean=True)
    group.join("last", credit=1_000)
    for _ in range(400):
        await pass_ms(group, 25)
        group.settle_first("last", 1_000, nack=False)
        await group.settle()
        await group.commit()
        if all(place[0] in ("done", "dead") for place in group.places().values()):
            return
    raise AssertionError(f"stuck: {group.places()}, {group.machine.queues.blocked}")


names = st.sampled_from("ab")
step = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from(["", "k", "k", "l"]), st.integers(0, 120)),
    st.tuples(st.just("schedule"), st.sampled_from(["k", "l"]), st.integers(0, 3)),
    st.tuples(st.just("ack"), names, st.integers(1, 3)),
    st.tuples(st.just("ack"), names, st.integers(1, 3)),
    st.tuples(st.just("nack"), names, st.integers(1, 2)),
    st.tuples(st.just("forget"), names, st.integers(1, 2)),
    st.tuples(st.just("commit"), st.integers(1, 9)),
    st.tuples(st.just("commit"), st.integers(1, 9)),
    st.tuples(st.just("pass"), st.sampled_from([1, 20, 100, 1_100])),
    st.tuples(st.just("join"), names),
    st.tuples(st.just("credit"), names, st.integers(1, 4)),
    st.tuples(st.just("leave"), names, st.booleans()),
    st.tuples(st.just("heartbeat")),
    st.tuples(st.just("cold"), st.booleans(), st.sampled_from([0, 1, 30, 500])),
    st.tuples(st.just("rest"), st.booleans()),
    st.tuples(st.just("failover"), st.integers(0, 3)),
    st.tuples(st.just("forgetful failover"), st.integers(0, 3)),
)


async def take(  # noqa: PLR0912 - a table
    group: Group, done: tuple, heard: list[log_pb.Cursor], acked: set[str]
) -> None:
    match done:
        case ("schedule", key, delay_ms):
            group.schedule(key, delay_ms)
        case ("ack", name, count):
            acked.update(group.settle_first(name, count, nack=False))
        case ("nack", name, count):
            group.settle_first(name, count, nack=True)
        case ("forget", name, count):
            held = group.hands[name].held
            for place in list(held)[:count]:
                del held[place]
        case ("commit", count):
            await group.commit(count)
        case ("pass", ms):
            await pass_ms(group, ms)
        case ("join", name):
            group.join(name)
        case ("credit", name, messages):
            group.add_credit(name, messages)
        case ("leave", name, clean):
            group.leave(name, clean=clean)
        case ("heartbeat",):
            heard[:] = group.cursors()
        case ("cold", evicts, delay_ms):
            group.disk.cold, group.disk.evicts, group.disk.delay_s = True, evicts, delay_ms / 1_000
        case ("rest", clean):
            await rest(group, clean=clean)
        case ("failover", committed):
            await group.fail_over(committed, heard)
        case ("forgetful failover", committed):
            queues = group.machine.queues
            marks = [
                log_pb.Cursor(group=g, queue=q, doubtful=queues[q].units) for g, q in queues.acknowledged
            ]
            await group.fail_over(committed, marks)


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=40))
def test_every_message_is_acknowledged_once_or_in_exactly_one_place_and_keys_keep_their_order(
    steps: list[tuple],
) -> None:
    keep_places_and_order(steps)


def keep_places_and_order(steps: list[tuple], ahead_ms: int = 50) -> None:
    """Play the steps, and look after each."""

    async def steps_of(group: Group) -> None:
        group.ahead_ms = ahead_ms
        heard: list[log_pb.Cursor] = []
        acked: set[str] = set()
        group.join("a")
        for done in steps:
            await take(group, done, heard, acked)
            await group.settle()
            places = group.places()
            assert all(len(found) == 1 for found in places.values()), places
            assert {label for label, found in places.items() if found == ["done"]} <= acked
        await drain(group)
        given = {one.label for one in group.given}
        assert given == {label for *_, label in group.scheduled}
        assert not group.machine.queues.blocked

    play(steps_of)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=40))
def test_keys_keep_their_order_also_where_one_lane_is_opened_or_closed_in_a_turn(steps: list[tuple]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HELD_PIECE", "UNPARKED_PIECE"):
            patch.setattr(f"tarry.node.delivery.feed.{name}", 1)
        keep_places_and_order(steps)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), st.lists(step, max_size=40))
def test_keys_keep_their_order_also_where_there_is_room_for_few_that_were_given_back(
    window: int, steps: list[tuple]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, most in (("HELD_PIECE", 1), ("WINDOW", window), ("WAITING_MAX", 2 * window)):
            patch.setattr(f"tarry.node.delivery.feed.{name}", most)
        # what is scheduled later and due earlier is sorted where it waits, if there is room
        keep_places_and_order(steps, ahead_ms=0)


def test_what_is_given_back_without_room_goes_out_though_nothing_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, most in (("HELD_PIECE", 2), ("WINDOW", 2)):
        monkeypatch.setattr(f"tarry.node.delivery.feed.{name}", most)

    async def steps_of(group: Group) -> None:
        for key in ("", "k", "l") * 3:
            group.schedule(key, 0)
        group.join("a", credit=9)
        await pass_ms(group, 100)
        out = [one.label for one in group.given]
        assert len(out) == 5
        group.leave("a", clean=True)
        group.join("b", credit=5)
        await pass_ms(group, 100)
        assert [(one.label, one.maybe_duplicate) for one in group.given[5:]] == [(one, True) for one in out]

    play(steps_of)


def test_consumers_that_leave_together_have_what_they_give_back_sorted_over_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, leaving = 100, 30
    monkeypatch.setattr("tarry.node.delivery.waiting_messages.TURN_SORTED_MAX", most)

    async def steps_of(group: Group) -> None:
        for late_ms in range(100, 0, -1):
            group.schedule("", late_ms)
        for number in range(leaving):
            group.join(f"c{number}", credit=1)
        await pass_ms(group, 200)
        assert len(group.given) == leaving
        sorted_: list[int] = []
        counted = partial(counted_rows, waiting_messages.in_order, sorted_)
        monkeypatch.setattr("tarry.node.delivery.waiting_messages.in_order", counted)
        group.join("last", credit=0)
        for number in range(leaving):
            group.leave(f"c{number}", clean=True)
        by_turn = []
        for _ in range(2 * leaving):
            by_turn.append(sum(sorted_))
            sorted_.clear()
            await asyncio.sleep(0)
        assert sum(by_turn) >= leaving
        assert max(by_turn) <= 3 * most

    play(steps_of)


def counted_rows(work: Callable[[Any], Any], counts: list[int], rows: Any) -> Any:
    """Sort rows, and note how many."""
    counts.append(len(rows))
    return work(rows)


async def calls_ended_by_turn(group: Group, calls: int, end: Callable[[], None]) -> list[int]:
    """Let so many calls wait for their ack; return how many end in each turn of the event loop."""
    for _ in range(calls):
        group.schedule("", 0)
    group.join("a", credit=calls)
    await pass_ms(group, 10)
    assert len(group.given) == calls
    settlement = group.group.settlement
    asked = [settlement.ack("a", group.queue, np.array([n], np.uint64)) for n in range(calls)]
    pending = [one for one in asked if isinstance(one, asyncio.Future)]
    waiting = [asyncio.create_task(settlement.until_end(one)) for one in pending]
    await group.settle()
    return await ended_by_turn(waiting, end)


async def ended_by_turn(waiting: list[asyncio.Task[Any]], end: Callable[[], None]) -> list[int]:
    """Return how many of the calls that wait end in each turn of the event loop."""
    assert not any(one.done() for one in waiting)
    end()
    by_turn, before = [], 0
    for _ in range(20 + len(waiting) // 10):
        await asyncio.sleep(0)
        done = sum(one.done() for one in waiting)
        by_turn.append(done - before)
        before = done
    assert before == len(waiting)
    return by_turn


def test_calls_that_wait_for_an_ack_end_some_in_each_turn_when_the_leadership_does() -> None:
    async def steps_of(group: Group) -> None:
        by_turn = await calls_ended_by_turn(group, 1_000, lambda: group.delivery.end(OVER))
        assert max(by_turn) <= TURN_ENDS_MAX

    play(steps_of)


def test_calls_that_receive_end_some_in_each_turn_when_the_leadership_does() -> None:
    async def steps_of(group: Group) -> None:
        consumers = [
            Consumer(f"c{number}", TOPIC, GROUP, 1_000, 1, polls=True) for number in range(3 * TURN_ENDS_MAX)
        ]
        for consumer in consumers:
            group.group.attach(consumer)
        waiting = [asyncio.create_task(consumer.readable()) for consumer in consumers]
        await group.settle()
        by_turn = await ended_by_turn(waiting, lambda: group.delivery.end(OVER))
        assert all(consumer.ended is OVER for consumer in consumers)
        assert max(by_turn) <= TURN_ENDS_MAX

    play(steps_of)


def test_acks_that_are_committed_together_are_answered_some_in_each_turn() -> None:
    async def steps_of(group: Group) -> None:
        tasks = []
        by_turn = await calls_ended_by_turn(
            group, 1_000, lambda: tasks.append(asyncio.create_task(group.commit()))
        )
        assert max(by_turn) <= ANSWERS_PIECE

    play(steps_of)


def test_what_falls_due_while_the_lease_is_over_is_delivered_once_it_is_back() -> None:
    async def steps_of(group: Group) -> None:
        group.join("a")
        group.schedule("", 50)
        await group.commit()
        group.has_lease = False
        await pass_ms(group, 200)
        await group.commit()
        await pass_ms(group, 200)
        assert group.given == []
        group.has_lease = True
        await pass_ms(group, 500)
        assert len(group.given) == 1

    play(steps_of)


def test_an_ack_is_answered_once_it_is_committed_and_not_before() -> None:
    async def steps_of(group: Group) -> None:
        group.join("a")
        group.schedule("", 50)
        await group.commit()
        await pass_ms(group, 200)
        (given,) = group.given
        answer = group.group.settlement.ack("a", given.queue, np.array([given.offset], np.uint64))
        assert isinstance(answer, asyncio.Future)
        await group.settle()
        assert len(group.log) == 1
        assert not answer.done()
        await group.commit()
        assert answer.result().tolist() == []

    play(steps_of)


def doubting(group: Group) -> list[log_pb.Cursor]:
    """Return what a leader has to go by that never heard what was delivered."""
    units = group.machine.queues[group.queue].units
    return [log_pb.Cursor(group="g", queue=group.queue, doubtful=units, consumers=["a", "b"])]


def test_nobody_is_given_what_another_may_have_in_hand_before_that_one_is_back() -> None:
    async def steps(group: Group) -> None:
        for _ in range(4):
            group.schedule("", 0)
        group.join("a", credit=2)
        group.join("b", credit=2)
        await pass_ms(group, 1)
        assert len(group.given) == 4
        await group.fail_over(0, doubting(group))
        group.join("a", credit=10)
        await pass_ms(group, 100)
        group.join("b", credit=10)
        await pass_ms(group, 100)
        assert len(group.given) == 4

    play(steps)


def test_who_does_not_come_back_is_waited_for_a_moment_only() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        group.join("b")
        await pass_ms(group, 1)
        await group.fail_over(0, doubting(group))
        group.join("a")
        await pass_ms(group, 990)
        assert len(group.given) == 1
        await pass_ms(group, 20)
        assert [(one.label, one.maybe_duplicate) for one in group.given] == [("m0", False), ("m0", True)]

    play(steps)


def test_what_waits_to_be_acknowledged_as_the_group_is_moved_back_is_delivered_again() -> None:
    """Else a group that is moved back to see its messages again would miss those acked just then."""

    async def steps(group: Group) -> None:
        for _ in range(3):
            group.schedule("", 0)
        group.join("a")
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=False)
        await group.settle()
        offsets = np.array([1, 2], dtype=np.uint64)
        waits = group.group.settlement.ack("a", group.queue, offsets)
        assert isinstance(waits, asyncio.Future)
        group.apply(log_pb.SeekCommand(topic=TOPIC, group=GROUP, offset=0))
        group.show_applied()
        await group.commit()  # the first ack, which is in the log behind the move
        assert (await waits).tolist() == [1, 2]
        await pass_ms(group, 1)
        assert labels(group)[3:] == ["m1", "m2"]
        assert not group.log

    play(steps)


def test_the_simulation_s_check_finds_a_message_in_two_places() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        group.join("a")
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=True)
        await group.settle()
        await group.commit()
        check_places(group.machine)
        group._propose(log_pb.SeekCommand(topic="t", group="g", offset=0))
        await group.commit()
        with pytest.raises(Violation, match="B5"):
            check_places(group.machine)
        check_places(group.machine, {"t/g"})

    play(steps)
