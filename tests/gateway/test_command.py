"""``tarry gateway http``: wrong usage is told in a word, before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tarry.gateway.command import gateway_app

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
    result = CliRunner().invoke(gateway_app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    assert said in " ".join(Text.from_ansi(result.stderr).plain.replace("│", " ").split())


def test_the_help_says_what_it_does_and_names_all_options() -> None:
    result = CliRunner().invoke(gateway_app, ["--help"], env={"COLUMNS": "200"})
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
