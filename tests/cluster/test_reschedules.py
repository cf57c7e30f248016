"""Rescheduled and updated messages of real nodes: delivered once, at the new time, under their ids."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tarry.client.aio import ChangeOutcome, Client, Scheduled, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PATIENCE_S = 60
CHANGED, ALREADY_SO = ChangeOutcome.CHANGED, ChangeOutcome.ALREADY_SO
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def schedule(client: Client, bodies: list[bytes], due_ms: int) -> list[Scheduled]:
    producer = client.producer()
    return list(await asyncio.gather(*(producer.schedule("moved", body, due_ms=due_ms) for body in bodies)))


async def play(cluster: LocalCluster) -> dict[str, tuple[bytes, int, int]]:
    """Reschedule earlier and later, with leaders killed in between; what is delivered, by id."""
    got: dict[str, tuple[bytes, int, int]] = {}
    async with connect(cluster.addresses) as client:
        await client.operator().finish_upgrade()
        await client.operator().create_group("moved", "g")
        later = await schedule(client, [b"later %d" % n for n in range(100)], now_ms() + 6_000)
        sooner = await schedule(client, [b"sooner %d" % n for n in range(100)], now_ms() + 5 * HOUR_MS)
        producer, ids = client.producer(), [one.id for one in (*later, *sooner)]
        first = await producer.reschedule_many(ids, due_ms=now_ms() + 9 * HOUR_MS)
        assert {change.outcome for change in first} == {CHANGED}
        cluster.kill(leader := cluster.wait_for_leader())
        due = [now_ms() + 9_000 + 10 * n for n in range(len(ids))]
        expected = [change.due_ms or 0 for change in first]
        second = await producer.reschedule_many(ids, due_ms=due, if_due_ms=expected)
        assert {change.outcome for change in second} <= {CHANGED, ALREADY_SO}
        assert [change.due_ms for change in second] == due
        update = await producer.update(ids[0], body=b"updated", tags=["red"])
        assert update.outcome is CHANGED
        cluster.start(leader)
        cluster.wait_until_serving()
        cluster.kill(cluster.wait_for_leader())
        assert (await producer.get(ids[1])).due_ms == due[1]
        async with client.consumer("moved", "g") as consumer, asyncio.timeout(PATIENCE_S):
            async for message in consumer:
                assert message.id not in got or message.maybe_duplicate
                assert now_ms() >= message.due_ms
                got[message.id] = message.body, message.due_ms, message.attempt
                await message.ack()
                if len(got) == len(ids):
                    break
        assert list(map(got.get, ids)) == [
            (b"updated" if one == ids[0] else got[one][0], at, 1) for one, at in zip(ids, due, strict=True)
        ]
    return got


def test_they_are_delivered_once_at_the_new_time_under_their_ids_though_leaders_are_killed(
    tmp_path: Path,
) -> None:
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        got = asyncio.run(play(cluster))
    bodies = {body for body, _, _ in got.values()}
    assert bodies == {b"updated"} | {b"%s %d" % (w, n) for w in (b"later", b"sooner") for n in range(100)} - {
        b"later 0"
    }


@pytest.fixture
def tarry(shared_cluster: LocalCluster) -> Any:
    def call(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments, "-s", shared_cluster.addresses], input=stdin)

    assert call("upgrade", "finish").exit_code == 0
    return call


def ok(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_commands_change_a_message_and_end_with_one_where_it_is_not_so(tarry: Any) -> None:
    given = ok(tarry("schedule", "shop", "hello", "--delay", "1h", "--tag", "a", "--key", "k", "-o", "json"))
    due = given["due_ms"] + 1_000
    asked = ("reschedule", given["id"], "--due", str(due), "--if-due", str(given["due_ms"]))
    assert ok(tarry(*asked, "-o", "json")) == [{"id": given["id"], "outcome": "changed", "due_ms": due}]
    assert "already_so" in tarry(*asked).stdout
    other = tarry("reschedule", given["id"], "--delay", "5s", "--if-due", "1792281600000")
    assert (other.exit_code, "due_differs" in other.stdout) == (1, True)
    (changed,) = ok(tarry("update", given["id"], "-", "--no-keys", "-p", "a=b", "-o", "json", stdin="news"))
    assert changed["outcome"] == "changed"
    shown = ok(tarry("get", given["id"], "-o", "json"))
    assert (shown["body"], shown["tags"], shown["keys"]) == ("news", ["a"], [])
    assert (shown["properties"], shown["due_ms"], shown["state"]) == ({"a": "b"}, due, "pending")
    for wrong in (
        ("reschedule", given["id"]),
        ("reschedule", given["id"], "--delay", "1s", "--due", "2030-01-01T00:00:00Z"),
        ("update", given["id"]),
        ("update", given["id"], "--tag", "x", "--no-tags"),
    ):
        assert tarry(*wrong).exit_code == 2
    for command in ("reschedule", "update"):
        assert "--if-due" in tarry(command, "--help").stdout
