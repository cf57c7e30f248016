"""A cancel of many messages holds the event loop for no longer than a turn may take."""

from __future__ import annotations

import numpy as np

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.state import HOUR_MS
from tests import turns as cost
from tests.node.lone_leader import TOPIC, Leader, play, until
from tests.node.services.bulk_play import Bulk

MESSAGES = 100_000


async def scheduled(lead: Leader, due_ms: np.ndarray) -> None:
    for start in range(0, len(due_ms), 4_000):
        part = due_ms[start : start + 4_000]
        await lead.schedule(len(part), part)


async def raised(lead: Leader) -> Bulk:
    await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
    return Bulk(lead)


def test_counting_and_cancelling_a_crowded_hour() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        bulk = await raised(lead)
        await scheduled(lead, lead.node.time.now_ms() + HOUR_MS * 2 + np.arange(MESSAGES) * 10)
        async with steps.step("count by key"):
            told = await bulk.all(topic=TOPIC, key_prefix="k", dry_run=True)
        assert (told.looked_at, told.matched) == (MESSAGES, 0)
        async with steps.step("cancel"):
            told = await bulk.all(topic=TOPIC)
        assert told.cancelled == MESSAGES

    assert cost.too_long(play(act)) == {}


def test_cancelling_over_thousands_of_hours() -> None:
    hours = 3_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        bulk = await raised(lead)
        await scheduled(lead, lead.node.time.now_ms() + np.arange(2 * hours) % hours * HOUR_MS + 2 * HOUR_MS)
        async with steps.step("cancel"):
            told = await bulk.all(topic=TOPIC)
        assert told.cancelled == 2 * hours

    assert cost.too_long(play(act)) == {}


def test_purging_a_full_ready_queue() -> None:
    count = 50_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        bulk = await raised(lead)
        await lead.ready(count)
        for group in ("a", "b", "c"):
            await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=group))
        async with steps.step("purge"):
            told = await bulk.all(purge=True, topic=TOPIC)
        assert told.ready == count

    assert cost.too_long(play(act)) == {}


def test_what_is_left_of_a_deleted_topic() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await scheduled(lead, lead.node.time.now_ms() + HOUR_MS * 2 + np.arange(MESSAGES) * 10)
        async with steps.step("delete"):
            deleted = await lead.delete_topic(TOPIC)
            assert deleted.pending == MESSAGES
            await until(lambda: not lead.machine.wheel.pending)

    assert cost.too_long(play(act)) == {}
