"""Listings hold the event loop for no longer than a turn may take, whatever is pending."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.services.listed_page import PAGE_MAX
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record, Retried
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, play, until
from tests.node.services.test_listing import HOUR_MS, Lists

COUNT = 1_000_000
GROUPS = 5_000
SECOND_MS = 1_000
RECORD = Record(body=b"x" * 20, tags=["red"], keys=["k"]).SerializeToString()


async def pending(lead: Leader, due_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Have messages pending, past the log: some minutes of commits else."""
    wheel, queue = lead.machine.wheel, lead.machine.queues.of(TOPIC).queue
    for part in np.array_split(due_ms, 100):
        topic, mask = np.full(len(part), queue, np.uint32), np.ones(len(part), np.uint64)
        wheel.append(part, topic, mask, [RECORD] * len(part))


def test_pages_of_a_million_messages_of_an_hour_and_of_a_second() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        random, now_ms = np.random.default_rng(1), lead.node.time.now_ms()
        begin_ms = (now_ms // HOUR_MS + 5) * HOUR_MS
        await pending(lead, begin_ms + random.integers(0, HOUR_MS, COUNT))
        await pending(lead, begin_ms + HOUR_MS + random.integers(0, SECOND_MS, COUNT))
        lists = Lists(lead)
        for name, from_ms in {"hour": begin_ms, "second": begin_ms + HOUR_MS}.items():
            cursor = ""
            async with steps.step(name):
                for _ in range(20):
                    page = await lists.page(page_size=PAGE_MAX, cursor=cursor, due_from_ms=from_ms)
                    assert len(page.messages) == PAGE_MAX
                    cursor = page.cursor
            async with steps.step(f"{name}, whose keys are looked for in vain"):
                page = await lists.page(keys=["none"], due_from_ms=from_ms)
                assert not page.messages
                assert page.cursor
            async with steps.step(f"{name}, with no such tag"):
                assert not (await lists.page(tags=["none such"], due_from_ms=from_ms)).messages

    assert cost.too_long(play(act)) == {}


def test_pages_of_thousands_of_hours_and_of_a_large_ready_queue() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        now_ms = lead.node.time.now_ms()
        await lead.ready(50_000)
        due_ms = (now_ms // HOUR_MS + 2 + np.arange(6_000) % 3_000) * HOUR_MS
        for part in np.array_split(due_ms, 4):
            await lead.schedule(len(part), part)
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group="g"))
        lists = Lists(lead)
        for name, request in {"hours": {}, "queue": {"states": [3]}, "of a group": {"group": "g"}}.items():
            cursor, count = "", 0
            async with steps.step(name):
                while count < 10_000:
                    page = await lists.page(page_size=PAGE_MAX, cursor=cursor, **request)
                    cursor, count = page.cursor, count + len(page.messages)
        async with steps.step("passing over the queue"):
            await lists.all(tags=["none"])

    assert cost.too_long(play(act)) == {}


def test_pages_of_the_largest_messages() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        limits = lead.node.config.limits
        record = Record(body=bytes(limits.body_bytes_max)).SerializeToString()
        wheel, queue = lead.machine.wheel, lead.machine.queues.of(TOPIC).queue
        due_ms = np.full(30, lead.node.time.now_ms() + HOUR_MS)
        columns = np.full(30, queue, np.uint32), np.zeros(30, np.uint64)
        wheel.append(due_ms, *columns, [record] * 30)
        lists = Lists(lead)
        for bodies in (False, True):
            async with steps.step(f"bodies: {bodies}"):
                assert len(await lists.all(bodies=bodies)) == 30

    assert cost.too_long(play(act)) == {}


def test_pages_of_a_topic_of_thousands_of_groups() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.ready(10)
        for start in range(0, GROUPS, 500):
            groups = (f"g{number}" for number in range(start, start + 500))
            await asyncio.gather(
                *(lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=group)) for group in groups)
            )
        lists, machine = Lists(lead), lead.machine
        async with steps.step("that have nothing to retry"):
            page = await lists.page()
            assert (len(page.messages), page.cursor) == (10, "")
        retries = machine.queues.retries_of(TOPIC)
        assert len(retries) == GROUPS
        some = np.array(retries[::5], np.uint32)
        copies = [Retried(record=RECORD, attempt=2).SerializeToString()] * len(some)
        due_ms = np.full(len(some), lead.node.time.now_ms())
        machine.wheel.append(due_ms, some, np.zeros(len(some), np.uint64), copies)
        await lead.schedule(1, due_ms[:1] + HOUR_MS)  # an entry, upon which the leader looks what is due
        await until(lambda: all(machine.queues[number].units for number in some.tolist()))
        async with steps.step("some of which have one message to retry each"):
            listed = await lists.all(page_size=PAGE_MAX)
            assert len(listed) == len(some) + 11

    assert cost.too_long(play(act)) == {}
