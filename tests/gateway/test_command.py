"""``tarry gateway http`` and ``rocketmq``: wrong usage is told in a word, before anything is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tarry.gateway.command import gateway_app
from tarry.gateway.rocketmq.config import load

HERE = str(Path(__file__))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere"], "host:port"),
        (["--listen", "127.0.0.1:99999"], "host:port"),
        (["--listen", "192.0.2.1:0"], "cannot listen on"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--config", HERE], "no TOML"),
        (["--certificate", HERE], "go together"),
        (["--key", HERE], "go together"),
        (["--certificate", HERE, "--key", HERE], "--certificate"),
        (["--origin", "shop.example"], "no origin"),
        (["--origin", "https://shop.example/"], "no origin"),
        (["--origin", "*"], "no origin"),
        (["--host", "gateway.example:8090"], "leave out scheme and port"),
        (["--host", "https://gateway.example"], "leave out scheme and port"),
        (["--host", ""], "leave out scheme and port"),
        (["--server", "nowhere"], "host:port"),
        (["--token", "a\nb"], "token"),
    ],
)
def test_wrong_usage_ends_with_two_and_a_word_about_it(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(gateway_app, ["http", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    assert said in " ".join(Text.from_ansi(result.stderr).plain.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere"], "host:port"),
        (["--advertise", "nowhere"], "host:port"),
        (["--listen", "192.0.2.1:0"], "cannot listen on"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--config", HERE], "no TOML"),
        (["--certificate", HERE], "go together"),
        (["--certificate", HERE, "--key", HERE], "--certificate"),
        (["--server", "nowhere"], "host:port"),
    ],
)
def test_wrong_usage_of_the_other_ends_alike(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(gateway_app, ["rocketmq", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    assert said in " ".join(Text.from_ansi(result.stderr).plain.replace("│", " ").split())


def test_the_help_of_the_other_names_all_options() -> None:
    result = CliRunner().invoke(gateway_app, ["rocketmq", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for option in ("--listen", "--config", "--advertise", "--certificate", "--key", "--output", "--server"):
        assert option in Text.from_ansi(result.stdout).plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\ncalls_max = 0", "limits.calls_max"),
        ("[limits]\nunknown = 1", "limits.unknown"),
        ('secrets = ["short"]', "16 characters"),
        ('[[key]]\naccess_key = "a"\ntoken = "t"', "go together"),
        ('[[key]]\ntoken = "t"\naccess_key = ""\n[[key]]\ntoken = "t"\naccess_key = ""', "one access_key"),
        ("[types]\norders = []", "name one type"),
        ('[types]\norders = ["LITE"]', "types.orders.0"),
    ],
)
def test_a_fault_in_the_file_of_the_other_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "rocketmq.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        load(file)


def test_the_help_says_what_it_does_and_names_all_options() -> None:
    result = CliRunner().invoke(gateway_app, ["http", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for option in (
        "--listen",
        "--config",
        "--host",
        "--origin",
        "--certificate",
        "--key",
        "--output",
        "--server",
    ):
        assert option in Text.from_ansi(result.stdout).plain


def started(stdin: int) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tarry.node", "gateway", "rocketmq", "--listen", "127.0.0.1:0"]
    return subprocess.Popen(
        [*line, "--server", "127.0.0.1:1", "--end-with-input", "-o", "json"],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_ends_in_order_with_the_pipe_of_whoever_has_started_it() -> None:
    with started(subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["address"].startswith("127.0.0.1:")
        assert process.communicate("what is written says nothing\n", timeout=60) == ("", "")
        assert process.returncode == 0


def test_an_input_that_is_no_pipe_cannot_end_it() -> None:
    with started(subprocess.DEVNULL) as process:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "no pipe" in errors
