"""``tarry top`` beside real nodes: what it tells is what clients have scheduled, also as a node dies."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client import sync
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports
from tests.cluster.test_client_console import interruptible

__all__ = ["interruptible"]

PATIENCE_S = 60.0
SHOWN_BYTES = 20_000


def looks(servers: str, *more: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["top", "-s", servers, "-o", "json", *more])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def alike(servers: str) -> None:
    """Wait until all nodes have applied the same."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        [look] = looks(servers, "-n", "1")
        if len({answer["applied_index"] for answer in look.values()}) == 1:
            return
        assert time.monotonic() < deadline


def test_each_node_tells_by_second_what_is_due_in_the_next_minute(cluster: LocalCluster) -> None:
    cluster.wait_until_serving()
    with sync.connect(cluster.addresses) as client, client.producer() as producer:
        first_s = int(time.time()) + 20
        dues_ms = [(first_s + at) * 1_000 + 999 for at in range(20) for _ in range(at)]
        scheduled = producer.schedule_batch("ahead", [b"x"] * len(dues_ms), due_ms=dues_ms)
        producer.cancel_many(scheduled.ids[-19:])  # all of the last second
        expected = [*range(19), 0]
        alike(cluster.addresses)
        found = looks(cluster.addresses, "-n", "2", "--every", "300ms")
    assert len(found) == 2
    for look in found:
        assert sorted(look) == sorted(cluster.addresses.split(","))
        for answer in look.values():
            begin = first_s - answer["now_ms"] // 1_000
            assert len(answer["pending_ahead"]) == 60
            assert answer["pending_ahead"] == [*([0] * begin), *expected, *([0] * (40 - begin))]


def test_it_goes_on_where_nodes_do_not_answer(cluster: LocalCluster) -> None:
    cluster.wait_until_serving()
    with subprocess.Popen(
        [sys.executable, "-m", "tarry.node", "top", "--every", "300ms", "-o", "json"],
        stdout=subprocess.PIPE,
        env={**os.environ, "TARRY_SERVER": cluster.addresses},
    ) as process:
        assert process.stdout is not None
        try:
            assert all("node" in answer for answer in json.loads(process.stdout.readline()).values())
            for name in cluster.nodes:
                cluster.kill(name)
            deadline = time.monotonic() + PATIENCE_S
            while not all("error" in answer for answer in json.loads(process.stdout.readline()).values()):
                assert time.monotonic() < deadline
            cluster.start()
            while not any(answer.get("lease") for answer in json.loads(process.stdout.readline()).values()):
                assert time.monotonic() < deadline
        finally:
            process.kill()  # else a failure would wait for it for ever


def test_without_an_answer_a_bounded_number_of_looks_ends_with_three() -> None:
    (port,) = free_ports(1)
    result = CliRunner().invoke(app, ["top", "-s", f"127.0.0.1:{port}", "-n", "2", "--every", "200ms"])
    assert result.exit_code == 3
    assert result.stdout.count("no answer") == 2
    assert "failed:" in result.stderr


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal of 160 columns and 50 lines: the end that a person sees, and the one of the program."""
    seen, of_program = pty.openpty()
    subprocess.run(["stty", "cols", "160", "rows", "50"], stdin=of_program, check=True)
    yield seen, of_program
    os.close(seen)


def read_until(seen: int, text: str) -> None:
    """Read what the terminal shows until a text has come."""
    shown, poll = b"", select.poll()  # of any descriptor: this process may have thousands
    poll.register(seen, select.POLLIN)
    deadline = time.monotonic() + PATIENCE_S
    while text.encode() not in shown:
        assert time.monotonic() < deadline, shown[-SHOWN_BYTES:]
        assert poll.poll(PATIENCE_S * 1_000), shown[-SHOWN_BYTES:]
        shown += os.read(seen, 65_536)


@pytest.mark.usefixtures("interruptible")
def test_on_a_terminal_it_is_drawn_anew_until_it_is_interrupted(
    shared_cluster: LocalCluster, terminal: tuple[int, int]
) -> None:
    seen, of_program = terminal
    with subprocess.Popen(
        [sys.executable, "-m", "tarry.node", "top", "--every", "200ms"],
        stdin=of_program,
        stdout=of_program,
        stderr=subprocess.PIPE,
        env={**os.environ, "TARRY_SERVER": shared_cluster.addresses, "TERM": "xterm-256color"},
    ) as process:
        os.close(of_program)
        try:
            for _ in range(2):
                read_until(seen, "due in the next minute")
            process.send_signal(signal.SIGINT)
            read_until(seen, "\x1b[?1049l")  # it leaves the screen as it was
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()  # else a failure would wait for it for ever
    assert process.returncode == 0, errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--every", "100ms"), "at least"),
        (("--every", "2"), "is no duration"),
        (("-n", "0"), "--looks"),
        (("--topics", "-1"), "--topics"),
    ],
)
def test_wrong_usage_says_what_would_be_right(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["top", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
