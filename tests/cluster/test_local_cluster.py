"""The processes of a local cluster: what they are told, and that none outlives its starter."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster, Setting, toml
from tarry.client.local.free_ports import PORTS, free_ports

pytestmark = pytest.mark.beside


def test_every_node_is_told_its_own_name_and_everybody_s_address(tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path) as cluster:
        for name, node in cluster.nodes.items():
            config = tomllib.loads(node.config.read_text())
            assert config["node"] == name
            assert config["data"] == str(tmp_path / name)
            assert config["listen"] == config["members"][name] == node.address
            assert config["members"] == {other.name: other.address for other in cluster.nodes.values()}


def test_settings_of_any_depth_reach_the_configuration() -> None:
    settings: dict[str, Setting] = {
        "limits": {"body_bytes_max": 10},
        "tokens": {"a b": {"produce": ["orders.*"], "operate": True}},
        "peer_token": 'with "quotes"',
        "shard": 3,
    }
    assert tomllib.loads("\n".join(toml(settings))) == settings


def test_free_ports_are_not_given_twice_though_nobody_listens_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.local.free_ports.PORTS", range(20_000, 20_200))
    ports = [port for _ in range(15) for port in free_ports(4)]
    assert len(set(ports)) == 60


def test_free_ports_are_all_different_and_outside_what_connections_use() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert set(ports) <= set(PORTS)


def test_as_many_ports_as_nodes_have_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 nodes want 3 ports, not 2"):
        LocalCluster(3, tmp_path, ports=(20_001, 20_002))
