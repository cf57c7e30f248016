"""``tarry transaction`` on real nodes: lists what is open and what has ended, and ends it for good."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tarry.client.aio import Client, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

HOUR_MS = 3_600_000
GROUP = "shop-of-the-command"


def ran(cluster: LocalCluster, *arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["transaction", *arguments, "-s", cluster.addresses])
    assert done.exit_code == code, done.output
    return done


def listed(cluster: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    lines = ran(cluster, "list", "-g", GROUP, *arguments, "-o", "json").stdout.splitlines()
    return [json.loads(line) for line in lines]


async def prepared(cluster: LocalCluster) -> None:
    await level(cluster, 2)
    async with connect(cluster.addresses) as client:
        for name in ("1", "2", "3"):
            await client.transactions().prepare(
                GROUP, "ended", b"half", name=name, delay_ms=HOUR_MS, check_after_ms=HOUR_MS
            )


async def seen(client: Client, topic: str) -> tuple[int, int, int, int]:
    """Return how many messages of a topic a list, a search by key, a count and a forecast tell of."""
    query = client.query()
    listed = [one async for one in query.list_messages(topic)]
    found = (await query.find(topic, "k")).messages
    forecast = await query.forecast(topic=topic, linearizable=True)
    return len(listed), len(found), await query.count_matching(topic), forecast.pending


async def test_a_half_message_is_seen_by_nobody_before_its_commit(shared_cluster: LocalCluster) -> None:
    await level(shared_cluster, 2)
    async with connect(shared_cluster.addresses) as client:
        await client.operator().create_topic("unseen")
        for name in ("kept", "dropped"):
            await client.transactions().prepare(
                "shop-unseen",
                "unseen",
                b"half",
                name=name,
                delay_ms=HOUR_MS,
                check_after_ms=HOUR_MS,
                keys=["k"],
            )
        assert await seen(client, "unseen") == (0, 0, 0, 0)
        await client.transactions().commit("shop-unseen", "kept")
        await client.transactions().rollback("shop-unseen", "dropped")
        assert await seen(client, "unseen") == (1, 1, 1, 1)


def test_what_is_open_is_listed_and_ended_and_then_listed_as_ended(shared_cluster: LocalCluster) -> None:
    asyncio.run(prepared(shared_cluster))
    assert [(one["name"], one["state"]) for one in listed(shared_cluster)] == [(n, "open") for n in "123"]
    assert [one["name"] for one in listed(shared_cluster, "--limit", "2")] == ["1", "2"]
    table = ran(shared_cluster, "list", "-g", GROUP).stdout
    assert "open" in table
    committed = json.loads(ran(shared_cluster, "commit", GROUP, "1", "--yes", "-o", "json").stdout)
    assert (committed["state"], committed["topic"]) == ("committed", "ended")
    assert committed["id"]
    ran(shared_cluster, "commit", GROUP, "1", "--yes")  # twice does nothing
    rolled_back = json.loads(ran(shared_cluster, "rollback", GROUP, "2", "--yes", "-o", "json").stdout)
    assert rolled_back["state"] == "rolled_back"
    refused = json.loads(ran(shared_cluster, "commit", GROUP, "2", "--yes", "-o", "json", code=1).stderr)
    assert refused["error"] == "TRANSACTION_ENDED"
    assert [one["name"] for one in listed(shared_cluster)] == ["3"]
    ended = {one["name"]: one["state"] for one in listed(shared_cluster, "--ended")}
    assert ended == {"1": "committed", "2": "rolled_back"}
    unknown = json.loads(ran(shared_cluster, "rollback", GROUP, "none", "--yes", "-o", "json", code=1).stderr)
    assert unknown["error"] == "TRANSACTION_UNKNOWN"
