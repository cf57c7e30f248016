"""The command line of the Spark jobs, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tarry.spark.__main__ import app
from tarry.spark.live import Node
from tarry.spark.source import LedgerSource


@pytest.mark.parametrize("name", ["reconcile", "generate", "monitor", "scale"])
def test_every_job_has_a_form_for_programs(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert any("--output" in parameter.opts and "-o" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("ledger", "--nodes", "127.0.0.1:1"),
        ("--nodes", "127.0.0.1:1", "--tls-certificate", __file__, "--tls-ca", __file__),
        ("--nodes", "127.0.0.1:1", "--tls-key", __file__, "--tls-certificate", __file__),
        ("--nodes", "127.0.0.1:1", "--tls-ca", "none.pem"),
    ],
)
def test_a_monitor_of_nothing_or_of_both_or_with_half_a_certificate_is_wrong_usage(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["monitor", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2


def test_what_protects_nodes_reaches_each_that_is_asked() -> None:
    source = LedgerSource(
        {"nodes": "a:1,b:2", "token": "t", "authority": "a", "certificate": "c", "key": "k"}
    )
    assert source._nodes == [Node("a:1", "t", "a", "c", "k"), Node("b:2", "t", "a", "c", "k")]
