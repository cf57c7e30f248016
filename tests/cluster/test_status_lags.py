"""What a status says is late, of a cluster that cannot release because a majority of it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from tarry.client import sync
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_operator_pb2 import ClusterStatusResponse

COUNT = 7
DELAY_MS = 4_000


def waited(
    cluster: LocalCluster, name: str, until: Callable[[ClusterStatusResponse], bool]
) -> ClusterStatusResponse:
    """Return the first status of the node of which that holds."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = cluster.status(name)
        if status is not None and until(status):
            return status
        time.sleep(0.05)
    pytest.fail(f"it never came to it: {cluster.status(name)}")


def test_what_is_overdue_while_nobody_can_release_is_told_and_afterwards_how_late_it_was(
    cluster: LocalCluster,
) -> None:
    leader = cluster.wait_until_serving()
    with sync.connect(cluster.addresses) as client, client.producer() as producer:
        producer.schedule_batch("late", [b"x"] * COUNT, delay_ms=DELAY_MS)
        producer.schedule("late", b"not yet", delay_ms=3_600_000)
    for name in cluster.nodes.keys() - {leader}:
        cluster.kill(name)
    overdue = waited(cluster, leader, lambda status: status.overdue > 0)
    assert (overdue.lease, overdue.overdue, overdue.pending) == (False, COUNT, COUNT + 1)
    assert not overdue.HasField("lateness")
    [topic] = overdue.topics
    assert topic.overdue == COUNT
    assert 0 <= topic.oldest_overdue_ms - overdue.oldest_overdue_ms < 500  # of a moment later
    older = waited(cluster, leader, lambda status: status.oldest_overdue_ms > 1_000)
    assert (older.overdue, older.topics[0].overdue) == (COUNT, COUNT)
    shown = CliRunner().invoke(app, ["status", "-s", cluster.nodes[leader].address])
    assert f"; overdue {COUNT}, oldest " in " ".join(shown.stderr.split())
    cluster.start()
    serving = cluster.wait_for_leader()
    told = waited(cluster, serving, lambda status: status.lateness.released >= COUNT)
    assert (told.overdue, told.oldest_overdue_ms, told.pending) == (0, 0, 1)
    assert told.lateness.released == COUNT
    assert told.lateness.max_ms > 1_000
    assert told.lateness.p50_ms <= told.lateness.p99_ms <= told.lateness.max_ms
    assert told.topics[0].lateness.released == COUNT
    for follower in cluster.nodes.keys() - {serving}:
        status = waited(cluster, follower, lambda _: True)
        assert not status.HasField("lateness")
