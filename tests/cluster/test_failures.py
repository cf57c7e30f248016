"""What fails in a node's process ends it, and its log says why."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import grpc

from tarry.client.local.cluster import LocalCluster, command
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tests.cluster.streams import Consuming, subscribe
from tests.cluster.wire import TIMEOUT_S, wire

WITHOUT_FILES = """
import errno
from tarry.node.__main__ import main
from tarry.wheel.wheel import Wheel

def read(*_):
    raise OSError(errno.EMFILE, "too many open files")

Wheel.read = read
main()
"""


def test_a_node_whose_delivery_fails_in_a_timer_ends_with_1_and_says_why(tmp_path: Path) -> None:
    with LocalCluster(1, tmp_path) as cluster:
        (node,) = cluster.nodes.values()
        node.folder.mkdir(parents=True, exist_ok=True)
        arguments = command(node.config)[2:]
        with node.log.open("ab") as log:
            node.process = subprocess.Popen([sys.executable, "-c", WITHOUT_FILES, *arguments], stderr=log)
        cluster.wait_until_serving()
        with wire(node.address) as stubs:
            consuming = Consuming(stubs, subscribe("t"))
            consuming.next()
            request = ScheduleRequest(topic="t", record=Record(body=b"x"), delay_ms=500)
            stubs.producer.Schedule(request, timeout=TIMEOUT_S)
            threading.Thread(target=lambda: _drain(consuming), daemon=True).start()
            assert node.process.wait(30) == 1
    lines = [json.loads(line) for line in node.log.read_text().splitlines() if line.startswith("{")]
    (said,) = [line for line in lines if line["level"] == "critical"]
    assert said["event"] == "the node ends: it failed"
    assert "too many open files" in said["why"]


def _drain(consuming: Consuming) -> None:
    try:
        consuming.next()
    except grpc.RpcError:
        consuming.end()
