"""`tarry dev` as a person uses it: start, a node killed, the end; and what is left behind: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest
from tarry.proto.tarry_producer_pb2 import GetRequest, ScheduleRequest
from tests.cluster.wire import TIMEOUT_S, wire

pytestmark = pytest.mark.beside

PATIENCE_S = 30.0


@contextmanager
def dev(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run `tarry dev` until the block ends; gives its process and what it said when it was ready.

    It makes its own folder below this one, and cannot remove it when it is killed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tarry.node", "dev", "--port", "0", "-o", "json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def schedule(server: str, body: bytes) -> str:
    request = ScheduleRequest(topic="greetings", record=Record(body=body), delay_ms=3_600_000)
    with wire(server) as node:
        return str(node.producer.Schedule(request, timeout=TIMEOUT_S).id)


def soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_serves_until_it_is_told_to_end_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with dev(tmp_path) as (process, ready):
        assert schedule(ready["nodes"][0]["address"], b"hello")
        folders = {Path(node["log"]).parent for node in ready["nodes"]}
        assert all(folder.is_relative_to(tmp_path) for folder in folders)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert all(gone(node["pid"]) for node in ready["nodes"])
        assert not list(tmp_path.iterdir())


def test_a_node_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with dev(tmp_path) as (_, ready):
        victim = next(node for node in ready["nodes"] if node["node"] == ready["leader"])
        os.kill(victim["pid"], signal.SIGKILL)
        assert soon(lambda: gone(victim["pid"]))
        with wire(victim["address"]) as node:

            def back() -> bool:
                try:
                    status = node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S)
                except grpc.RpcError:
                    return False
                return bool(status.leader)

            assert soon(back)
        assert schedule(victim["address"], b"still there")


def test_no_node_outlives_it_however_it_ends(tmp_path: Path) -> None:
    with dev(tmp_path) as (process, ready):
        process.kill()
        assert all(soon(lambda pid=node["pid"]: gone(pid)) for node in ready["nodes"])  # type: ignore[misc]


def test_a_named_folder_keeps_what_was_scheduled(tmp_path: Path) -> None:
    with dev(tmp_path, "--data", str(tmp_path)) as (process, ready):
        kept = schedule(ready["nodes"][0]["address"], b"kept")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    with dev(tmp_path, "--data", str(tmp_path)) as (_, ready), wire(ready["nodes"][0]["address"]) as node:
        assert node.producer.Get(GetRequest(id=kept), timeout=TIMEOUT_S).record.body == b"kept"


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with dev(tmp_path, "--nodes", "1") as (_, ready):
        port = ready["servers"].rpartition(":")[2]
        second = subprocess.run(
            [sys.executable, "-m", "tarry.node", "dev", "--port", port, "--nodes", "1"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert second.returncode == 2
    assert port in second.stderr
