"""What a cluster's metrics say is what its clients have done, counted one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tarry.client.aio import Consumer, connect
from tarry.client.errors import NotFound
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.test_metrics_port import asked, with_ports
from tests.node.monitoring.documented import SUFFIXES, rows, series

PATIENCE_S = 60
HOUR_MS = 3_600_000
GROUP = {"topic": "orders", "group": "mailer"}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[LocalCluster, list[int]]]:
    with Disposable(3, tmp_path, {"consensus": STEADY}) as cluster:
        ports = with_ports(cluster)
        cluster.start()
        cluster.wait_until_serving()
        yield cluster, ports


def samples(port: int) -> list[Sample]:
    status, _, page = asked(port, "/metrics")
    assert status == 200
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def total(ports: list[int], name: str, **labels: str) -> float:
    """Return the sum of a metric over the nodes, of all samples with these labels."""
    return sum(
        sample.value
        for port in ports
        for sample in samples(port)
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def at_each(ports: list[int], name: str, **labels: str) -> list[float]:
    """Return a metric of each node."""
    return [total([port], name, **labels) for port in ports]


def until(ports: list[int], name: str, expected: list[float], **labels: str) -> None:
    """Wait until each node says so: followers apply a moment later, and a page is a second old at most."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := at_each(ports, name, **labels)) != expected:
        assert time.monotonic() < deadline, (name, labels, found, expected)
        time.sleep(0.2)


async def take(consumer: Consumer) -> None:
    """Take 500 messages: 450 are acknowledged, 30 given back for an hour, 20 kept."""
    taken = 0
    async with asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            taken += 1
            if taken <= 450:
                message.ack_soon()
            elif taken <= 480:
                await message.nack(delay_ms=HOUR_MS)
            if taken == 500:
                return


async def test_counts_equal_what_the_clients_have_done(three: tuple[LocalCluster, list[int]]) -> None:
    cluster, ports = three
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        later = await producer.schedule_batch("later", [b"x"] * 300, delay_ms=HOUR_MS)
        await producer.cancel_many(list(later.ids)[:40])
        await producer.schedule_batch("orders", [b"x"] * 500, delay_ms=0)
        async with client.consumer("orders", group="mailer", lease_ms=600_000) as consumer:
            await take(consumer)
            await asyncio.to_thread(compare, ports)
        with pytest.raises(NotFound):
            await client.operator().describe_topic("no-such-topic")
        await asyncio.to_thread(compare_with_the_page, ports)
        [leader] = [status.node for status in cluster.statuses() if status.lease]
        await asyncio.to_thread(compare_after_a_leader_s_death, cluster, ports, leader)


def compare(ports: list[int]) -> None:
    until(ports, "tarry_back_off_messages", [30] * 3, **GROUP)
    until(ports, "tarry_ready_messages", [20] * 3, **GROUP)
    until(ports, "tarry_topic_pending_messages", [260] * 3, topic="later")
    summed = {
        ("tarry_scheduled_total", "later"): 300,
        ("tarry_cancelled_total", "later"): 40,
        ("tarry_released_total", "later"): 0,
        ("tarry_scheduled_total", "orders"): 500,
        ("tarry_released_total", "orders"): 500,
        ("tarry_expired_total", "orders"): 0,
        ("tarry_release_lateness_seconds_count", "orders"): 500,
        ("tarry_delivery_lateness_seconds_count", "orders"): 500,
        ("tarry_acknowledgement_lateness_seconds_count", "orders"): 450,
    }
    assert {(name, topic): total(ports, name, topic=topic) for name, topic in summed} == summed
    of_group = {
        "tarry_delivered_total": 500,
        "tarry_redelivered_total": 0,
        "tarry_acknowledged_total": 450,
        "tarry_nacked_total": 30,
        "tarry_retried_total": 30,
        "tarry_dead_total": 0,
        "tarry_in_flight_messages": 20,
        "tarry_consumers": 1,
    }
    assert {name: total(ports, name, **GROUP) for name in of_group} == of_group
    bands = [at_each(ports, "tarry_pending_messages", band=band) for band in ("10s", "1h", "1d", "more")]
    assert bands[0] == bands[3] == [0] * 3
    assert [sum(of_node) for of_node in zip(*bands, strict=True)] == [290] * 3
    assert at_each(ports, "tarry_overdue_messages") == [0] * 3
    assert total(ports, "tarry_raft_leads") == 1
    assert total(ports, "tarry_raft_role", role="leader") == 1
    assert len(set(at_each(ports, "tarry_raft_term"))) == 1
    assert all(count > 0 for count in at_each(ports, "tarry_apply_seconds_count"))
    assert all(count > 0 for count in at_each(ports, "tarry_journal_write_seconds_count"))


def compare_with_the_page(ports: list[int]) -> None:
    """All that the page of metrics documents is told, with its labels, by the nodes that it names."""
    deadline = time.monotonic() + PATIENCE_S
    while not total(ports, "tarry_refusals_total", reason="TOPIC_UNKNOWN"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    told = [labels_by_name(port) for port in ports]
    documented = series()
    assert {name: labels for of_node in told for name, labels in of_node.items()} == documented
    [leader] = [port for port in ports if at_each([port], "tarry_raft_leads") == [1]]
    by_leader = {
        name + suffix
        for name, row in rows().items()
        if row.where == "leader" and (row.kind == "gauge" or (row.kind == "histogram" and row.labels))
        for suffix in SUFFIXES.get(row.kind, ("",))
    }
    of_followers = [of_node for port, of_node in zip(ports, told, strict=True) if port != leader]
    assert [by_leader & of_node.keys() for of_node in of_followers] == [set(), set()]


def labels_by_name(port: int) -> dict[str, set[str]]:
    """Return the labels of each sample's name at a node, `le` left out."""
    return {sample.name: sample.labels.keys() - {"le"} for sample in samples(port)}


def compare_after_a_leader_s_death(cluster: LocalCluster, ports: list[int], leader: str) -> None:
    left = [port for name, port in zip(cluster.nodes, ports, strict=True) if name != leader]
    cluster.kill(leader)
    cluster.wait_for_leader()
    deadline = time.monotonic() + PATIENCE_S
    while total(left, "tarry_raft_leads") != 1:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    until(left, "tarry_back_off_messages", [30] * 2, **GROUP)
    until(left, "tarry_topic_pending_messages", [260] * 2, topic="later")
    assert min(at_each(left, "tarry_raft_leader_changes_total")) >= 2
    assert at_each(left, "tarry_raft_peer_connected", peer=leader) == [0, 0]
