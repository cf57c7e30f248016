"""docker-compose.yml against the real command line and the real configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tarry.chaos.cluster.toxiproxy import VERSION
from tarry.node.config import NodeConfig, load
from tests.cluster.command_line import NAME, parsed_command

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service["image"] == "tarry" and not service.get("profiles")
}


def config_of(name: str, folder: Path) -> NodeConfig:
    file = folder / f"{name}.toml"
    file.write_text(COMPOSE["configs"][name]["content"])
    return load(file, {})


def test_the_image_runs_the_command_line() -> None:
    assert f'ENTRYPOINT ["{NAME}"]' in (ROOT / "Dockerfile").read_text().splitlines()


def test_the_image_has_the_python_that_the_project_needs() -> None:
    images = re.findall(r"^FROM python:(\d+)\.(\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert images
    assert all((int(major), int(minor)) >= (3, 11) for major, minor in images)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_runs_a_node_with_its_configuration(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    assert parsed_command(service["command"]) == "node"
    mounted = {config["target"]: config["source"] for config in service["configs"]}
    assert mounted[service["command"][service["command"].index("--config") + 1]] == name
    assert config_of(name, tmp_path).node == name


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("status", [200, 503])
def test_every_service_is_asked_whether_it_lives_at_its_own_port(
    name: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(key, value)
    port = config_of(name, tmp_path).metrics.listen.rpartition(":")[2]
    asked = []

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    kind, executable, option, program = SERVICES[name]["healthcheck"]["test"]
    assert (kind, executable, option) == ("CMD", "python", "-c")
    with HTTPServer(("127.0.0.1", 0), Node) as node:
        node.timeout = 10
        answering = Thread(target=node.handle_request)
        answering.start()
        here = program.replace(f", {port},", f", {node.server_port},")
        checked = subprocess.run([sys.executable, "-c", here], capture_output=True, check=False)
        answering.join()
    assert (asked, checked.returncode) == (["/healthz"], int(status != 200)), checked.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_tells_metrics_inside_and_to_nobody_outside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(key, value)
    host, _, port = config_of(name, tmp_path).metrics.listen.rpartition(":")
    assert host == "0.0.0.0"
    assert not any(published.endswith(f":{port}") for published in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_keeps_its_data_and_comes_back(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["volumes"] == [f"{name}:{config_of(name, tmp_path).data}"]
    assert name in COMPOSE["volumes"]


def test_the_nodes_are_one_cluster(tmp_path: Path) -> None:
    configs = {name: config_of(name, tmp_path) for name in SERVICES}
    assert len(configs) == 3
    members = next(iter(configs.values())).members
    assert all(config.members == members for config in configs.values())
    ports = {name: config.listen.rpartition(":")[2] for name, config in configs.items()}
    assert members == {name: f"{name}:{port}" for name, port in ports.items()}
    open_ports = {
        str(port) for config in configs.values() for port in (config.peer_address[1], *ports.values())
    }
    assert f"EXPOSE {' '.join(sorted(open_ports))}" in (ROOT / "Dockerfile").read_text().splitlines()


def test_every_node_is_published_on_this_machine_only() -> None:
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert len(set(published)) == len(published)
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_gateway_serves_on_this_machine_only_and_asks_all_nodes() -> None:
    gateway = COMPOSE["services"]["gateway"]
    command = gateway["command"]
    assert (gateway["image"], parsed_command(command), command[1]) == ("tarry", "gateway", "http")
    port = command[command.index("--listen") + 1].rpartition(":")[2]
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}"]
    published = (SERVICES[name]["ports"][0] for name in SERVICES)
    nodes = [f"{name}:{one.rpartition(':')[2]}" for name, one in zip(SERVICES, published, strict=True)]
    assert command[command.index("--server") + 1] == ",".join(nodes)


def test_the_proxy_is_of_the_version_that_is_built_elsewhere() -> None:
    assert COMPOSE["services"]["toxiproxy"]["image"].endswith(f":{VERSION.removeprefix('v')}")


def test_a_wrong_command_would_be_noticed() -> None:
    for wrong in (["node", "--conf", "x"], ["nodes"], ["status", "--sever", "x"]):
        with pytest.raises(Exception, match=r"No such (option|command)"):
            parsed_command(wrong)
