"""Commands and nodes given what no one should give them: one word about it, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner, Result

from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports

pytestmark = pytest.mark.beside

NO_TEXT = "\udcff"
"""How the byte 0xff of a command line reaches Python."""


def run(servers: str, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments, "-s", servers])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("consume t --lease 60d", "LEASE_INVALID"),
        ("consume t --credit 5000000000", "CREDIT_INVALID"),
        ("consume t --from 99999999999999999999", "SEEK_INVALID"),
        ("receive t --max 5000000000", "RECEIVE_INVALID"),
        ("receive t --wait 60d", "RECEIVE_INVALID"),
        ("receive t --lease 60d", "LEASE_INVALID"),
        ("nack t 1:1 --delay 60d", "DELAY_INVALID"),
        ("extend t 1:1 --lease 60d", "LEASE_INVALID"),
        ("ack t 4294967296:0", "QUEUE_UNKNOWN"),
        ("ack t 1:99999999999999999999", "OFFSET_NOT_DELIVERED"),
        ("topic create t --rate 5000000000", "SETTING_INVALID"),
        ("topic create t --pending-max 99999999999999999999", "SETTING_INVALID"),
        ("topic create t --retention 99999999999w", "SETTING_INVALID"),
        ("group create t g --from 99999999999999999999", "SEEK_INVALID"),
        ("group seek t g --offset 99999999999999999999 -y", "SEEK_INVALID"),
        ("redrive t --max 99999999999999999999", "SETTING_INVALID"),
        ("list t --due-to 99999999999999999999", "QUERY_INVALID"),
        ("recurring put s t --every 1s --start 99999999999999999999", "RECURRING_INVALID"),
        ("recurring put s t --every 99999999999w", "RECURRING_INVALID"),
        ("recurring put s t --every 1s --jitter 60d", "RECURRING_INVALID"),
        ("recurring delete s --if-revision 99999999999999999999 -y", "QUERY_INVALID"),
        ("recurring next --every 1s --after 99999999999999999999", "QUERY_INVALID"),
        ("cancel --topic t --due-to 99999999999999999999 -y", "QUERY_INVALID"),
        ("schedule t x --level 5000000000", "DUE_INVALID"),
        ("ledger export --to . --from 99999999999999999999", "EXPORT_INVALID"),
        ("member add n9 127.0.0.1 --deadline 99999w", "MEMBER_INVALID"),
    ],
)
def test_a_number_that_no_request_can_carry_is_refused(
    lone_cluster: LocalCluster, command: str, reason: str
) -> None:
    result = run(lone_cluster.addresses, *command.split(), "-o", "json")
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stderr.splitlines()[-1])["error"] == reason


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("schedule", "t", "x", "--delay", "1s", "--count", "9", "--spread", "99999999999999w"), "--spread"),
        (("schedule", "t", "x", "--delay", "1s", "--tag", NO_TEXT), "UTF-8"),
        (("schedule", "t", NO_TEXT, "--delay", "1s"), "UTF-8"),
        (("get", NO_TEXT), "UTF-8"),
        (("status", "--token", "\N{SNOWMAN}"), "token"),
        (("status", "--token", "a\nb"), "token"),
        (("status", "--tls-ca", __file__), "PEM"),
        (("status", "--tls-ca", __file__, "--tls-certificate", __file__), "private key"),
        (("ledger", "export", "--to", __file__), "Not a directory"),
    ],
)
def test_what_is_no_text_no_pem_or_no_folder_is_wrong_usage(
    lone_cluster: LocalCluster, command: tuple[str, ...], said: str
) -> None:
    result = run(lone_cluster.addresses, *command)
    assert result.exit_code == 2
    assert said in " ".join(Text.from_ansi(result.stderr).plain.replace("│", " ").split())


def test_a_reconciliation_that_is_not_there_is_told_in_the_form_that_was_asked_for(tmp_path: Path) -> None:
    result = run("127.0.0.1:1", "reconcile", "--out", str(tmp_path), "--redrive", "-o", "json")
    assert result.exit_code == 3
    assert "no finished reconciliation" in json.loads(result.stderr.splitlines()[-1])["text"]


def node(data: Path, address: str, *more: str) -> subprocess.CompletedProcess[str]:
    named = ["--node", "n1", "--data", str(data), "--listen", address, "--member", f"n1={address}"]
    command = [sys.executable, "-m", "tarry.node", "node", *named, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_node_that_cannot_start_says_why_in_a_line(lone_cluster: LocalCluster, tmp_path: Path) -> None:
    (running,) = lone_cluster.nodes.values()
    (port,) = free_ports(1)
    free = f"127.0.0.1:{port}"
    (tmp_path / "file").touch()
    for ended, said in (
        (node(tmp_path / "new", running.address), "cannot listen"),
        (node(tmp_path / "new", free, "--log-level", "verbose"), "log_level"),
        (node(tmp_path / "file", free), "data"),
        (node(running.log.with_suffix(""), free), "another running node"),
    ):
        assert ended.returncode == 2, ended.stderr
        assert said in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr
