"""The end of an upgrade, by real nodes: by themselves, and when an operator says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.aio import connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PATIENCE_S = 40


def tarry(cluster: LocalCluster, *arguments: str) -> Any:
    """Return what a command prints for programs."""
    result = CliRunner().invoke(app, ["upgrade", *arguments, "-o", "json", "-s", cluster.addresses])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def level(cluster: LocalCluster, wanted: int) -> None:
    """Return once all nodes have applied the level."""
    async with connect(cluster.addresses) as client, asyncio.timeout(PATIENCE_S):
        while True:
            answers = await client.operator().status_of_all()
            if {getattr(answer, "level", 0) for answer in answers.values()} == {wanted}:
                return
            await asyncio.sleep(0.1)


def test_a_new_cluster_of_one_version_raises_its_level_by_itself(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))
        found = tarry(cluster, "status")
        assert (found["level"], found["next_level"], found["missing"]) == (2, 2, {})
        assert found["finish"] == "auto"
        cluster.kill("n2")
        cluster.start("n2")
        asyncio.run(level(cluster, 2))


def test_an_operator_finishes_an_upgrade_once_all_members_answer(tmp_path: Path) -> None:
    with Disposable(3, tmp_path, {"upgrade": {"finish": "manual"}}) as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        away = next(name for name in cluster.nodes if name != leader)
        cluster.kill(away)
        found = tarry(cluster, "status")
        assert (found["level"], found["next_level"], found["missing"]) == (1, 2, {away: "it does not answer"})
        refused = CliRunner().invoke(app, ["upgrade", "finish", "-o", "json", "-s", cluster.addresses])
        assert refused.exit_code == 1
        assert json.loads(refused.stderr)["error"] == "UPGRADE_REFUSED"
        assert away in json.loads(refused.stderr)["text"]
        cluster.start(away)
        asyncio.run(level(cluster, 1))
        assert tarry(cluster, "finish") == {"level": 2}
        asyncio.run(level(cluster, 2))
