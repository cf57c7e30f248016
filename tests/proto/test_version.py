"""A node tells the version of its code, whatever is installed beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tarry.proto.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
ASKED = """
from importlib.metadata import version
from tarry.node.assembly import VERSION
print(version("tarry"), VERSION)
"""


def test_a_node_tells_the_version_of_its_code_where_an_older_one_is_installed(tmp_path: Path) -> None:
    about = tmp_path / "tarry-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tarry\nVersion: 0.0.1\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT / ".src")))

    def said(*arguments: str) -> list[str]:
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.check_output([sys.executable, *arguments], env=environment, text=True).split()

    assert said("-c", ASKED) == ["0.0.1", VERSION]
    assert said("-m", "tarry.node", "--version") == [VERSION]


def test_what_is_built_has_the_version_of_the_code() -> None:
    build = pytest.importorskip("setuptools.config.pyprojecttoml", reason="setuptools builds tarry")
    read = build.read_configuration(ROOT / "pyproject.toml")
    assert read["project"]["version"] == VERSION
