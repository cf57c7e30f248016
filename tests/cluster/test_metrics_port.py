"""Real nodes answer scrapes and probes over HTTP, whatever strangers do with the port meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tarry.client.local.cluster import LocalCluster, toml
from tarry.client.local.free_ports import free_ports
from tarry.proto.version import VERSION
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

pytestmark = pytest.mark.beside

PATIENCE_S = 60.0


def asked(port: int, path: str) -> tuple[int, str, str]:
    """Return status, type and text of a page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def until_answered(cluster: LocalCluster, port: int, path: str, status: int) -> str:
    """Wait for an answer of this status; return its text."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found, _, text = asked(port, path)
        except ConnectionError:
            found, text = 0, "no answer"
        if found == status:
            return text
        assert time.monotonic() < deadline, (found, text, cluster.nodes["n1"].log_tail())
        time.sleep(0.05)


def with_ports(cluster: LocalCluster) -> list[int]:
    """Give each node a port for metrics; return them."""
    ports = free_ports(cluster.size)
    for node, port in zip(cluster.nodes.values(), ports, strict=True):
        with node.config.open("a") as config:
            config.write("\n".join(("", *toml({"metrics": {"listen": f"127.0.0.1:{port}"}}), "")))
    return [*ports]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[LocalCluster, list[int]]]:
    with Disposable(3, tmp_path, {"consensus": STEADY}) as cluster:
        yield cluster, with_ports(cluster)


def test_a_node_that_serves_answers_all_three_pages_and_names_them(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        [port] = with_ports(cluster)
        cluster.start()
        cluster.wait_until_serving()
        text = "text/plain; charset=utf-8"
        assert asked(port, "/healthz") == (200, text, "alive\n")
        assert asked(port, "/readyz") == (200, text, "ready\n")
        assert asked(port, "/")[::2] == (404, "no such page; there are /metrics, /healthz, /readyz\n")
        status, kind, page = asked(port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        families = {family.name: family for family in text_string_to_metric_families(page)}
        [build] = families["tarry_build_info"].samples
        assert (build.labels["version"], build.labels["node"], build.value) == (VERSION, "n1", 1)
        assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
        log = cluster.nodes["n1"].log_tail()
        assert f'"address": "127.0.0.1:{port}", "event": "metrics"' in log
        assert "metrics readable" not in log
        assert cluster.stop("n1") == 0
        with pytest.raises(ConnectionRefusedError):
            asked(port, "/healthz")


@pytest.mark.parametrize("led", [True, False])
def test_a_node_is_ready_while_somebody_leads(three: tuple[LocalCluster, list[int]], *, led: bool) -> None:
    """Of three, one is left in the end that led, or did not."""
    cluster, ports = three
    cluster.start("n1")
    assert until_answered(cluster, ports[0], "/healthz", 200) == "alive\n"
    why = "the cluster has no leader right now: try again\n"
    assert asked(ports[0], "/readyz")[::2] == (503, why)
    cluster.start()
    leader = cluster.wait_until_serving()
    for port in ports:
        assert until_answered(cluster, port, "/readyz", 200) == "ready\n"
    left = next(name for name in cluster.nodes if (name == leader) == led)
    for name in cluster.nodes.keys() - {left}:
        cluster.kill(name)
    port = ports[list(cluster.nodes).index(left)]
    assert until_answered(cluster, port, "/readyz", 503) == why
    assert asked(port, "/healthz")[0] == 200
    assert "\ntarry_raft_has_leader 0.0\n" in asked(port, "/metrics")[2]


def test_a_port_that_is_taken_is_named_and_the_node_does_not_start(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster, socket.socket() as taken:
        [port] = with_ports(cluster)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        cluster.start()
        process = cluster.nodes["n1"].process
        assert process is not None
        assert process.wait(PATIENCE_S) == 2
        log = cluster.nodes["n1"].log_tail()
        assert f"cannot listen for metrics at 127.0.0.1:{port}" in log
        assert "set metrics.listen" in log
        assert "Traceback" not in log


def test_an_address_that_others_can_reach_is_warned_of(tmp_path: Path) -> None:
    with Disposable(1, tmp_path, {"metrics": {"listen": "0.0.0.0:0"}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        assert "metrics readable by whoever reaches their address" in cluster.nodes["n1"].log_tail()


def test_a_port_full_of_silent_strangers_keeps_nobody_from_the_node(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster, ExitStack() as strangers:
        [port] = with_ports(cluster)
        cluster.start()
        cluster.wait_until_serving()
        for _ in range(100):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            stranger.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert [status.lease for status in cluster.statuses()] == [True]
        strangers.close()
        assert until_answered(cluster, port, "/healthz", 200) == "alive\n"
        assert "metrics connections closed: too many at once" in cluster.nodes["n1"].log_tail()
        assert cluster.nodes["n1"].running
