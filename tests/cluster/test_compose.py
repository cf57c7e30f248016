"""docker-compose.yml and Dockerfile carried out: what they say is built, started, killed and stopped.

Without an engine for containers: namespaces, chroot and pip (tests/cluster/containers). What is proved and
what is not says its image module.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarry.chaos.cluster.network_namespaces import no_namespaces
from tests.cluster.containers import engine as engine_module
from tests.cluster.containers.engine import Container, Engine, NotCarriedOut, seconds
from tests.cluster.containers.image import PYTHON, Builder
from tests.cluster.containers.processes import started

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TOOLS = [tool for tool in ("unshare", "nsenter", "setpriv", "mount") if shutil.which(tool) is None]

WHY_NOT = (
    no_namespaces()
    or (f"not installed: {TOOLS} (util-linux)" if TOOLS else "")
    or ("the system's own Python stands in for no image's" if PYTHON == "/usr" else "")
)
pytestmark = [pytest.mark.beside, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("images")
    yield Builder(folder, ROOT)
    shutil.rmtree(folder)  # some hundred megabytes


def test_the_cluster_of_the_compose_file_runs_as_it_says(builder: Builder, tmp_path: Path) -> None:
    play(COMPOSE, DOCKERFILE, builder, tmp_path / "run")


QUICK = (
    COMPOSE.replace("interval: 10s", "interval: 1s")
    .replace("timeout: 5s", "timeout: 30s")
    .replace("retries: 3", "retries: 8")
)
"""The same, noticed sooner, and patient with a busy machine."""


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        pytest.param('"node", "--config"', '"nodes", "--config"', "No such command", id="command"),
        pytest.param(
            '"--config", "/etc/tarry.toml"]', '"--config", "/etc/tary.toml"]', r"tary\.toml", id="path"
        ),
        pytest.param(
            'n2 = "n2:7001"', 'n2 = "n2:7009"', "every node reaches every other", id="member's port"
        ),
        pytest.param('listen = "0.0.0.0:7001"', 'listen = "127.0.0.1:7001"', "status", id="listen"),
        pytest.param('"127.0.0.1:7002:7001"', '"127.0.0.1:7002:7002"', "status", id="published port"),
        pytest.param(
            "TARRY_METRICS__LISTEN", "TARRY_METRICS__LISTENS", "(?i)metrics[._]+listens", id="environment"
        ),
        pytest.param('"n3:/var/lib/tarry"', '"n3:/var/lib/tary"', "keeps its data elsewhere", id="volume"),
        pytest.param("restart: unless-stopped", 'restart: "no"', "the killed node is back", id="restart"),
        pytest.param("stop_grace_period: 15s", "stop_grace_period: 1ms", "-9", id="grace"),
        pytest.param("restart:", "restarts:", "restarts", id="key"),
    ],
)
def test_a_wrong_compose_file_is_found(
    right: str, wrong: str, told: str, builder: Builder, tmp_path: Path
) -> None:
    assert right in QUICK
    with pytest.raises((NotCarriedOut, AssertionError), match=told):
        play(QUICK.replace(right, wrong), DOCKERFILE, builder, tmp_path / "run")


@pytest.mark.mutant
def test_a_health_check_at_another_port_is_found(builder: Builder, tmp_path: Path) -> None:
    wrong = QUICK.replace('To("127.0.0.1", 9464', 'To("127.0.0.1", 9465')
    assert wrong != QUICK
    # each failed check takes its whole timeout: two of them behind a short start say what eight would
    wrong = wrong.replace("timeout: 30s", "timeout: 5s").replace("start_period: 20s", "start_period: 5s")
    wrong = wrong.replace("retries: 8", "retries: 2")
    with pytest.raises(NotCarriedOut, match="is unhealthy"):
        play(wrong, DOCKERFILE, builder, tmp_path / "run")


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        pytest.param("USER tarry", "USER root", "'0' != '0'", id="root"),
        pytest.param("USER tarry", "USER nobody", "this user may write", id="user"),
        pytest.param(
            "--home-dir /var/lib/tarry", "--home-dir /var/lib/tary", "this user may write", id="folder"
        ),
        pytest.param('ENTRYPOINT ["tarry"]', 'ENTRYPOINT ["tary"]', "tary: No such file", id="entry point"),
        pytest.param("/opt/tarry /opt/tarry", "/opt/tarry /opt/tary", "tarry: No such file", id="copy"),
        pytest.param("PATH=/opt/tarry/bin", "PATH=/opt/tarry", "tarry: No such file", id="path"),
        pytest.param('".[node,console,http]"', '"."', r"tarry\[node\]", id="extra"),
    ],
)
def test_a_wrong_dockerfile_is_found(
    right: str, wrong: str, told: str, builder: Builder, tmp_path: Path
) -> None:
    assert right in DOCKERFILE
    with pytest.raises((NotCarriedOut, AssertionError), match=told):
        play(QUICK, DOCKERFILE.replace(right, wrong), builder, tmp_path / "run")


def test_a_health_check_of_a_container_that_ends_as_it_begins_fails_and_breaks_nothing_off(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Engine(yaml.safe_load(QUICK), builder.image(DOCKERFILE), tmp_path / "run") as engine,
        (tmp_path / "log").open("ab") as log,
    ):
        outer = started(["sleep", "60"], log)
        container = Container("n1", engine.services["n1"], "", [], tmp_path / "log", outer)
        gone = started(["true"], log)
        gone.wait()
        there = iter([gone.pid])  # when it is first looked for, and never again
        monkeypatch.setattr(engine_module, "first_process", lambda _: next(there, None))
        engine._look_after(container)
        assert container.check is not None
        assert container.check.wait() != 0
        engine._look_after(container)
        assert (container.failures, container.exits, container.running) == (1, [], True)
        outer.kill()
        outer.wait()


def play(compose: str, dockerfile: str, builder: Builder, folder: Path) -> None:
    """Carry both files out, and hold them to what the README and their comments promise.

    Raises NotCarriedOut, AssertionError, RuntimeError (of the build).
    """
    image = builder.image(dockerfile)
    with Engine(yaml.safe_load(compose), image, folder) as engine:
        engine.up()
        engine.until_healthy()
        for container in engine.containers.values():
            runs_as_its_own_user(engine, container)
        engine.until(lambda: connected(engine), 10.0, "every node reaches every other")
        kept = schedule(engine, "1h")
        survives_a_kill(engine)
        engine.down()
        assert {name: one.exits[-1] for name, one in engine.containers.items()} == dict.fromkeys(
            engine.services, 0
        )
        engine.up()
        engine.until_healthy()
        assert command(engine, "get", kept)["state"] == "pending"
        engine.down()


def survives_a_kill(engine: Engine) -> None:
    """Kill the leader: it comes back by itself, and a message that was taken before is delivered."""
    leader = next(one for one in engine.containers.values() if status(engine, port(one))["lease"])
    soon = schedule(engine, "2s")
    os.kill(leader.pid, signal.SIGKILL)
    engine.until(lambda: not leader.running, 5.0, "the leader has ended")
    ended = len(leader.exits)
    assert command(engine, "receive", "letters", "--group", "readers", "--wait", "20s")["id"] == soon
    patience_s = 15 + 3 * seconds(leader.service["healthcheck"]["interval"])
    engine.until(
        lambda: leader.stopped or (leader.running and leader.health == "healthy"),
        patience_s,
        "the killed node is healthy",
    )
    assert not leader.stopped, "the killed node is back"
    assert len(leader.exits) <= ended + 1


def connected(engine: Engine) -> bool:
    """Say whether each container is the node of its name, and connected with all others."""
    for name, container in engine.containers.items():
        answer = status(engine, port(container))
        reached = {member["node"] for member in answer["members"] if member["connected"]}
        if answer["node"] != name or reached | {name} != engine.containers.keys():
            return False
    return True


def runs_as_its_own_user(engine: Engine, container: Container) -> None:
    """Check whose the process is, and whose its data: never root's, and nobody else can read it."""
    details = Path(f"/proc/{container.pid}/status").read_text().splitlines()
    (uids,) = [line.split()[1:] for line in details if line.startswith("Uid:")]
    assert len(set(uids)) == 1
    assert uids[0] != "0"
    data = engine.volume(container.name)
    journal = data / "journal"
    assert journal.is_dir(), f"{container.name} keeps its data elsewhere"
    assert {str(data.stat().st_uid), str(journal.stat().st_uid)} == set(uids)
    assert journal.stat().st_mode & 0o077 == 0


def port(container: Container) -> str:
    (published,) = container.service["ports"]
    return str(published.rpartition(":")[0])


def schedule(engine: Engine, delay: str) -> str:
    return str(command(engine, "schedule", "letters", "hello", "--delay", delay)["id"])


def status(engine: Engine, address: str) -> dict[str, Any]:
    """Return what the node at an address says, as soon as a health check has to have it.

    Others are asked, too, at addresses that the host lacks.
    """
    return dict(tarry(engine, address, "status", "--deadline", "5s")[address])


def command(engine: Engine, *arguments: str) -> dict[str, Any]:
    """Run a client on the host, which names all published addresses, as the README says."""
    return tarry(engine, ",".join(map(port, engine.containers.values())), *arguments)


def tarry(engine: Engine, servers: str, *arguments: str) -> dict[str, Any]:
    server = ["--server", servers, "-o", "json"]
    done = engine.host(sys.executable, "-m", "tarry.node", *arguments, *server)
    assert done.returncode == 0, f"{arguments}: {done.stdout} {done.stderr}\n{engine.logs()}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
