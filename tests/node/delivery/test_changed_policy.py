"""A policy that is changed counts for what is delivered from then on, and nobody has to come anew."""

from __future__ import annotations

from typing import Any

from tarry.node.delivery.consumer import Consumer
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import GroupPolicy, TopicSettings
from tests.node.group_in_process import GROUP, SETTINGS, TOPIC, Group
from tests.node.group_play import pass_ms, play
from tests.node.policies import exponential, fixed


def change(group: Group, **policy: Any) -> None:
    group.apply(log_pb.RaiseLevelCommand(level=2, now_ms=group.time.now_ms()))
    command = log_pb.GroupPolicyCommand(
        topic=TOPIC, group=GROUP, policy=GroupPolicy(**policy), now_ms=group.time.now_ms()
    )
    group.apply(command)
    group.show_applied()


async def nack(group: Group) -> int | None:
    """Nack what "a" has; return how long its next attempt waits, None for a dead letter."""
    now_ms = group.time.now_ms()
    assert group.settle_first("a", 1, nack=True)
    await group.settle()
    ((payload, _),) = group.log
    assert isinstance(payload, log_pb.RetryCommand)
    await group.commit()
    if not payload.target_group:
        return None
    return int.from_bytes(payload.due_ms, "little") - now_ms


def test_attempts_and_waits_are_those_of_the_policy_at_the_time_of_the_verdict() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert await nack(group) == SETTINGS.back_off_ms[0]
        change(group, back_off=exponential(30, 45))
        await pass_ms(group, 30)
        assert await nack(group) == 45  # of the second attempt
        change(group, back_off=fixed(5), attempts_max=4)
        await pass_ms(group, 50)
        assert await nack(group) == 5
        await pass_ms(group, 10)
        assert await nack(group) is None  # the fourth was the last
        assert group.places() == {"m0": ["dead"]}
        group.schedule("", 0)
        change(group, attempts_max=1)
        await pass_ms(group, 1)
        assert await nack(group) is None

    play(steps)


def test_what_a_group_without_dead_letters_gives_up_is_gone_and_lets_its_key_go_on() -> None:
    async def steps(group: Group) -> None:
        change(group, attempts_max=1, dead_letter_topic="none")
        group.join("a")
        for _ in range(2):
            group.schedule("key", 0)
        await pass_ms(group, 1)
        assert [one.label for one in group.given] == ["m0"]
        assert group.settle_first("a", 1, nack=True)
        await group.settle()
        ((payload, _),) = group.log
        assert payload.dropped
        await group.commit()
        await pass_ms(group, 1)
        assert [one.label for one in group.given] == ["m0", "m1"]
        assert group.machine.queues.uses.of(TOPIC, GROUP).dropped == 1
        assert [queue.topic for queue in group.machine.queues] == [TOPIC, TOPIC]

    play(steps)


def told(consumer: Consumer) -> list[int]:
    """Take the leases that a consumer's stream was told of."""
    responses = [pb.ConsumeResponse.FromString(raw) for raw in consumer.take_all()]
    return [one.subscribed.lease_ms for one in responses if one.HasField("subscribed")]


def ends_ms(group: Group) -> list[int]:
    now_ms = group.time.now_ms()
    return sorted(batch.until_ms - now_ms for _, batch in group.group._leases)


def test_a_lease_counts_for_what_is_delivered_from_then_on_and_open_streams_are_told() -> None:
    async def steps(group: Group) -> None:
        asks, other = (
            Consumer(name, TOPIC, GROUP, lease_ms, credit=1, streams=True)
            for name, lease_ms in (("asks", 700), ("other", 0))
        )
        other.asks_no_lease = True
        for consumer in (asks, other):
            group.group.join(consumer)
        assert other.lease_ms == SETTINGS.lease_ms
        change(group, lease_ms=300)
        await group.settle()
        assert (told(asks), told(other)) == ([], [300])
        for _ in range(2):
            group.schedule("", 0)
        await pass_ms(group, 0)
        assert ends_ms(group) == [300, 700]
        settings = TopicSettings(group_policy=GroupPolicy(lease_ms=50))
        group.apply(log_pb.TopicCommand(topic=TOPIC, settings=settings, now_ms=group.time.now_ms()))
        group.show_applied()
        await group.settle()
        assert (told(other), other.lease_ms) == ([], 300)  # its own policy counts
        assert ends_ms(group) == [300, 700]

    play(steps)


def test_a_lease_of_the_topic_counts_for_a_group_that_sets_none() -> None:
    async def steps(group: Group) -> None:
        group.apply(log_pb.RaiseLevelCommand(level=2, now_ms=group.time.now_ms()))
        settings = TopicSettings(group_policy=GroupPolicy(lease_ms=50))
        group.apply(log_pb.TopicCommand(topic=TOPIC, settings=settings, now_ms=group.time.now_ms()))
        assert group.group.lease_ms == 50

    play(steps)


def test_after_a_failover_what_may_be_in_hand_is_held_for_the_policy_s_lease() -> None:
    async def steps(group: Group) -> None:
        change(group, lease_ms=300)
        group.schedule("", 0)
        group.join("a")
        await pass_ms(group, 1)
        assert len(group.given) == 1
        await group.fail_over(0, group.cursors())
        group.hands["a"].held.clear()
        group.join("b")
        await pass_ms(group, 290)
        assert len(group.given) == 1
        await pass_ms(group, 20)
        assert [one.maybe_duplicate for one in group.given] == [False, True]

    play(steps)
