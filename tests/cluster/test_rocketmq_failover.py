"""Leaders that are killed under RocketMQ's own client: nothing lost, early, or delivered after its recall."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster
from tests.cluster.gateways import rocketmq_gateway
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

PROGRAM = Path(__file__).parent / "rocketmq_programs/load.py"
END_S = 200
KILLS = 2


@pytest.mark.skipif(find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed")
def test_python_s_client_sees_no_more_than_a_retry_as_leaders_are_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    asyncio.run(level(cluster, 2))
    with rocketmq_gateway(cluster.addresses) as gateway:
        client = subprocess.Popen(
            [sys.executable, str(PROGRAM), gateway.url, "under-load"],
            env={**os.environ, "HOME": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert client.stdout is not None
            begun = client.stdout.readline()
            assert begun.strip() == "begun", client.communicate()[1]
            for _ in range(KILLS):
                time.sleep(3)
                leader = cluster.wait_until_serving()
                cluster.kill(leader)
                cluster.wait_until_serving()
                cluster.start(leader)
            time.sleep(3)
            told, errors = client.communicate("\n", timeout=END_S)
        finally:
            client.kill()
            client.communicate()
        assert client.returncode == 0, errors[-4_000:]
    got = json.loads(told)
    sent, seen = got["sent"], got["seen"]
    assert len(sent) > 100
    assert [error for error in got["errors"] if not error.startswith("recall")] == []
    assert sent.keys() - {body for body, *_ in seen} == set()
    assert [each for each in seen if each[0] in sent and each[1] < sent[each[0]]] == []
    assert {body for body, *_ in seen} & set(got["recalled"]) == set()
    assert got["recalled"]
    first: set[str] = set()
    unmarked = []
    for body, _, attempt, mark in seen:
        if body in first and not mark and attempt == 1:
            unmarked.append(body)
        first.add(body)
    assert unmarked == []
