"""``tarry history`` of a real cluster: the deliveries of two leaders, and what is now."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tarry.client.aio import Client, GroupState, connect
from tarry.client.errors import InvalidId, NotFound, TarryError
from tarry.client.local.cluster import LocalCluster
from tarry.client.sync import connect as connect_blocking
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside
PATIENCE_S = 60.0
UNKNOWN = "000000000070000007w"


def told(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    """The command's exit code and its output."""
    command = [sys.executable, "-m", "tarry.node", *arguments, "--server", cluster.addresses]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout, done.stderr


async def delivered_twice(client: Client, cluster: LocalCluster) -> str:
    """Have a message nacked, its leader killed, and delivered again; return its id."""
    scheduled = await client.producer().schedule("life", b"x", delay_ms=100)
    async with asyncio.timeout(PATIENCE_S):
        async with client.consumer("life", "g", name="one") as consumer:
            async for message in consumer:
                await message.nack(delay_ms=3_000)
                break
        await asyncio.sleep(1.0)  # the ledger's rows are on disk
        (in_group,) = (await client.query().life(scheduled.id)).groups
        assert (in_group.state, in_group.attempt) == (GroupState.IN_BACK_OFF, 2)
        cluster.kill(cluster.wait_for_leader())
        async with client.consumer("life", "g", name="two") as consumer:
            async for message in consumer:
                assert message.attempt == 2
                (in_group,) = (await client.query().life(scheduled.id)).groups
                assert (in_group.state, in_group.consumer) == (GroupState.IN_HAND, "two")
                await message.ack()
                break
    return scheduled.id


def test_the_command_shows_the_deliveries_of_both_leaders_and_what_is_now(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()

        async def play() -> str:
            async with connect(cluster.addresses) as client:
                return await delivered_twice(client, cluster)

        message = asyncio.run(play())
        code, _, errors = told(cluster, "history", message, "-o", "json", "--deadline", "5s")
        assert code == 3
        assert cluster.nodes[leader].address in errors
        cluster.restart(leader)
        cluster.wait_until_serving()
        code, output, errors = told(cluster, "history", message, "-o", "json")
        assert code == 0, errors
        answer = json.loads(output)
        rows: list[dict[str, Any]] = answer["history"]
        deliveries = [row for row in rows if row["kind"] == "delivered"]
        assert [(row["consumer"], row["attempt"]) for row in deliveries] == [("one", 1), ("two", 2)]
        assert len({row["sources"][0] for row in deliveries}) == 2
        replicated = [row for row in rows if row["kind"] not in ("delivered", "nacked")]
        assert [row["kind"] for row in replicated] == [
            "scheduled", "released", "retried", "released", "acked",
        ]  # fmt: skip
        assert {len(row["sources"]) for row in replicated} <= {2, 3}
        assert [(one["group"], one["state"]) for one in answer["life"]["groups"]] == [("g", "done")]
        code, output, errors = told(cluster, "history", message)
        assert code == 0, errors
        assert "acked at" in output
        code, _, errors = told(cluster, "history", UNKNOWN)
        assert code == 1
        assert "MESSAGE_NOT_FOUND" in errors


def test_wrong_ids_are_refused_and_the_blocking_twin_asks_too(shared_cluster: LocalCluster) -> None:
    with connect_blocking(shared_cluster.addresses) as client:
        message = client.producer().schedule("twin", b"x", delay_ms=60_000)
        assert client.query().life(message.id).topic == "twin"
        history = client.query().history(message.id)
        assert [row.kind for row in history.rows] == ["scheduled"]
        assert history.complete
        errors: dict[str, type[TarryError]] = {UNKNOWN: NotFound, "x": InvalidId}
        for wrong, error in errors.items():
            with pytest.raises(error):
                client.query().life(wrong)
        with pytest.raises(InvalidId):
            client.query().history("x")
