"""Messages found and cancelled by their keys in real clusters, whatever happens to the nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.aio import CancelOutcome, Client, MessageState, Query, TarryError, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable
from tests.cluster.test_members import newcomer

pytestmark = pytest.mark.beside

HOUR_MS = 3_600_000
PATIENCE_S = 30


def tarry(cluster: LocalCluster, *arguments: str, code: int = 0) -> Any:
    """What a command prints."""
    done = CliRunner().invoke(app, [*arguments, "-o", "json", "--server", cluster.addresses])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


async def found(query: Query, key: str, topic: str = "orders") -> list[str]:
    """Return the ids of all pages, once the leader of now answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                ids, begin = list[str](), ""
                while True:
                    page = await query.find(topic, key, limit=7, begin=begin)
                    ids += [message.id for message in page.messages]
                    if not (begin := page.next):
                        return ids
            except TarryError as error:
                assert error.reason in {"KEYS_INCOMPLETE", "NO_LEADER", "NOT_LEADER"}, error
            await asyncio.sleep(0.1)


async def schedule(client: Client, count: int, delay_ms: int = HOUR_MS) -> list[str]:
    keys = [[f"k{number % 10}", "every"] for number in range(count)]
    batch = await client.producer().schedule_batch("orders", [b"x"] * count, delay_ms=delay_ms, keys=keys)
    return batch.ids


async def test_keys_are_found_after_a_killed_leader_and_a_restart_of_every_node(
    cluster: LocalCluster,
) -> None:
    async with connect(cluster.addresses) as client:
        query = client.query()
        ids = await schedule(client, 50)
        assert await found(query, "every") == ids
        cluster.kill(cluster.wait_until_serving())
        ids += await schedule(client, 20)
        assert await found(query, "every") == ids
        assert await found(query, "k3") == ids[3::10]
        for name, node in cluster.nodes.items():
            if node.running:
                cluster.kill(name)
        cluster.start()
        cluster.wait_until_serving()
        assert await found(query, "every") == ids
        assert await found(query, "k3") == ids[3::10]


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes whose journals keep little, so that a newcomer is given a snapshot."""
    dispatch: Any = {"checkpoint_ms": 100, "journal_retained_bytes": 1}
    with Disposable(3, tmp_path, {"dispatch": dispatch}) as three:
        three.start()
        three.wait_until_serving()
        yield three


async def test_a_newcomer_that_got_a_snapshot_finds_all_keys_once_it_leads(forgetful: LocalCluster) -> None:
    cluster = forgetful
    async with connect(cluster.addresses) as client:
        ids = await schedule(client, 30)
        ids += await schedule(client, 30, 1_000 * HOUR_MS)
        await asyncio.sleep(1)
        node = newcomer(cluster, "n4")
        await client.operator().add_member(node.name, node.address, deadline_ms=60_000)
        ids += await schedule(client, 10, 2_000 * HOUR_MS)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await client.operator().transfer(node.name)
                except TarryError:
                    await asyncio.sleep(0.2)
                    continue
                every, third = await found(client.query(), "every"), await found(client.query(), "k3")
                if cluster.wait_for_leader() == node.name:  # else a busy machine took it from the newcomer
                    break
        assert (every, third) == (ids, ids[3::10])
        assert (node.folder / "state-2").exists()  # of a snapshot


async def test_all_that_was_acknowledged_is_cancelled_by_its_key_and_the_command_line_finds_it(
    shared_cluster: LocalCluster,
) -> None:
    async with connect(shared_cluster.addresses) as client:
        producer, query = client.producer(), client.query()
        bodies = [b"x", b"\xff", b"z"]
        ids = (await producer.schedule_batch("keyed", bodies, delay_ms=HOUR_MS, keys=[["a", "b"]] * 3)).ids
        other = await producer.schedule("keyed", b"y", delay_ms=2 * HOUR_MS, keys=["b"])
        await producer.cancel(ids[0])
        page = await query.find("keyed", "a", bodies=True)
        assert [(one.id, one.state, one.body, one.keys) for one in page.messages] == [
            (ids[0], MessageState.CANCELLED, b"x", ("a", "b")),
            (ids[1], MessageState.PENDING, b"\xff", ("a", "b")),
            (ids[2], MessageState.PENDING, b"z", ("a", "b")),
        ]
        shown = await asyncio.to_thread(tarry, shared_cluster, "find", "keyed", "a", "--bodies")
        assert [(row["id"], row["state"]) for row in shown] == [
            (ids[0], "cancelled"),
            (ids[1], "pending"),
            (ids[2], "pending"),
        ]
        assert (shown[0]["body"], shown[1]["body_base64"], shown[0]["keys"]) == ("x", "/w==", ["a", "b"])
        few = await asyncio.to_thread(
            tarry, shared_cluster, "find", "keyed", "b", "--state", "pending", "--max", "2"
        )
        assert [row["id"] for row in few] == ids[1:]
        table = await asyncio.to_thread(
            CliRunner().invoke, app, ["find", "keyed", "a", "--bodies", "--server", shared_cluster.addresses]
        )
        assert table.exit_code == 0
        assert ids[1] in table.stdout
        late = [await producer.schedule("keyed", b"", delay_ms=HOUR_MS, keys=["b"]) for _ in range(5)]
        done = await producer.cancel_by_key("keyed", "b", due_to_ms=other.due_ms)
        assert done.outcomes == {CancelOutcome.CANCELLED: 2 + len(late)}
        assert done.cancelled == 2 + len(late)
        states = {one.id: one.state for one in (await query.find("keyed", "b")).messages}
        assert states.pop(other.id) is MessageState.PENDING
        assert set(states.values()) == {MessageState.CANCELLED}
        assert (await producer.cancel_by_key("keyed", "b")).outcomes == {CancelOutcome.CANCELLED: 1}
        assert (await producer.cancel_by_key("keyed", "b")).outcomes == {}
