"""Receives by calls, one attempt behind another."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tarry.client.aio import connect
from tarry.client.consumers import puller as module
from tarry.client.errors import Unavailable
from tests.client.stand_in import ClusterStandIn


async def test_an_attempt_behind_another_waits_for_what_is_left_of_the_wait(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = iter(range(0, 100, 4))
    clock = SimpleNamespace(monotonic=lambda: next(passed_s), time=time.time, time_ns=time.time_ns)
    async with connect(cluster.addresses) as client:
        puller = client.puller("orders", "g")
        assert await puller.receive() == []
        cluster.lead(cluster.nodes[2])
        monkeypatch.setattr(module, "time", clock)
        assert await puller.receive(wait_ms=10_000) == []
        cluster.lead(cluster.nodes[1])
        assert await puller.receive(wait_ms=3_000) == []
    assert cluster.waits_ms == [0, 10_000, 6_000, 3_000, 0]


async def test_a_receive_gives_up_at_its_deadline(cluster: ClusterStandIn) -> None:
    cluster.lead(None)
    async with connect(cluster.addresses) as client:
        began_s = time.monotonic()
        with pytest.raises(Unavailable):
            await client.puller("orders", "g").receive(wait_ms=30_000, deadline_ms=200)
        assert time.monotonic() - began_s < 15
