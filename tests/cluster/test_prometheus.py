"""A real Prometheus with the files of docker-compose.yml's profile asks real nodes, and has what is shown.

Of the configuration only addresses and intervals are others, of the rules only how long a fault has to last.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tarry.client import sync
from tarry.client.errors import Refused
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports
from tarry.client.sync import Client
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.test_metrics_port import with_ports
from tests.node.monitoring.documented import MONITORING
from tests.node.monitoring.test_dashboard import TARGETS

PATH = shutil.which("prometheus") or ""
pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not PATH, reason="no prometheus on the PATH: install Debian's package prometheus"),
]

PATIENCE_S = 60.0
EVERY_S = 1
RATE_INTERVAL = "20s"
TOPIC, GROUP = "orders", "mailer"
EMPTY_IN_GOOD_ORDER = {"Alerts A"}
"""Panels that show nothing while nothing is wrong."""


@pytest.fixture
def asked_cluster(tmp_path: Path) -> Iterator[tuple[LocalCluster, Prometheus]]:
    with Disposable(3, tmp_path / "nodes", {"consensus": STEADY}) as cluster:
        ports = with_ports(cluster)
        cluster.start()
        cluster.wait_until_serving()
        with Prometheus(tmp_path / "prometheus", ports) as prometheus:
            yield cluster, prometheus


class Prometheus:
    """A process of Prometheus, while the block lasts."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        folder.mkdir()
        self._folder = folder
        self.targets = [f"127.0.0.1:{port}" for port in ports]
        config = yaml.safe_load((MONITORING / "compose" / "prometheus.yml").read_text())
        config["global"] = dict.fromkeys(config["global"], f"{EVERY_S}s")
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": self.targets}]
        self.job: str = job["job_name"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        rules = (MONITORING / "alerts.yml").read_text()
        (folder / "alerts.yml").write_text(re.sub(r"for: \d+[smh]", f"for: {3 * EVERY_S}s", rules))

    def __enter__(self) -> Prometheus:
        (port,) = free_ports(1)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", timeout=PATIENCE_S)
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    PATH,
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def asked(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer; None before it listens, and while it starts."""
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            answer = self._client.get(path, params=parameters)
        except httpx.ConnectError:
            return None
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return None
        assert answer.status_code == 200, (parameters, answer.text)
        return answer.json()["data"]

    def values(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples that an expression has now."""
        found: list[dict[str, Any]] = self.asked("query", query=expression)["result"]
        return found

    def of_panel(self, name: str) -> list[dict[str, Any]]:
        """Return what a panel of the dashboard shows, all topics and groups chosen."""
        expression: str = TARGETS[name]["expr"]
        for variable, value in {
            "__rate_interval": RATE_INTERVAL,
            "job": self.job,
            "topic": ".*",
            "group": ".*",
        }.items():
            expression = expression.replace(f"${variable}", value)
        return self.values(expression)

    def health(self) -> dict[str, str]:
        """Return how each target answered last."""
        found = self.asked("targets") or {"activeTargets": []}
        return {target["labels"]["instance"]: target["health"] for target in found["activeTargets"]}

    def firing(self) -> set[tuple[str, str]]:
        """Return the names of alerts that fire, and of which node."""
        alerts = self.asked("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }


def traffic(client: Client) -> None:
    """Have a message of each fate, so that each metric has a sample."""
    with client.producer() as producer:
        later = producer.schedule(TOPIC, b"x", delay_ms=3_600_000)
        producer.cancel(later.id)
        with pytest.raises(Refused):
            producer.schedule(TOPIC, b"x", delay_ms=0, tags=[str(number) for number in range(1_000)])
        producer.schedule_batch(TOPIC, [b"x"] * 100, delay_ms=0)
    with client.consumer(TOPIC, GROUP, start="earliest") as consumer:
        for number, message in enumerate(consumer, 1):
            message.nack(delay_ms=0) if number == 1 else message.ack()
            if number == 50:
                break


def test_every_panel_of_the_dashboard_has_what_it_shows_and_a_node_that_is_down_is_told_of(
    asked_cluster: tuple[LocalCluster, Prometheus],
) -> None:
    cluster, prometheus = asked_cluster
    deadline = time.monotonic() + PATIENCE_S
    while prometheus.health() != dict.fromkeys(prometheus.targets, "up"):
        assert time.monotonic() < deadline, prometheus.health()
        time.sleep(0.2)
    missing = TARGETS.keys() - EMPTY_IN_GOOD_ORDER
    with sync.connect(cluster.addresses) as client:
        while missing:
            traffic(client)
            time.sleep(EVERY_S)
            missing = {name for name in missing if not prometheus.of_panel(name)}
            assert time.monotonic() < deadline, missing
    assert prometheus.firing() == set()
    follower = next(name for name in cluster.nodes if name != cluster.wait_until_serving())
    target = prometheus.targets[list(cluster.nodes).index(follower)]
    cluster.kill(follower)
    deadline = time.monotonic() + PATIENCE_S
    while ("TarryNodeDown", target) not in prometheus.firing():
        assert time.monotonic() < deadline, prometheus.firing()
        time.sleep(0.2)
    assert all(prometheus.of_panel(name) for name in EMPTY_IN_GOOD_ORDER)
    cluster.start(follower)
    while ("TarryNodeDown", target) in prometheus.firing():
        assert time.monotonic() < deadline + PATIENCE_S, prometheus.firing()
        time.sleep(0.2)
