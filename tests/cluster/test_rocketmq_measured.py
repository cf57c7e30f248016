"""The programs that the bench measures RocketMQ's clients with, at the gateway, each with little to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.bench.rocketmq_clients.figures import figures
from tarry.bench.rocketmq_clients.runs import Plan, told_by
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.rocketmq_programs import LANGUAGES
from tests.cluster.gateways import GatewayProcess, rocketmq_gateway
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

LITTLE = Plan(tasks=4, rate_ms=200, singles=5, per_s=20, late_ms=500, crowd=40, lead_ms=2_000)


@pytest.fixture(scope="module")
def gateway(shared_cluster: LocalCluster) -> Iterator[GatewayProcess]:
    asyncio.run(level(shared_cluster, 2))
    with rocketmq_gateway(shared_cluster.addresses) as running:
        yield running


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_program_sends_all_and_has_all_back(
    gateway: GatewayProcess, tmp_path: Path, language: str
) -> None:
    if why := LANGUAGES[language]():
        pytest.skip(why)
    told = await told_by(language, gateway.url, f"measure-{language}", LITTLE, tmp_path)
    (singles_ms,), (_, _, late_ms), (_, _, crowd_ms) = told["single"], told["late"], told["crowd"]
    assert (len(singles_ms), len(late_ms), len(crowd_ms)) == (5, 10, 40)
    assert min(late_ms + crowd_ms) >= 0
    found = figures(told)
    assert found["failed"] == 0 and found["rate_per_s"] > 0
