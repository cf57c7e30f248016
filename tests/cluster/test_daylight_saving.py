"""Schedules that recur while their zone's clocks change: real nodes whose clocks are set to such a night."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.faults.clocks import give_clock, lacking
from tarry.client.aio import Cron, connect
from tests.cluster.disposable import Disposable

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]

BEGINS_MS = 15_000
"""Before the fire that may come the cluster is started."""
ENDS_MS = 3_000
"""Behind it no other is waited for."""
NIGHTLY = Cron("30 2 * * *", "Europe/Berlin")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("timing", "at", "fires", "following"),
    [
        pytest.param(
            NIGHTLY, "2027-03-28T03:00+02:00", True, "2027-03-29T02:30+02:00", id="2:30 is left out, Berlin"
        ),
        pytest.param(
            NIGHTLY, "2027-10-31T02:30+02:00", True, "2027-11-01T02:30+01:00", id="the first 2:30, Berlin"
        ),
        pytest.param(
            NIGHTLY, "2027-10-31T02:30+01:00", False, "2027-11-01T02:30+01:00", id="the second 2:30, Berlin"
        ),
    ],
)
async def test_in_the_night_of_a_change_a_fire_comes_once(
    tmp_path: Path, timing: Cron, at: str, fires: bool, following: str
) -> None:
    with Disposable(1, tmp_path) as cluster:
        (node,) = cluster.nodes.values()
        ahead_ms = ms(at) - BEGINS_MS - now_ms()
        give_clock(node, ahead_ms)
        cluster.start()
        cluster.wait_until_serving()
        came = list[int]()
        async with connect(cluster.addresses) as client:
            await client.operator().finish_upgrade()
            await client.operator().create_topic("reports")
            await client.operator().create_group("reports", "g")
            made = await client.recurring().put("nightly", "reports", b"report", timing=timing)
            assert made.created_ms < ms(at), "the node took too long to start"
            async with client.consumer("reports", "g") as consumer:

                async def consume() -> None:
                    async for message in consumer:
                        came.append(message.due_ms)
                        message.ack_soon()

                consuming = asyncio.create_task(consume())
                await asyncio.sleep((ms(at) + ENDS_MS - now_ms() - ahead_ms) / 1_000)
                consuming.cancel()
            told = await client.recurring().get("nightly")
    assert came == [ms(at)] * fires
    assert (told.fired, told.next_ms) == (int(fires), ms(following))
