"""A node that cannot reach another's port for streams says so, in its log and its status."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster, toml
from tarry.client.local.free_ports import free_ports
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PATIENCE_S = 60.0


def blocked_lines(cluster: LocalCluster, name: str) -> list[dict[str, Any]]:
    lines = [line for line in cluster.nodes[name].log_tail(1_000).splitlines() if line.startswith("{")]
    return [line for line in map(json.loads, lines) if line["event"] == "peer port blocked"]


def test_a_blocked_port_is_named_in_the_log_and_in_the_status_of_who_cannot_connect(tmp_path: Path) -> None:
    [closed] = free_ports(1)
    with Disposable(3, tmp_path) as cluster:
        led = f"127.0.0.1:{closed}"
        with cluster.nodes["n1"].config.open("a") as config:
            config.write("\n".join(("", *toml({"dial": {cluster.nodes["n2"].peer_address: led}}))))
        cluster.start()
        deadline = time.monotonic() + PATIENCE_S
        while not blocked_lines(cluster, "n1"):
            assert time.monotonic() < deadline, cluster.nodes["n1"].log_tail()
            time.sleep(0.1)
        line = blocked_lines(cluster, "n1")[0]
        assert (line["peer"], line["address"], line["level"]) == ("n2", led, "warning")
        assert f"open TCP {led}" in line["to_do"]
        asked = ["status", "-s", cluster.addresses]
        told = json.loads(CliRunner().invoke(app, [*asked, "-o", "json"]).stdout)
        seen = {
            (answer["node"], member["node"]): member["blocked"]
            for answer in told.values()
            for member in answer["members"]
        }
        assert seen.pop(("n1", "n2")).startswith(f"{led}: ")
        assert not any(seen.values())
        table = CliRunner(env={"COLUMNS": "300"}).invoke(app, asked).stdout
        assert f"n2 at {led}" in table
        assert not blocked_lines(cluster, "n2")
