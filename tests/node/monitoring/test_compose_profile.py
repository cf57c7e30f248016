"""The profile "monitoring" of docker-compose.yml: what it mounts is there, and its parts find one another."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from tests.cluster.containers.engine import services_without_profile
from tests.node.monitoring.documented import MONITORING, PAGE, ROOT
from tests.node.monitoring.promtool import needs_promtool, promtool

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROFILE = {name: service for name, service in SERVICES.items() if service.get("profiles") == ["monitoring"]}


def mounts(service: str) -> dict[str, str]:
    """Return the files of the repository that a service has, by their place in it."""
    parts = [volume.split(":") for volume in PROFILE[service]["volumes"] if volume.startswith("./")]
    assert all(options == ["ro"] for _, _, *options in parts)
    return {target: source.removeprefix("./") for source, target, *_ in parts}


def loaded(path: str) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return parsed


def test_services_of_a_profile_are_not_started_where_none_is_asked_for() -> None:
    assert PROFILE.keys() == {"prometheus", "grafana"}
    assert SERVICES.keys() - PROFILE.keys() - {"toxiproxy", "gateway", "rocketmq"} == {"n1", "n2", "n3"}
    assert services_without_profile(COMPOSE).keys() == {"n1", "n2", "n3"}


@pytest.mark.parametrize("service", PROFILE)
def test_images_have_a_fixed_tag_and_ports_are_of_this_machine_alone(service: str) -> None:
    assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", PROFILE[service]["image"])
    assert all(port.startswith("127.0.0.1:") for port in PROFILE[service]["ports"])
    published = [port.rpartition(":")[0] for port in PROFILE[service]["ports"]]
    assert all(f"<http://{address}>" in PAGE for address in published)


@pytest.mark.parametrize("service", PROFILE)
def test_what_is_mounted_is_there(service: str) -> None:
    assert mounts(service)
    assert [source for source in mounts(service).values() if not (ROOT / source).is_file()] == []
    named = [volume.split(":")[0] for volume in PROFILE[service]["volumes"] if not volume.startswith("./")]
    assert set(named) <= COMPOSE["volumes"].keys()


def test_prometheus_asks_every_node_where_it_listens() -> None:
    (job,) = loaded(mounts("prometheus")["/etc/prometheus/prometheus.yml"])["scrape_configs"]
    nodes = services_without_profile(COMPOSE)
    listens = {name: node["environment"]["TARRY_METRICS__LISTEN"] for name, node in nodes.items()}
    assert job["job_name"].startswith("tarry")
    assert job["static_configs"] == [
        {"targets": [f"{name}:{listen.removeprefix('0.0.0.0:')}" for name, listen in listens.items()]}
    ]


@needs_promtool
def test_prometheus_takes_its_configuration_with_the_rules(tmp_path: Path) -> None:
    for target, source in mounts("prometheus").items():
        assert PurePosixPath(target).parent == PurePosixPath("/etc/prometheus")
        shutil.copy(ROOT / source, tmp_path / PurePosixPath(target).name)
    said = promtool(tmp_path, "check", "config", "prometheus.yml")
    assert "1 rule files found" in said
    rules = (MONITORING / "alerts.yml").read_text().count("- alert: ")
    assert f"{rules} rules found" in said


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    files = mounts("grafana")
    (source,) = loaded(files["/etc/grafana/provisioning/datasources/tarry.yml"])["datasources"]
    (provider,) = loaded(files["/etc/grafana/provisioning/dashboards/tarry.yml"])["providers"]
    (port,) = PROFILE["prometheus"]["ports"]
    assert (source["type"], source["url"]) == ("prometheus", f"http://prometheus:{port.rpartition(':')[2]}")
    home = PROFILE["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert PurePosixPath(home).parent == PurePosixPath(provider["options"]["path"])
    assert files[home] == "node/monitoring/dashboard.json"
