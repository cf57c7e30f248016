"""``tarry list`` on a real cluster: retries, dead letters, and a leader that is killed between two pages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tarry.client import aio, sync
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside

PATIENCE_S = 30.0
HOUR_MS = 3_600_000


def tarry(cluster: LocalCluster, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run the command line; what it printed, and its words."""
    done = subprocess.run(
        [sys.executable, "-m", "tarry.node", *arguments, "--server", cluster.addresses],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def listed(cluster: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    printed, _ = tarry(cluster, "list", *arguments, "-o", "json")
    return [json.loads(line) for line in printed.splitlines()]


def until(found: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_what_waits_is_listed_in_every_state_and_dead_letters_with_where_they_came_from(
    shared_cluster: LocalCluster,
) -> None:
    with sync.connect(shared_cluster.addresses) as client:
        operator, producer, query = client.operator(), client.producer(), client.query()
        operator.create_topic("listed")
        late = producer.schedule("listed", b"late", delay_ms=2 * HOUR_MS, tags=["blue"], keys=["order-1"])
        soon = producer.schedule("listed", b"soon", delay_ms=HOUR_MS, tags=["red"], keys=["order-2"])
        due = [producer.schedule("listed", b"due %d" % at, delay_ms=0).id for at in range(3)]
        puller = client.puller("listed", "g", name="c")
        received: dict[str, Any] = {}
        while len(received) < 3:
            received |= {each.id: each for each in puller.receive(3, wait_ms=5_000)}
        second, third = received[due[1]], received[due[2]]
        puller.nack([second], delay_ms=HOUR_MS)
        puller.ack([third])
        rows = listed(shared_cluster, "listed", "--group", "g", "--bodies")
        assert [(row["state"], row["id"], row["body"]) for row in rows] in (
            [("pending", soon.id, "soon"), ("retrying", due[1], "due 1"), ("pending", late.id, "late"),
             ("in_hand", due[0], "due 0")],
            [("retrying", due[1], "due 1"), ("pending", soon.id, "soon"), ("pending", late.id, "late"),
             ("in_hand", due[0], "due 0")],
        )  # fmt: skip
        retry = next(row for row in rows if row["state"] == "retrying")
        assert (retry["group"], retry["attempt"], retry["reason"]) == ("g", 2, "nacked")
        table, words = tarry(shared_cluster, "list", "listed", "--tag", "red", "--key-prefix", "order-")
        assert soon.id in table
        assert late.id not in table
        assert "1 messages" in words
        by_key = query.list_page("listed", keys=["order-1"], states=["pending"])
        assert [each.id for each in by_key.messages] == [late.id]
        assert by_key.messages[0].body is None
        window = list(query.list_messages("listed", due_from_ms=late.due_ms, due_to_ms=late.due_ms + 1))
        assert [each.id for each in window] == [late.id]
        states = {state.value for state in aio.ListedState}
        assert {row["state"] for row in listed(shared_cluster, "listed", "--state", "released")} <= states

        operator.create_group("listed", "d")
        operator.set_group("listed", "d", attempts_max=1)
        reader = client.puller("listed", "d", name="c")
        (dead,) = reader.receive(1, wait_ms=5_000)
        reader.nack([dead])
        until(lambda: len(query.list_page("dlq.d.listed").messages) == 1)
        (letter,) = listed(shared_cluster, "dlq.d.listed", "--bodies")
        assert letter["properties"]["tarry.origin_id"] == dead.id
        assert (letter["properties"]["tarry.reason"], letter["body"]) == ("NACKED", dead.body.decode())


def test_a_listing_goes_on_where_its_leader_is_killed_between_two_pages(cluster: LocalCluster) -> None:
    with sync.connect(cluster.addresses) as client:
        given = client.producer().schedule_batch("t", [b"%d" % at for at in range(500)], delay_ms=HOUR_MS).ids
        messages = client.query().list_messages("t", limit=450)
        seen = [next(messages).id]
        printed, words = tarry(cluster, "list", "t", "--limit", "200", "-o", "json")
        begun = [json.loads(line)["id"] for line in printed.splitlines()]
        cursor = json.loads(words.splitlines()[-1])["cursor"]
        page = client.query().list_page("t", size=100)
        cluster.kill(cluster.wait_until_serving())
        seen += [message.id for message in messages]
        assert seen == given[:450]
        begun += [row["id"] for row in listed(cluster, "t", "--limit", "1000", "--cursor", cursor)]
        assert begun == given
        rest = client.query().list_page("t", size=1_000, cursor=page.cursor)
        assert [message.id for message in (*page.messages, *rest.messages)] == given
        _, words = tarry(cluster, "list", "t", "--limit", "2")
        assert "--cursor" in words


def test_what_cannot_be_listed_is_refused_with_what_to_do(shared_cluster: LocalCluster) -> None:
    for arguments, reason in (
        (["nowhere"], "TOPIC_UNKNOWN"),
        (["listed-2", "--cursor", "x"], "QUERY_INVALID"),
        (["listed-2", "--state", "settled"], "QUERY_INVALID"),
        (["listed-2", "--group", "none"], "GROUP_UNKNOWN"),
    ):
        with sync.connect(shared_cluster.addresses) as client:
            client.operator().create_topic("listed-2")
        _, words = tarry(shared_cluster, "list", *arguments, code=1)
        assert reason in words


def test_the_async_client_lists_and_stops_where_it_is_told_to(shared_cluster: LocalCluster) -> None:
    async def act() -> None:
        async with aio.connect(shared_cluster.addresses) as client:
            given = await client.producer().schedule_batch("listed-3", [b""] * 30, delay_ms=HOUR_MS)
            some = [each.id async for each in client.query().list_messages("listed-3", limit=7)]
            assert some == given.ids[:7]
            for wrong in ({"due_from_ms": -1}, {"states": ["lost"]}, {"due_to_ms": 1 << 63}):
                with pytest.raises(aio.TarryError, match="QUERY_INVALID"):
                    await client.query().list_page("listed-3", **wrong)

    asyncio.run(act())
