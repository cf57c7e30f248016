"""Groups whose messages are due together share the turns of the event loop."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np

from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.feed import Feed
from tarry.node.delivery.group import TURN_CONSUMERS_MAX, TURN_LET_GO_MAX, TURN_RESPONSES_MAX
from tarry.node.delivery.offset_pieces import PIECE_OFFSETS
from tarry.node.delivery.turn_share import TurnShare
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import ConsumeResponse
from tarry.replication.state_machine.ready_queue import UNIT
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import play
from tests.turns import bound_s, cpu_s

PART = 0.25


def test_groups_whose_messages_are_due_at_once_go_one_after_the_other_some_in_each_turn() -> None:
    groups = 2 * TURN_RESPONSES_MAX

    async def steps(group: Group) -> None:
        consumers = []
        for number in range(groups):
            name = f"g{number}"
            made = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=name))
            consumers.append(Consumer(name="a", topic=TOPIC, group=name, lease_ms=1_000, credit=5))
            opened = group.delivery.group(TOPIC, name, made.queue, made.retry_queue)
            opened.join(consumers[-1])
        group.schedule("", 0)
        group.release()
        group.delivery.pump()
        delivered: list[int] = []
        while len(delivered) < groups:
            before = len(delivered)
            delivered += [at for at, consumer in enumerate(consumers) if consumer.take_all()]
            assert len(delivered) - before < TURN_RESPONSES_MAX
            await asyncio.sleep(0)
        assert delivered == list(range(groups))

    play(steps)


async def test_work_that_a_turn_has_no_room_for_goes_first_in_the_next_in_its_order_each_once() -> None:
    share, done = TurnShare(), list[tuple[int, str]]()
    turn = 0

    def work(name: str) -> None:
        done.append((turn, name))
        share.spend(PART)

    works = [partial(work, name) for name in "abcdefghij"]
    for each in (*works, *works[4:]):
        share.do(each)
    while len(done) < len(works):
        turn += 1
        await asyncio.sleep(0)
        share.do(partial(work, "late"))
    names = [name for _, name in done if name != "late"]
    assert names == list("abcdefghij")
    assert [turn for turn, name in done if name != "late"] == [0] * 4 + [1] * 4 + [2] * 2


def test_work_that_waits_and_takes_nothing_is_done_within_a_turn() -> None:
    """Pumps of groups, once delivery is over, count as nothing."""
    works = 19_000

    async def play_once() -> None:
        share, done = TurnShare(), list[int]()
        share.spend(1.0)
        for number in range(works):
            share.do(partial(done.append, number))
        assert not done
        await asyncio.sleep(0)
        assert done == list(range(works))

    assert cpu_s(lambda: asyncio.run(play_once())) < bound_s()


async def test_who_waits_for_its_work_goes_on_once_it_is_done() -> None:
    share, done = TurnShare(), list[str]()
    share.spend(1.0)
    share.do(partial(done.append, "before"))
    await share.done(partial(done.append, "own"))
    assert done == ["before", "own"]


async def test_what_is_little_is_done_at_once_in_every_turn() -> None:
    share, done = TurnShare(), list[int]()
    for turn in range(40):
        share.do(partial(share.spend, 0.4))
        share.do(partial(done.append, turn))
        assert done[-1] == turn
        await asyncio.sleep(0)


def test_a_turn_has_room_for_groups_by_the_consumers_that_they_look_at() -> None:
    consumers = 1_000

    async def steps(group: Group) -> None:
        for at in range(consumers):
            group.group.attach(Consumer(f"c{at}", TOPIC, GROUP, 60_000, 0))
        await asyncio.sleep(0)
        turn, done = group.group._context.turn, list[str]()
        assert turn.left == 1.0
        for _ in range(TURN_CONSUMERS_MAX // consumers):
            group.group.pump()
        turn.do(partial(done.append, "after"))
        assert not done
        await asyncio.sleep(0)
        assert done == ["after"]

    play(steps)


async def turns_of(feeds: list[Feed]) -> list[int]:
    """Return how many messages each turn of the event loop takes out of flight, until none is in flight."""
    turns, in_flight = [], sum(feed.in_flight_messages for feed in feeds)
    while in_flight:
        await asyncio.sleep(0)
        left = sum(feed.in_flight_messages for feed in feeds)
        turns.append(in_flight - left)
        in_flight = left
    return turns


def test_what_consumers_that_leave_together_give_back_is_shared_by_several_turns() -> None:
    consumers = 20

    async def steps(group: Group) -> None:
        queue, feed = group.machine.queues[group.queue], group.group.feeds[group.queue]
        queue.append(np.zeros(consumers * PIECE_OFFSETS, dtype=UNIT))
        left = [Consumer(f"c{at}", TOPIC, GROUP, 60_000, 0) for at in range(consumers)]
        for at, consumer in enumerate(left):
            group.group.attach(consumer)
            held = np.arange(at * PIECE_OFFSETS, (at + 1) * PIECE_OFFSETS, dtype=np.uint64)
            feed.lease(held, consumer.name, group.time.now_ms() + 60_000)
        await asyncio.sleep(0)
        leave = [partial(group.group.leave, consumer, clean=True) for consumer in left]
        asyncio.get_running_loop().call_soon(lambda: [each() for each in leave])
        turns = await turns_of([feed])
        assert sum(turns) == queue.units
        assert max(turns) <= TURN_LET_GO_MAX
        assert len(turns) < consumers  # no turn for each

    play(steps)


def test_all_that_a_consumer_gives_back_goes_out_again_at_once() -> None:
    async def steps(group: Group) -> None:
        messages = 2 * TURN_LET_GO_MAX
        group.schedule("", 0)
        group.release()
        queue = group.machine.queues[group.queue]
        queue.append(np.repeat(queue.read(0, 1), messages - 1))
        consumers = [Consumer(name, TOPIC, GROUP, 60_000, messages) for name in "ab"]
        received = [0, 0]

        async def receive_all(which: int) -> None:
            for _ in range(messages):
                await asyncio.sleep(0)
                for response in consumers[which].take_all():
                    received[which] += len(ConsumeResponse.FromString(response).deliveries.offset)
                if received[which] == messages:
                    return
            raise AssertionError(f"{received[which]} of {messages} have come")

        group.group.join(consumers[0])
        group.group.pump()
        await receive_all(0)
        group.group.join(consumers[1])
        group.group.leave(consumers[0], clean=True)
        began_ms = group.time.now_ms()
        await receive_all(1)
        assert group.time.now_ms() == began_ms

    play(steps)


def test_leases_of_many_groups_that_end_at_once_end_in_several_turns() -> None:
    groups = 20

    async def steps(group: Group) -> None:
        group.schedule("", 0)
        group.release()
        queue = group.machine.queues[group.queue]
        queue.append(np.repeat(queue.read(0, 1), PIECE_OFFSETS - 1))
        feeds = []
        for number in range(groups):
            made = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=f"g{number}"))
            opened = group.delivery.group(TOPIC, f"g{number}", made.queue, made.retry_queue)
            feed = opened.feeds[made.queue]
            held = np.arange(PIECE_OFFSETS, dtype=np.uint64)
            opened._add_lease(feed, feed.lease(held, "a", group.time.now_ms()))
            feeds.append(feed)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(group.delivery.pump)
        turns = await turns_of(feeds)
        assert sum(turns) == groups * PIECE_OFFSETS
        assert max(turns) <= TURN_LET_GO_MAX

    play(steps)
