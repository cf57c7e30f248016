"""Operators' calls of real nodes, as the audit log has them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.local.cluster import Setting, toml
from tarry.proto import bearer_token
from tarry.proto import tarry_operator_pb2 as pb
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.wire import TIMEOUT_S, Wire

pytestmark = pytest.mark.beside

METADATA = bearer_token.metadata("root")
UNKNOWN_FIELD = b"\xc0\xb8\x02\x01"
"""Of any request: nothing is done for who sends it."""
SERVICE = pb.DESCRIPTOR.services_by_name["OperatorService"]
Line = dict[str, Any]


class Audited:
    """Nodes with tokens that each keep an audit log."""

    def __init__(self, size: int, folder: Path, **audit: Setting) -> None:
        tokens: dict[str, Setting] = {"root": {"name": "ops", "operate": True}, "shop": {"produce": ["*"]}}
        settings: dict[str, Setting] = {"tokens": tokens, "peer_token": "nodes", "consensus": STEADY}
        self.cluster = Disposable(size, folder / "nodes", settings, token="root")
        self.folder = folder / "audit"
        for name, node in self.cluster.nodes.items():
            with node.config.open("a") as config:
                file = str(self.folder / f"{name}.log")
                config.write("\n".join(("", *toml({"audit": {"file": file, **audit}}))))

    def lines(self, method: str) -> dict[str, list[Line]]:
        """Return what each node has of that call; those that have nothing are left out."""
        found = {}
        for name in self.cluster.nodes:
            file = self.folder / f"{name}.log"
            lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
            found[name] = [line for line in lines if line.get("method") == method]
        return {name: lines for name, lines in found.items() if lines}


@contextlib.contextmanager
def wire(audited: Audited, name: str) -> Iterator[Wire]:
    with grpc.insecure_channel(audited.cluster.nodes[name].address) as channel:
        yield Wire(channel)


def test_a_call_through_a_follower_is_recorded_once_by_the_leader_as_its_callers(tmp_path: Path) -> None:
    audited = Audited(3, tmp_path)
    audited.folder.mkdir()
    with audited.cluster as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        follower = next(name for name in cluster.nodes if name != leader)
        with wire(audited, follower) as node:
            node.operator.CreateTopic(
                pb.CreateTopicRequest(topic="one"), timeout=TIMEOUT_S, metadata=METADATA
            )
        [(by, [asked, answered])] = audited.lines("CreateTopic").items()
        assert by == leader
        assert (asked["stage"], answered["stage"], answered["result"]) == ("asked", "answered", "OK")
        assert (asked["token"], asked["arguments"]) == ("ops", {"topic": "one"})
        assert asked["address"].startswith("ipv4:127.0.0.1:")
        assert asked["via"][0].startswith("ipv4:127.0.0.1:")
        assert asked["via"][0] != asked["address"]
        forged = (("tarry-forwarded", "1"), ("tarry-caller-bin", b'{"address": "x", "certificate": []}'))
        with wire(audited, leader) as node:
            request = pb.DeleteTopicRequest(topic="one")
            node.operator.DeleteTopic(request, timeout=TIMEOUT_S, metadata=(*METADATA, *forged))
        [(_, [asked, _])] = audited.lines("DeleteTopic").items()
        assert asked["address"].startswith("ipv4:127.0.0.1:")
        assert "via" not in asked


def test_every_call_of_operators_is_recorded(tmp_path: Path) -> None:
    audited = Audited(1, tmp_path)
    audited.folder.mkdir()
    with audited.cluster as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with grpc.insecure_channel(cluster.nodes["n1"].address) as channel:
            for method in SERVICE.methods:
                path, calls = f"/{SERVICE.full_name}/{method.name}", cast("Any", channel)
                raw = UNKNOWN_FIELD + pb.ClusterStatusRequest(digest=True).SerializeToString()
                asked = raw if method.name == "ClusterStatus" else UNKNOWN_FIELD
                with contextlib.suppress(grpc.RpcError):  # most refuse the field; all are recorded
                    if method.server_streaming:
                        list(calls.unary_stream(path)(asked, timeout=TIMEOUT_S, metadata=METADATA))
                    else:
                        calls.unary_unary(path)(asked, timeout=TIMEOUT_S, metadata=METADATA)
        for method in SERVICE.methods:
            stages = [line["stage"] for line in audited.lines(method.name).get("n1", [])]
            assert stages == ["asked", "answered"], method.name
        status = cluster.status("n1")
        assert status is not None
        assert (status.audit.enabled, status.audit.lost, status.audit.failure) == (True, 0, "")
        assert status.audit.lines == 2 * len(SERVICE.methods) + 1


def test_the_command_shows_the_lines_of_all_nodes_to_operators_alone(tmp_path: Path) -> None:
    audited = Audited(3, tmp_path)
    audited.folder.mkdir()
    with audited.cluster as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        server = ["-s", cluster.addresses]
        for topic in ("one", "two"):
            assert (
                CliRunner().invoke(app, ["topic", "create", topic, *server, "--token", "root"]).exit_code == 0
            )
        refused = CliRunner().invoke(app, ["audit", *server, "--token", "shop"])
        assert (refused.exit_code, "PERMISSION_DENIED" in refused.output) == (1, True)

        def told(*arguments: str) -> list[Line]:
            said = CliRunner().invoke(app, ["audit", *server, "--token", "root", "-o", "json", *arguments])
            assert said.exit_code == 0, said.output
            lines: list[Line] = json.loads(said.stdout)
            return lines

        lines = told("--method", "CreateTopic")
        assert [(line["stage"], line["arguments"]["topic"], line["node"]) for line in lines] == [
            (stage, topic, leader) for topic in ("two", "one") for stage in ("answered", "asked")
        ]
        assert told("--method", "CreateTopic", "-n", "3") == lines[:3]
        assert told("--method", "CreateTopic", "--until", str(lines[1]["at_ms"])) == lines[2:]
        assert told("--method", "CreateTopic", "--from", str(lines[1]["at_ms"])) == lines[:2]
        assert {line["node"] for line in told("--token-name", "ops", "-n", "500")} == set(cluster.nodes)
        assert {line["stage"] for line in told("-n", "500")} == {"started", "asked", "answered"}
        assert told("--token-name", "shop") == []
        shown = CliRunner().invoke(app, ["audit", *server, "--token", "root"])
        assert (shown.exit_code, "CreateTopic" in shown.output) == (0, True)
        follower = next(name for name in cluster.nodes if name != leader)
        cluster.stop(follower)
        said = CliRunner().invoke(app, ["audit", *server, "--token", "root", "--deadline", "5s"])
        assert said.exit_code == 3
        assert cluster.nodes[follower].address in said.output


@pytest.mark.parametrize("required", [True, False])
def test_where_it_cannot_be_written_operators_are_told(required: bool, tmp_path: Path) -> None:
    audited = Audited(1, tmp_path, required=required)  # its folder is not there
    with audited.cluster as cluster:
        cluster.start()
        cluster.wait_until_serving()
        server = ["-s", cluster.addresses, "--token", "root"]
        said = CliRunner().invoke(app, ["topic", "create", "one", *server])
        assert said.exit_code == (1 if required else 0), said.output
        assert ("NOT_AUDITED" in said.output) is required
        status = json.loads(CliRunner().invoke(app, ["status", *server, "-o", "json"]).stdout)
        [node] = status.values()
        assert "No such file" in node["audit"]["failure"]
        assert "audit log not written" in cluster.nodes["n1"].log.read_text()
