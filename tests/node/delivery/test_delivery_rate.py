"""A group is given no more than its rate, and as much."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.delivery_rate import BURST_MS, STEP_MS, DeliveryRate
from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.delivery.test_changed_policy import change
from tests.node.group_in_process import TOPIC, Group
from tests.node.group_play import labels, pass_ms, play

RATES = (1, 3, 7, 99, 100, 1_000, 1_234_567, 2**32 - 1)


def burst(per_s: int) -> float:
    return max(1, per_s * BURST_MS / 1_000)


@given(
    per_s=st.sampled_from(RATES),
    steps=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 10**6), st.booleans()), max_size=30),
)
def test_in_any_time_there_come_what_the_rate_says_and_a_burst_at_most_also_over_a_failover(
    per_s: int, steps: list[tuple[int, int, bool]]
) -> None:
    now_ms, rate, given_at = 5, DeliveryRate(per_s, 5), list[tuple[int, int]]()
    for wait_ms, wanted, fails in steps:
        now_ms += wait_ms
        if fails:  # the next leader knows nothing of what the last one had saved up
            rate = DeliveryRate(per_s, now_ms)
        count = rate.within(wanted, now_ms)
        rate.take(count)
        given_at.append((now_ms, count))
    for first in range(len(given_at)):
        for last in range(first, len(given_at)):
            ms = given_at[last][0] - given_at[first][0]
            count = sum(count for _, count in given_at[first : last + 1])
            assert count <= per_s * ms / 1_000 + burst(per_s)


@pytest.mark.parametrize("per_s", RATES)
def test_who_comes_when_it_says_so_is_given_all_of_the_rate(per_s: int) -> None:
    rate, now_ms, count, looks = DeliveryRate(per_s, 0), 0, 0, 0
    while now_ms < 10_000:
        now_ms, before = rate.opens_ms(now_ms, now_ms), now_ms
        assert now_ms > before
        some = rate.within(2**40, now_ms)
        assert some > 0
        rate.take(some)
        count, looks = count + some, looks + 1
    assert per_s * now_ms / 1_000 - max(1, per_s * STEP_MS / 1_000) <= count <= per_s * now_ms / 1_000
    assert looks <= 10_000 / STEP_MS + 1


def test_without_a_bound_nothing_waits_and_a_bound_begins_with_nothing_saved_up() -> None:
    rate = DeliveryRate(0, 0)
    assert (rate.within(10**9, 0), rate.opens_ms(7, 50)) == (10**9, 7)
    rate.take(10**9)
    rate.change(10, 5_000)
    assert (rate.within(9, 5_000), rate.opens_ms(7, 5_000)) == (0, 5_100)
    assert rate.opens_ms(9_000, 5_000) == 9_000
    assert rate.within(9, 5_100) == 1
    rate.change(1_000, 5_100)
    assert rate.within(999, 6_000) == burst(1_000)
    rate.change(20, 6_000)
    assert rate.within(999, 6_000) == burst(20)


def test_a_clock_that_stands_or_is_behind_gives_nothing_and_takes_nothing() -> None:
    rate = DeliveryRate(1_000, 1_000)
    assert (rate.within(9, 1_000), rate.within(9, 400), rate.within(9, 1_003)) == (0, 0, 3)


async def wait_for(group: Group, count: int, ms: int) -> int:
    """Let up to so many ms pass, until so many messages have been given; return how many did."""
    for passed in range(ms):
        if len(group.given) >= count:
            return passed
        await asyncio.sleep(0.001)
        await group.settle()
    return ms


def test_a_group_is_given_its_rate_by_a_timer_and_what_waits_is_not_in_flight() -> None:
    async def steps(group: Group) -> None:
        change(group, delivery_per_s_max=20)
        group.join("a", credit=50)
        await pass_ms(group, 1_000)
        for _ in range(12):
            group.schedule("", 0)
        group.release()
        await group.settle()
        assert labels(group) == ["m0", "m1"]  # what it had not used of the last 100 ms
        assert sum(feed.in_flight_messages for feed in group.group.feeds.values()) == 2
        for count in range(3, 13):
            assert 45 <= await wait_for(group, count, 100) <= 51
            assert len(group.given) == count
            assert group.settle_first("a", 1, nack=False)
            await group.commit()

    play(steps)


def test_retries_count_and_go_first_and_the_consumers_share_the_rate() -> None:
    async def steps(group: Group) -> None:
        change(group, delivery_per_s_max=10)
        for name in ("a", "b"):
            group.join(name)
        for _ in range(3):
            group.schedule("", 0)
        await pass_ms(group, 150)
        assert labels(group) == ["m0"]
        holder = next(name for name, hand in group.hands.items() if hand.held)
        assert group.settle_first(holder, 1, nack=True, delay_ms=0)
        await group.settle()
        await group.commit()
        await pass_ms(group, 101)
        assert labels(group) == ["m0", "m0"]
        await pass_ms(group, 200)
        assert sorted(labels(group)) == ["m0", "m0", "m1", "m2"]

    play(steps)


def test_a_rate_that_is_lifted_lets_all_go_at_once() -> None:
    async def steps(group: Group) -> None:
        change(group, delivery_per_s_max=1)
        group.join("a", credit=50)
        for _ in range(5):
            group.schedule("", 0)
        await pass_ms(group, 100)
        assert labels(group) == []
        change(group, delivery_per_s_max=0)
        await group.settle()
        assert len(group.given) == 5

    play(steps)


def test_the_next_leader_begins_with_nothing_saved_up() -> None:
    async def steps(group: Group) -> None:
        change(group, delivery_per_s_max=100)
        group.join("a", credit=100)
        await pass_ms(group, 1_000)
        for _ in range(60):
            group.schedule("", 0)
        group.release()
        await group.settle()
        assert len(group.given) == 10
        for _ in range(3):
            await group.fail_over(0, group.cursors())
            group.join("a", credit=100)
            await group.settle()
        assert len(group.given) == 10
        await pass_ms(group, 101)
        assert len(group.given) in (19, 20)

    play(steps)


def test_another_group_does_not_wait_for_one_with_a_rate() -> None:
    async def steps(group: Group) -> None:
        change(group, delivery_per_s_max=1)
        subscribed = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="free"))
        free = group.delivery.group(TOPIC, "free", subscribed.queue, subscribed.retry_queue)
        group.join("a", credit=100)
        other = Consumer("b", TOPIC, "free", 1_000, credit=100)
        free.join(other)
        for _ in range(40):
            group.schedule("", 0)
        group.release()
        await group.settle()
        assert (len(group.given), other.credit) == (0, 60)

    play(steps)
