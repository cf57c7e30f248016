"""The packages that a client application needs, and the refusals of commands that need an extra.

A child process stands for an environment without the extras: nothing finds their packages in it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tarry.proto.extras import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BASE = PROJECT["dependencies"]
HIDDEN = {"grpc_status", "pandas", "zstandard"}.union(*PACKAGES.values())
CHILD = """
import importlib.machinery, json, sys
asked = set()
class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in hidden:
            asked.add(name)
            return None
        return super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hiding
"""
CLIENT = """
import tarry.client.aio, tarry.client.sync
print(json.dumps({"asked": sorted(asked), "modules": sorted(sys.modules)}))
"""
COMMAND = """
import runpy
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which no extra is installed."""
    program = f"hidden = {sorted(HIDDEN)!r}\n{CHILD}{code}"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": str(ROOT / ".src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_client_imports_no_server_module_and_no_package_of_an_extra() -> None:
    done = child(CLIENT)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    ours = {".".join(name.split(".")[:2]) for name in seen["modules"] if name.startswith("tarry.")}
    assert ours == {"tarry.client", "tarry.proto"}
    assert set(seen["asked"]) <= {"grpc_health", "grpc_reflection", "grpc_status"}  # by grpc, if there


def test_the_command_line_starts_without_any_extra() -> None:
    done = child(COMMAND, "tarry.node", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "schedule" in done.stdout
    done = child(COMMAND, "tarry.node", "status", "--server", "127.0.0.1:1", "--deadline", "1ms")
    assert done.returncode == 3, done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.parametrize(
    ("module", "command", "extra", "code"),
    [
        ("tarry.node", ["node", "--node", "n1", "--data", "nowhere"], "node", 2),
        ("tarry.node", ["dev", "--port", "0"], "node", 2),
        ("tarry.node", ["ledger", "export", "--to", "nowhere"], "node", 2),
        ("tarry.node", ["reconcile", "ledgers", "--out", "nowhere"], "spark", 3),
        ("tarry.spark", ["reconcile", "ledgers", "--out", "nowhere"], "spark", 2),
        ("tarry.chaos", ["--list"], "chaos", 2),
        ("tarry.node", ["export", "nowhere"], "parquet", 2),
        ("tarry.node", ["import", "nowhere"], "parquet", 2),
        ("tarry.node", ["console", "--listen", "127.0.0.1:0"], "console", 2),
        ("tarry.node", ["gateway", "http", "--listen", "127.0.0.1:0"], "http", 2),
    ],
)
def test_a_command_without_its_extra_names_it(module: str, command: list[str], extra: str, code: int) -> None:
    done = child(COMMAND, module, *command)
    assert done.returncode == code, done.stderr
    assert f'pip install "tarry[{extra}]"' in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not Path("nowhere").exists()


def test_receipts_without_pyarrow_are_refused_before_anything_is_sent() -> None:
    asks = """
import asyncio
from tarry.client.aio import connect
async def work():
    async with connect("127.0.0.1:1", receipts="nowhere") as client:
        client.producer()
asyncio.run(work())
"""
    done = child(asks)
    assert 'pip install "tarry[spark]"' in done.stderr
    assert not Path("nowhere").exists()


def test_tracing_without_opentelemetry_is_refused_when_the_client_is_made() -> None:
    for client in ("aio", "sync"):
        done = child(f'from tarry.client.{client} import connect; connect("127.0.0.1:1", tracing=True)')
        assert done.returncode == 1
        assert (
            'ModuleNotFoundError: tracing: opentelemetry is missing: pip install "tarry[opentelemetry]"'
            in (done.stderr)
        )


def test_a_client_that_does_not_trace_does_not_load_opentelemetry() -> None:
    asks = """
import asyncio, sys
from tarry.client.aio import connect
async def work():
    async with connect("127.0.0.1:1") as client:
        client.producer(), client.consumer("t", "g"), client.puller("t", "g")
asyncio.run(work())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
assert "opentelemetry" not in asked
"""
    done = child(asks)
    assert (done.returncode, done.stderr) == (0, "")


def packages(lines: list[str]) -> set[str]:
    return {re.split("[<>=]", line)[0].lower() for line in lines}


def test_a_node_asks_for_each_package_of_its_extra() -> None:
    of_package = packages_distributions()
    asked = {name.lower().replace("_", "-") for package in PACKAGES["node"] for name in of_package[package]}
    assert asked == packages(EXTRAS["node"]) - packages(BASE)
