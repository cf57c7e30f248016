"""The programs that the bench measures RocketMQ's clients with, at the gateway, each with little to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.bench.rocketmq_clients.figures import figures
from tarry.bench.rocketmq_clients.runs import Plan, parts, printed_by, told_by
from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.rocketmq_programs import LANGUAGES
from tests.cluster.gateways import GatewayProcess, rocketmq_gateway
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

LITTLE = Plan(tasks=4, rate_ms=200, singles=5, per_s=20, late_ms=500, crowd=40, lead_ms=2_000)


@pytest.fixture(scope="module")
def gateway(
    shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """One that refuses delayed messages to the topics ``refused-LANGUAGE``."""
    asyncio.run(level(shared_cluster, 2))
    file = tmp_path_factory.mktemp("gateway") / "rocketmq.toml"
    refused = "".join(f'refused-{language} = ["NORMAL"]\n' for language in LANGUAGES)
    file.write_text(f"[types]\n{refused}")
    with rocketmq_gateway(shared_cluster.addresses, "--config", str(file)) as running:
        yield running


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_program_sends_all_and_has_all_back(
    gateway: GatewayProcess, shared_cluster: LocalCluster, tmp_path: Path, language: str
) -> None:
    if why := LANGUAGES[language]():
        pytest.skip(why)
    topic = f"measure-{language}"
    told = await told_by(language, gateway.url, topic, LITTLE, tmp_path)
    assert [len(told[part][-1]) for part in ("single", "late", "crowd")] == [5, 10, 40]
    found = figures(told)
    assert found["failed"] == 0 and found["early"] == 0 and found["rate_per_s"]
    async with connect(shared_cluster.addresses) as client:
        await client.operator().describe_group(topic, topic)  # its own: other programs have other topics


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_program_counts_what_is_refused_and_tells_no_time_of_it(
    gateway: GatewayProcess, tmp_path: Path, language: str
) -> None:
    if why := LANGUAGES[language]():
        pytest.skip(why)
    told = parts(await printed_by(language, gateway.url, f"refused-{language}", LITTLE, tmp_path))
    sent, failed, _ = told["rate"]
    assert sent == 0 and failed > 0
    assert (told["single"], told["late"], told["crowd"]) == ([5, []], [10, 0, []], [40, 0, []])
