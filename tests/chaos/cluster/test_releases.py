"""How a release is taken out of the history, and which code and packages a node then runs with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarry.chaos.cluster import releases
from tarry.client.local.cluster import local_node

WHICH = """
from importlib.metadata import version
from tarry.node import config
from tarry.proto import tarry_log_pb2
print(version("tarry"), config.__file__, tarry_log_pb2.__file__)
"""
PYTHON = """#!/bin/sh
echo "$@" >> {log}
if [ "$2" = venv ]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No release needs other packages than the tree: none is installed for it, which takes a minute."""
    monkeypatch.setattr(releases, "requirements", lambda pyproject: [])


def in_history() -> None:
    if reason := releases.lacking("0.2.0"):
        pytest.skip(reason)


@pytest.mark.usefixtures("no_needs")
def test_a_node_runs_the_code_of_the_release_it_was_given_and_the_tree_s_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_history()
    node = local_node("n1", 1, 2, cache)
    releases.release("0.2.0").put_on(node)
    ran = subprocess.run([node.python, "-c", WHICH], env=node.environment, capture_output=True, check=True)
    version, *files = ran.stdout.decode().split()
    assert version == "0.2.0"
    assert [Path(file).is_relative_to(cache) for file in files] == [True, True]
    releases.take_off(node)
    assert node.python == sys.executable
    assert node.environment == {}


@pytest.mark.usefixtures("no_needs")
def test_a_release_is_taken_out_of_the_history_once(monkeypatch: pytest.MonkeyPatch) -> None:
    in_history()
    monkeypatch.setenv("PATH", "")  # no git any more
    assert releases.release("0.2.0").source.is_dir()


def test_without_the_history_the_reason_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "ROOT", tmp_path)
    assert "git fetch --unshallow" in releases.lacking("0.2.0")
    monkeypatch.setenv("PATH", "")
    assert "No such file" in releases.lacking("0.2.0")


def test_a_release_that_needs_other_packages_than_the_tree_has_an_environment_of_its_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = releases.requirements
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(releases, "requirements", lambda pyproject: [])
        in_history()
    pyproject = next(cache.glob("tarry/releases/*/pyproject.toml"))
    pyproject.write_text(pyproject.read_text().replace('"pysyncobj==0.3.17"', '"pysyncobj==0.3.16"'))
    assert "pysyncobj==0.3.16" in needs(pyproject)
    log, python = tmp_path / "log", tmp_path / "python"
    python.write_text(PYTHON.format(log=log))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    for _ in range(2):  # the second finds it done
        assert releases.release("0.2.0").python == pyproject.parent / "venv/bin/python"
    made, filled = log.read_text().splitlines()
    assert "-m venv" in made
    assert "pysyncobj==0.3.16" in filled.split()
    assert "grpcio>=1.85.1" in filled.split()
