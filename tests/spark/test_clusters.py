"""The job on a real standalone cluster by spark-submit, and over Spark Connect, from the wheel's own jars."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

import tarry.spark.__main__ as program
from tarry.client.local.free_ports import free_ports
from tarry.spark.bundle import bundle
from tarry.spark.generate import Generator, Plan
from tarry.spark.session import LOG
from tarry.spark.summary import FIGURES

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("java")]

PATIENCE_S = 300
HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    "PYSPARK_PYTHON": sys.executable,
}
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG.as_uri()} -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
MESSAGES = 200


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    for _ in Generator(Plan(MESSAGES, chunk=MESSAGES, planted=0, order_keys=True), folder).run():
        pass
    return folder


def conf() -> list[str]:
    return [text for name, value in QUICK.items() for text in ("--conf", f"{name}={value}")]


def program_of(name: str) -> str:
    return str(HOME / "bin" / name)


@contextmanager
def running(log: Path, *command: str, ready: Callable[[], bool]) -> Iterator[None]:
    """Run a process while the block lasts, once it is ready."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, env=ENVIRONMENT, start_new_session=True
        ) as process,
    ):
        try:
            until = time.monotonic() + PATIENCE_S
            while not ready():
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"{command[:2]} did not start: {log.read_text()[-2000:]}")
                pause(process)
            yield
        finally:
            process.kill()


def pause(process: subprocess.Popen[bytes]) -> None:
    """Wait a little, or until the process has ended."""
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master and one worker."""
    port, web = free_ports(2)
    address, worker_log = f"spark://127.0.0.1:{port}", tmp_path / "worker.log"
    java = program_of("spark-class")
    with ExitStack() as stack:
        stack.enter_context(
            running(
                tmp_path / "master.log",
                java, "org.apache.spark.deploy.master.Master",
                "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web),
                ready=lambda: answers(port),
            )
        )  # fmt: skip
        stack.enter_context(
            running(
                worker_log,
                java, "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                "--work-dir", str(tmp_path / "work"), address,
                ready=lambda: "Successfully registered" in worker_log.read_text(),
            )
        )  # fmt: skip
        yield address


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server on this machine."""
    (port,) = free_ports(1)
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [program_of("spark-submit"), "--master", "local[1]", "--class", server, *conf()]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
    with running(tmp_path / "server.log", *command, ready=lambda: answers(port)):
        yield f"sc://127.0.0.1:{port}"


def holds(command: list[str], out: Path, environment: Mapping[str, str]) -> None:
    """Run the job; its last line and exit code are those of a ledger without a fault."""
    ran = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    last: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert tuple(last) == FIGURES
    assert last["delivered_once"] == last["acknowledged"] == last["scheduled"] == MESSAGES
    summary = json.loads((out / "summary.json").read_text())
    assert summary["kept"]
    assert summary["violations"] == {}
    assert summary["duplicates"] == summary["missing"] == summary["gaps"] == 0
    assert (out / "report.html").stat().st_size > 100_000


def test_spark_submit_runs_the_job_on_a_standalone_cluster(master: str, ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    packed = bundle(tmp_path / "tarry.zip")
    command = [program_of("spark-submit"), "--master", master, "--executor-memory", "512m", *conf()]
    command += ["--py-files", str(packed), str(program.__file__)]
    holds([*command, "reconcile", str(ledger), "--out", str(out), "--settle-ms", "0"], out, ENVIRONMENT)


def test_spark_connect_runs_the_job_without_java_here(
    connect_server: str, ledger: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tarry.spark", "reconcile", str(ledger), "--out", str(out)]
    nothing = {**os.environ, "PATH": "", "JAVA_HOME": ""}
    holds([*command, "--settle-ms", "0", "--remote", connect_server], out, nothing)
