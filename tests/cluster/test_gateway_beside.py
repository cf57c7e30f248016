"""A real node with `[gateway] rocketmq`: the gateway is kept running beside it, and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.test_upgrade import level
from tests.gateway.rocketmq_calls import Calls, code, message

pytestmark = pytest.mark.beside

PATIENCE_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A node, not started, that has a gateway on a free port, with a file of its own."""
    (port,) = free_ports(1)
    (tmp_path / "rocketmq.toml").write_text("[limits]\ninvisible_ms_min = 200\n")
    asked = {"rocketmq": f"127.0.0.1:{port}", "rocketmq_file": str(tmp_path / "rocketmq.toml")}
    with Disposable(1, tmp_path / "cluster", {"gateway": asked, "consensus": STEADY}) as nodes:
        yield nodes


def gateways(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Return what the node's log says of gateways that listened, the last of them last."""
    lines = (json.loads(line) for line in cluster.nodes["n1"].log.read_text().splitlines() if line[:1] == "{")
    return [line for line in lines if line.get("event") == "gateway"]


async def until(ready: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()


async def there_and_back(address: str, body: bytes) -> None:
    """Have a message go through the gateway."""
    async with Calls(address) as call:
        given, got = message("beside", body), list[Any]()
        async with asyncio.timeout(PATIENCE_S):
            while code((await call.send(given)).status) != "OK":  # its answer takes its time
                pass
            while not got:
                _, got = await call.receive("beside")
        assert [each.body for each in got] == [body]
        assert await call.ack("beside", *got) == ["OK"]


async def test_the_gateway_serves_and_is_started_anew_and_ends_with_its_node(cluster: LocalCluster) -> None:
    cluster.start()
    await asyncio.to_thread(cluster.wait_until_serving, PATIENCE_S)
    await level(cluster, 2)
    await until(lambda: len(gateways(cluster)) == 1)
    (first,) = gateways(cluster)
    await there_and_back(first["address"], b"first")
    os.kill(first["pid"], signal.SIGKILL)
    await until(lambda: len(gateways(cluster)) == 2)
    second = gateways(cluster)[-1]
    assert (second["address"], second["pid"] != first["pid"]) == (first["address"], True)
    await there_and_back(second["address"], b"second")

    cluster.kill("n1")  # by SIGKILL: the node ends nothing itself
    await until(lambda: not is_there(second["pid"]))
    cluster.start()
    await asyncio.to_thread(cluster.wait_until_serving, PATIENCE_S)
    await until(lambda: len(gateways(cluster)) == 3)
    third = gateways(cluster)[-1]
    await there_and_back(third["address"], b"third")
    assert await asyncio.to_thread(cluster.stop, "n1") == 0
    assert not is_there(third["pid"])
    async with Calls(third["address"], timeout_s=1) as call:
        with pytest.raises(grpc.aio.AioRpcError):
            await call.send(message("beside"))


def test_a_file_that_the_gateway_would_refuse_ends_the_node_at_once(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    (tmp_path / "rocketmq.toml").write_text("[limits]\ncalls_max = 0\n")
    done = subprocess.run(
        [sys.executable, "-m", "tarry.node", "node", "--config", str(cluster.nodes["n1"].config)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "limits.calls_max" in done.stderr
