"""The README against the code: its example runs, its commands and those of other pages parse."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.node.config import CLASSIC_DELAY_LEVELS_MS, load
from tests.cluster.command_line import parsed_command

pytestmark = pytest.mark.beside

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_example_runs_as_it_stands(shared_cluster: LocalCluster) -> None:
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        env={**os.environ, "TARRY_SERVER": shared_cluster.addresses},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scheduled, cancelled, delivered = done.stdout.splitlines()
    assert re.fullmatch(r"\S+ is due at \d{13}", scheduled)
    assert cancelled == "cancelled"
    assert re.fullmatch(r"the tea is ready, \d+ ms late", delivered)


@pytest.mark.parametrize(
    "line",
    [
        line
        for page in ("README.md", "client/README.md", "spark/README.md")
        for block in blocks("sh", page)
        for line in block.splitlines()
        if line.startswith("tarry ")
    ],
)
def test_every_command_is_one_that_there_is(line: str) -> None:
    _, *arguments = shlex.split(line, comments=True)
    assert parsed_command(arguments) == arguments[0]


def test_the_configuration_is_one_that_a_node_takes(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    file = tmp_path / "node.toml"
    file.write_text(block)
    assert load(file, {}).node == "n1"


def test_the_delay_levels_are_those_named() -> None:
    minutes = [seconds * 60 for seconds in range(1, 11)]
    assert list(CLASSIC_DELAY_LEVELS_MS) == [
        seconds * 1_000 for seconds in [1, 5, 10, 30, *minutes, 1_200, 1_800, 3_600, 7_200]
    ]
