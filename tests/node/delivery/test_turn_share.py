"""Groups whose messages are due together share the turns of the event loop."""

from __future__ import annotations

import asyncio
from functools import partial

from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.group import TURN_RESPONSES_MAX
from tarry.node.delivery.turn_share import TurnShare
from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.group_in_process import TOPIC, Group
from tests.node.group_play import play

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
        handed: list[int] = []
        while len(handed) < groups:
            before = len(handed)
            handed += [at for at, consumer in enumerate(consumers) if consumer.take_all()]
            assert len(handed) - before < TURN_RESPONSES_MAX
            await asyncio.sleep(0)
        assert handed == list(range(groups))

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
