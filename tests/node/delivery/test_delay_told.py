"""What is told and kept of a group's delay: its status, the lives of messages, lateness, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tarry.node.config import MetricsSettings
from tarry.node.delivery.cancels import CANCELLED, Released
from tarry.node.leader.retention import Kept
from tarry.node.metrics.traffic import Traffic
from tarry.node.monitoring import readings
from tarry.node.services.topic_status import DELAYED_QUEUES, PIECE_QUEUES
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto.tarry_operator_pb2 import ClusterSettings, GroupPolicy, TopicSettings
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS, MessageState
from tests.node.delivery.test_changed_policy import change
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play
from tests.node.lone_leader import leader
from tests.node.services.test_topic_status import topic_of

MINUTE_MS = 60_000


async def status(group: Group) -> tuple[int, int]:
    (told,) = (await topic_of(group)).groups
    return told.delayed, told.delay_ms


def test_a_group_tells_its_delay_and_how_many_messages_wait_for_it() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=MINUTE_MS)
        group.join("a")
        for delay_ms in (0, 0, 20_000, 20_030):
            group.schedule("", delay_ms)
        await pass_ms(group, 10)
        assert await status(group) == (2, MINUTE_MS)
        await pass_ms(group, 19_989)
        await pass_ms(group, 10)
        assert await status(group) == (3, MINUTE_MS)  # the last is released, and not due
        await pass_ms(group, 39_991)
        assert await status(group) == (2, MINUTE_MS)
        assert len(labels(group)) == 2
        change(group, delay_ms=0)
        await group.settle()
        assert await status(group) == (0, 0)
        assert len(labels(group)) == 4

    play(steps)


def test_the_delay_is_the_group_s_or_its_topic_s_or_the_cluster_s() -> None:
    async def steps(group: Group) -> None:
        change(group)
        queues = group.machine.queues
        assert queues.delay_ms(TOPIC, GROUP) == 0
        settings = ClusterSettings(group_policy=GroupPolicy(delay_ms=3))
        group.apply(log_pb.ClusterSettingsCommand(settings=settings))
        assert queues.delay_ms(TOPIC, GROUP) == queues.delay_ms(TOPIC, "another") == 3
        group.apply(log_pb.TopicCommand(topic=TOPIC, settings=TopicSettings(group_policy={"delay_ms": 2})))
        assert queues.delay_ms(TOPIC, GROUP) == 2
        change(group, delay_ms=0)
        assert (queues.delay_ms(TOPIC, GROUP), queues.delay_ms(TOPIC, "another")) == (0, 2)

    play(steps)


async def life(group: Group) -> query_pb.MessageInGroup:
    """Return what the first message is to the group."""
    wheel, queue = group.machine.wheel, group.machine.queues.of(TOPIC)
    (hour, *_) = wheel.hours()
    state = wheel.state(hour, 0)
    due_ms = hour * HOUR_MS + int(wheel.units(*map(np.array, ([hour], [0])))["due_in_hour_ms"][0])
    (told,) = (await group.delivery.lives.tell(queue, (hour, 0), due_ms, state)).groups
    assert state in (MessageState.PENDING, MessageState.RELEASED)
    return told


def test_the_life_of_a_message_says_that_it_waits_for_the_group_s_delay_and_until_when() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=MINUTE_MS)
        group.join("a")
        opens_ms = group.time.now_ms() + 100 + MINUTE_MS
        group.schedule("", 100)
        assert (await life(group)).why == "it is not due yet"
        await asyncio.sleep(0.05)
        await pass_ms(group, 10)
        assert (await life(group)).why == "it is not due yet"
        await pass_ms(group, 50)
        told = await life(group)
        assert (told.state, told.why) == (query_pb.GROUP_STATE_WAITING, "it waits for the group's delay")
        assert told.until_ms == opens_ms
        await pass_ms(group, MINUTE_MS)
        assert (await life(group)).state == query_pb.GROUP_STATE_IN_HAND

    play(steps)


def test_a_delivery_is_as_late_as_it_comes_behind_the_delay() -> None:
    async def steps(group: Group) -> None:
        traffic = Traffic(MetricsSettings(listen="127.0.0.1:0"), 100, lambda: True)
        context = replace(group.group._context, traffic=traffic)
        group.group._context = context
        group.machine.events.wanted = True
        change(group, delay_ms=MINUTE_MS)
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, MINUTE_MS + 3)
        (of_topic,) = [one for name, one in traffic.topics if name == TOPIC]
        assert sum(of_topic.delivery.counts) == 1
        assert of_topic.delivery.sum_ms <= 3
        group.machine.take_events()
        assert group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        traffic.applied(group.machine.take_events(), group.machine.queues, group.time.now_ms())
        assert sum(of_topic.acknowledgement.counts) == 1
        assert of_topic.acknowledgement.sum_ms <= 10

    play(steps)


def test_the_longest_retention_begins_behind_the_longest_delay_of_a_topic_s_groups() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=HOUR_MS)
        settings = TopicSettings(retention_max_ms=MINUTE_MS)
        group.apply(log_pb.TopicCommand(topic=TOPIC, settings=settings))
        group.schedule("", 0)
        await pass_ms(group, 1)
        released_ms = group.time.now_ms() + 1
        kept = Kept(group.machine, 1_000)

        async def cut(at_ms: int) -> list[log_pb.TrimCommand]:
            return list(await kept.plan(at_ms))

        assert await cut(released_ms + HOUR_MS) == []
        assert await cut(released_ms + HOUR_MS + MINUTE_MS - 10) == []
        (planned,) = await cut(released_ms + HOUR_MS + MINUTE_MS + 10)
        assert np.frombuffer(planned.offset, "<u8").tolist() == [1]
        change(group, delay_ms=0)
        assert len(await cut(released_ms + MINUTE_MS + 10)) == 1

    play(steps)


def test_a_message_that_waits_for_the_delay_is_cancelled_until_the_group_is_given_it() -> None:
    async def steps(group: Group) -> None:
        change(group, delay_ms=MINUTE_MS)
        group.join("a")
        for _ in range(3):
            group.schedule("", 0)
        await pass_ms(group, MINUTE_MS - 2_000)  # the first are in memory by now
        units = group.machine.queues.of(TOPIC).read(1, 1)
        one = Released(units["hour"], units["global_index"], units["due_ms"])
        asked = asyncio.ensure_future(group.delivery.cancels.cancel(group.queue, one, remaining=False))
        await group.settle()
        await group.commit()
        outcomes = await asked
        assert not isinstance(outcomes, Refusal)
        assert outcomes.tolist() == [CANCELLED]
        await pass_ms(group, 2_001)
        assert sorted(labels(group)) == ["m0", "m2"]

    play(steps)


async def turns_of(work: Coroutine[Any, Any, Any]) -> int:
    """Return how many turns of the event loop some work takes."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_queues_are_searched_for_what_is_delayed_in_turns_of_their_own(tmp_path: Path) -> None:
    groups = 20
    async with leader(tmp_path, Holds()) as lead:
        await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
        for number in range(groups):
            await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=f"g{number}"))
        works = (lambda: readings.read(lead.node._core), lead.status)
        await readings.read(lead.node._core)  # the first names the groups
        before = [await turns_of(work()) for work in works]
        settings = TopicSettings(group_policy={"delay_ms": MINUTE_MS})
        await lead.propose(log_pb.TopicCommand(topic=TOPIC, settings=settings))
        after = [await turns_of(work()) for work in works]
    told = [groups * DELAYED_QUEUES // piece for piece in (readings.PIECE, PIECE_QUEUES)]
    more = [turns - had for turns, had in zip(after, before, strict=True)]
    assert all(turns >= least for turns, least in zip(more, told, strict=True)), more
