"""``tarry forecast`` beside real nodes: leader and followers tell what clients have scheduled."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client import sync
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside

PATIENCE_S = 60.0


def forecast(server: str, *more: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["forecast", "-s", server, "-o", "json", *more])
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def asked(server: str, arguments: list[str], pending: int) -> dict[str, Any]:
    """Return a forecast once the node that answers has applied that so many messages are pending."""
    deadline = time.monotonic() + PATIENCE_S
    while (look := forecast(server, *arguments))["pending"] != pending:
        assert time.monotonic() < deadline, look
        time.sleep(0.02)
    return look


def test_leader_and_followers_tell_what_is_due_in_each_second_minute_and_hour(cluster: LocalCluster) -> None:
    leader = cluster.wait_until_serving()
    server = cluster.nodes[leader].address
    with sync.connect(cluster.addresses) as client:
        now_ms = client.operator().status().now_ms
        due_ms = [now_ms + 120_000 + 7_001 * number for number in range(200)]
        producer = client.producer()
        for number, due in enumerate(due_ms):
            producer.schedule(
                "even" if number % 2 == 0 else "odd",
                b"x",
                due_ms=due,
                tags=["third"] if number % 3 == 0 else [],
            )
        for node in cluster.nodes.values():
            for by, bucket_ms in (("second", 1_000), ("minute", 60_000), ("hour", 3_600_000)):
                for topic, chosen in (("", due_ms), ("even", due_ms[::2]), ("odd", due_ms[1::2])):
                    only = ("--topic", topic) if topic else ()
                    look = asked(server, ["--at", node.address, "--by", by, *only], pending=len(chosen))
                    assert (look["node"], look["leads"]) == (node.name, node.name == leader)
                    assert look["heard_ms_ago"] == 0 if look["leads"] else look["heard_ms_ago"] < 60_000
                    expected = Counter((due - look["first_ms"]) // bucket_ms for due in chosen)
                    counts = {at: count for at, count in enumerate(look["counts"]) if count}
                    assert counts == {at: n for at, n in expected.items() if at < len(look["counts"])}
                    assert sum(counts.values()) == len(chosen)
                    assert (look["overdue"], look["bucket_ms"]) == (0, bucket_ms)
            thirds = forecast(server, "--at", node.address, "--topic", "even", "--tag", "third")
            assert (sum(thirds["counts"]), thirds["upper_bound"]) == (34, False)


def test_with_linearizable_a_follower_s_answer_has_what_was_acknowledged_before(
    cluster: LocalCluster,
) -> None:
    leader = cluster.wait_until_serving()
    follower = next(node for node in cluster.nodes.values() if node.name != leader)
    with sync.connect(cluster.addresses) as client:
        producer, query = client.producer(), client.query()
        for number in range(30):
            producer.schedule("t", b"x", delay_ms=600_000)
            look = query.forecast(address=follower.address, topic="t", buckets=1, linearizable=True)
            assert (look.pending, look.leads) == (number + 1, True)
        assert query.forecast(topic="t").pending == 30


def test_people_get_bars_and_what_is_refused_ends_with_1(shared_cluster: LocalCluster) -> None:
    servers = shared_cluster.addresses
    shared_cluster.wait_until_serving()

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["forecast", "-s", servers, *arguments])

    shown = run("--for", "1m")
    assert shown.exit_code == 0, shown.output
    assert "pending; overdue" in shown.stdout
    assert "+1m" in shown.stdout
    looks = run("--looks", "2", "--every", "200ms", "-o", "json", "--by", "hour")
    assert [len(json.loads(line)["counts"]) > 0 for line in looks.stdout.splitlines()] == [True, True]
    refused = run("--topic", "nobody-has-made-it", "-o", "json")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]) == (1, "TOPIC_UNKNOWN")
    assert run("--for", "2h").exit_code == 1  # of more seconds than a forecast has
