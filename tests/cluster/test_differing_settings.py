"""Files that differ where they must not: the leader names key, values and nodes, in log and status."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.aio import ClusterStatus, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PATIENCE_S = 30


async def until_told(cluster: LocalCluster, *, differs: bool) -> ClusterStatus:
    """Return the leader's status once it tells of something that differs, or does not."""
    async with connect(cluster.addresses) as client, asyncio.timeout(PATIENCE_S):
        while True:
            for status in (await client.operator().status_of_all()).values():
                if isinstance(status, ClusterStatus) and status.lease and bool(status.differing) is differs:
                    return status
            await asyncio.sleep(0.1)


def logged(cluster: LocalCluster, event: str) -> dict[str, Any]:
    """Return the first line that a node logs with an event, once one does."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        for node in cluster.nodes.values():
            for line in node.log.read_text().splitlines():
                if event in line:
                    return dict(json.loads(line))
        time.sleep(0.1)
    raise AssertionError(f"nobody logs {event!r}")


def test_another_limit_in_one_file_is_told_by_the_leader_with_both_values(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        odd = cluster.nodes["n2"].config
        whole = odd.read_text()
        odd.write_text(whole + "\n[limits]\nkeys_max = 3\ndisk_free_bytes_min = 1\n")
        cluster.start()
        status = asyncio.run(until_told(cluster, differs=True))
        for one in status.differing:
            assert one.key == "limits.keys_max"
            assert {one.node: one.value, one.other: one.other_value}["n2"] == "3"
            assert "n2" in (one.node, one.other)
        for _ in range(20):  # the leader may be another one by then, which asks anew
            shown = CliRunner().invoke(app, ["status", "-s", cluster.addresses])
            programs = CliRunner().invoke(app, ["status", "-o", "json", "-s", cluster.addresses])
            answers = json.loads(programs.stdout).values()
            told = [one["differing"] for one in answers if one.get("differing")]
            if told and "settings differ" in shown.stderr:
                break
            asyncio.run(until_told(cluster, differs=True))
        assert "settings differ: limits.keys_max is" in shown.stderr
        assert told[0][0]["key"] == "limits.keys_max"
        line = logged(cluster, "settings differ between nodes")
        assert (line["key"], line["values"]["n2"]) == ("limits.keys_max", "3")
        cluster.kill("n2")
        odd.write_text(whole)
        cluster.start("n2")
        asyncio.run(until_told(cluster, differs=False))
