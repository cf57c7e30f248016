"""The programs of examples/rocketmq, one a language, as their page says to run them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.client.local.rocketmq_programs import JAR, command_of
from tests.cluster.gateways import GatewayProcess, rocketmq_gateway
from tests.cluster.test_rocketmq_clients import client_of, output_of, with_python
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/rocketmq"
LINES_MAX = 55
"""Of an example: it shows one thing."""


@pytest.fixture(scope="module")
def gateway(shared_cluster: LocalCluster) -> Iterator[GatewayProcess]:
    asyncio.run(level(shared_cluster, 2))
    with rocketmq_gateway(shared_cluster.addresses) as running:
        yield running


def run(command: list[str], gateway: GatewayProcess, folder: Path, **environment: str) -> None:
    """Run an example, which has to receive what it has sent, and not early."""
    printed = output_of([*command, gateway.url], folder, **environment)
    sent, *received = printed.splitlines()
    (word, message_id) = sent.split()
    assert word == "sent"
    found = [re.fullmatch(r"received (\S+) pay order 7 (\d+) ms after it was due", line) for line in received]
    assert [each and each[1] for each in found] == [message_id], printed


@with_python
def test_python_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    run([sys.executable, str(EXAMPLES / "delayed.py")], gateway, tmp_path)


def test_node_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    modules = client_of("node", "node", "node_modules/rocketmq-client-nodejs") / "node_modules"
    run(["node", str(EXAMPLES / "delayed.cjs")], gateway, tmp_path, NODE_PATH=str(modules))


def test_java_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    jar = client_of("java", "java", JAR) / JAR
    run(["java", "-Xmx256m", "-cp", str(jar), str(EXAMPLES / "Delayed.java")], gateway, tmp_path)


def test_go_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    client_of("go", "go", "go.sum")
    run([*asyncio.run(command_of("go", EXAMPLES, "delayed", tmp_path)).words], gateway, tmp_path)


def test_rust_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    client_of("rust", "cargo", "target/debug/delayed")
    run([*asyncio.run(command_of("rust", EXAMPLES, "delayed", tmp_path)).words], gateway, tmp_path)


def test_examples_are_short_and_the_page_names_each() -> None:
    programs = [path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".cjs", ".java", ".go", ".rs"}]
    assert len(programs) == 5
    page = (EXAMPLES / "README.md").read_text()
    for path in programs:
        assert len(path.read_text().splitlines()) <= LINES_MAX
        assert f"]({path.name})" in page
