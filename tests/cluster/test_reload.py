"""Real nodes that are given other certificates and tokens while they run."""

from __future__ import annotations

import json
import queue
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.client.aio import Tls
from tarry.client.local.cluster import LocalCluster, Setting, toml
from tarry.proto import bearer_token
from tarry.proto.tarry_consumer_pb2 import ConsumeResponse
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest, ClusterStatusResponse
from tests.cluster.authority import Authority
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.streams import schedule, subscribe
from tests.cluster.wire import Wire, refusal

pytestmark = pytest.mark.beside

NODES = ("n1", "n2", "n3")
PATIENCE_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Stream:
    """A consumer's stream that stays open, whatever else happens."""

    def __init__(self, wire: Wire, topic: str, token: str | None = None) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests.put(subscribe(topic, credit=1_000))
        metadata = bearer_token.metadata(token)
        self._call = wire.consumer.Consume(iter(self._requests.get, None), metadata=metadata)
        assert self.next().HasField("subscribed")

    def next(self) -> ConsumeResponse:
        response: ConsumeResponse = next(self._call)
        return response

    def refused(self) -> str:
        with pytest.raises(grpc.RpcError) as ended:
            self.next()
        return refusal(ended.value).reason

    def end(self) -> None:
        self._requests.put(None)
        self._call.cancel()


def hangup(cluster: LocalCluster, *names: str) -> None:
    """Send SIGHUP, and wait until each node has read again."""
    done = {name: said(cluster, name, "reloaded") for name in names}
    for name in names:
        process = cluster.nodes[name].process
        assert process is not None
        process.send_signal(signal.SIGHUP)
    for name in names:
        until(lambda name=name: said(cluster, name, "reloaded") > done[name], f"{name} reads again")  # type: ignore[misc]


def said(cluster: LocalCluster, name: str, event: str) -> int:
    lines = cluster.nodes[name].log_tail(10_000).splitlines()
    return sum(json.loads(line)["event"].startswith(event) for line in lines if line.startswith("{"))


class Certified:
    """Three nodes with mutual TLS, each with files of its own that a test replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = self._authority("old"), self._authority("new")
        for name in NODES:
            self.give(name, self.old, self.old)
        self.cluster = Disposable(3, folder / "nodes", {"consensus": STEADY, "reload_check_ms": 0})
        for name, node in self.cluster.nodes.items():
            paths = {key: str(folder / f"{name}.{key}") for key in ("certificate", "key", "authority")}
            with node.config.open("a") as config:
                config.write("\n".join(("", *toml({"tls": paths}))))

    def _authority(self, name: str) -> Authority:
        folder = self.folder / name
        folder.mkdir()
        made = Authority(folder)
        for node in (*NODES, "shop"):
            made.sign(node, f"/CN={node}")
        return made

    def give(self, node: str, signer: Authority, *trusted: Authority) -> None:
        """Replace a node's files."""
        authorities = "".join((each.folder / "authority.pem").read_text() for each in trusted)
        for kind, text in {
            "certificate": (signer.folder / f"{node}.pem").read_text(),
            "key": (signer.folder / f"{node}.key").read_text(),
            "authority": authorities,
        }.items():
            new = self.folder / f"{node}.{kind}.new"
            new.write_text(text)
            new.rename(self.folder / f"{node}.{kind}")

    def tls(self, signer: Authority) -> Tls:
        both = b"".join((each.folder / "authority.pem").read_bytes() for each in (self.old, self.new))
        of = signer.tls("shop")
        return Tls(authorities=both, certificate=of.certificate, private_key=of.private_key)

    def channel(self, name: str, signer: Authority) -> grpc.Channel:
        tls = self.tls(signer)
        credentials = grpc.ssl_channel_credentials(tls.authorities, tls.private_key, tls.certificate)
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.cluster.nodes[name].address, credentials, options)

    def status(self, name: str, signer: Authority) -> ClusterStatusResponse | None:
        """Return the answer over a connection of its own."""
        with self.channel(name, signer) as channel:
            try:
                answer: ClusterStatusResponse = Wire(channel).operator.ClusterStatus(
                    ClusterStatusRequest(), timeout=5
                )
            except grpc.RpcError:
                return None
        return answer

    def shown(self, name: str, signer: Authority) -> bytes:
        """Return the certificate, as DER, that a node shows in a new handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(signer.folder / "shop.pem", signer.folder / "shop.key")
        context.set_alpn_protocols(["h2"])
        host, _, port = self.cluster.nodes[name].address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as raw, context.wrap_socket(raw) as secured:
            return secured.getpeercert(binary_form=True) or b""


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Certified]:
    made = Certified(tmp_path)
    with made.cluster:
        yield made


def der(authority: Authority, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((authority.folder / f"{name}.pem").read_text())


def test_a_cluster_changes_to_another_authority_and_drops_no_stream(certified: Certified) -> None:
    cluster, old, new = certified.cluster, certified.old, certified.new
    cluster.start()
    leader = ""

    def led() -> bool:
        nonlocal leader
        answers = {name: certified.status(name, old) for name in NODES}
        leading = [name for name, answer in answers.items() if answer is not None and answer.lease]
        leader = leading[0] if leading else ""
        whole = [answer and all(member.connected for member in answer.members) for answer in answers.values()]
        return bool(leader) and all(whole)

    until(led, "the nodes are linked, and one leads")
    before = certified.status(leader, old)
    assert before is not None
    with certified.channel(leader, old) as channel:
        wire = Wire(channel)
        stream = Stream(wire, "kept")
        steps = [(old, [old, new]), (new, [old, new]), (new, [new])]
        for signer, trusted in steps:
            for node in NODES:
                certified.give(node, signer, *trusted)
            hangup(cluster, *NODES)
            schedule(wire, "kept")  # over the connection that is open since the beginning
            assert stream.next().HasField("deliveries")
            for node in NODES:
                assert certified.shown(node, signer) == der(signer, node)
        # Nobody has connected anew between nodes: one that is started now must be taken, and take the others.
        after = certified.status(leader, new)
        assert after is not None
        assert (after.leader, after.term) == (before.leader, before.term)
        assert after.reload.done == len(steps)
        assert all(member.connected for member in after.members)
        assert certified.status(leader, old) is None, "the old authority's clients are let in no more"
        follower = next(node for node in NODES if node != leader)
        cluster.kill(follower)
        until(lambda: not linked(certified, leader, follower), "the killed node is gone")
        cluster.start(follower)
        until(lambda: linked(certified, leader, follower), "the node is heard with its new certificate")
        until(lambda: linked(certified, follower, leader), "it hears the leader with that one's")
        third = next(node for node in NODES if node not in {leader, follower})
        with certified.channel(third, new) as other:  # calls are passed on with new credentials
            schedule(Wire(other), "kept")
        assert stream.next().HasField("deliveries")
        stream.end()


def linked(certified: Certified, name: str, other: str) -> bool:
    answer = certified.status(name, certified.new)
    return answer is not None and any(each.node == other and each.connected for each in answer.members)


def test_a_certificate_that_is_none_leaves_the_old_one_in_force_and_is_told(certified: Certified) -> None:
    cluster, old = certified.cluster, certified.old
    config = cluster.nodes["n1"].config
    config.write_text("reload_check_ms = 50\n" + config.read_text().replace('"reload_check_ms" = 0\n', ""))
    cluster.start("n1", "n2")
    until(lambda: certified.status("n1", old) is not None, "n1 answers")
    (certified.folder / "n1.certificate").write_text("no certificate")
    until(lambda: said(cluster, "n1", "not reloaded") > 0, "n1 says what is wrong")
    answer = certified.status("n1", old)
    assert answer is not None
    assert "must be PEM that goes together" in answer.reload.failure
    assert certified.shown("n1", old) == der(old, "n1")
    certified.give("n1", certified.new, old, certified.new)  # nobody sends a signal
    until(lambda: certified.shown("n1", old) == der(certified.new, "n1"), "the new certificate is shown")
    answer = certified.status("n1", old)
    assert answer is not None
    assert (answer.reload.failure, answer.reload.done) == ("", 1)


class Guarded:
    """One node whose tokens are in a file of their own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokens.toml"
        self.write({"shop": {"consume": ["*"]}, "other": {"consume": ["*"]}, "root": {"operate": True}})
        settings: dict[str, Setting] = {"tokens_file": str(self.file), "reload_check_ms": 100}
        self.cluster = Disposable(1, folder / "nodes", settings, token="root")

    def write(self, tokens: dict[str, Setting]) -> None:
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(toml({"peer_token": "between-nodes", "tokens": tokens})))
        new.rename(self.file)


def test_a_token_that_is_removed_ends_its_streams_and_no_others(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    with guarded.cluster as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with grpc.insecure_channel(cluster.nodes["n1"].address) as channel:
            wire = Wire(channel)
            streams = {token: Stream(wire, f"topic.{token}", token) for token in ("shop", "other")}
            began = time.monotonic()
            guarded.write({"other": {"consume": ["*"]}, "root": {"operate": True}})
            assert streams["shop"].refused() == "UNAUTHENTICATED"
            assert time.monotonic() - began < 20
            with pytest.raises(grpc.RpcError) as refused:
                Stream(wire, "topic.shop", "shop")
            assert refusal(refused.value).reason == "UNAUTHENTICATED"
            guarded.write({"other": {"consume": ["another"]}, "root": {"operate": True}})
            assert streams["other"].refused() == "RIGHTS_CHANGED"
            with pytest.raises(grpc.RpcError) as refused:
                Stream(wire, "topic.other", "other")
            assert refusal(refused.value).reason == "PERMISSION_DENIED"
            status = cluster.status("n1")
            assert status is not None
            assert (status.reload.done, status.reload.failure) == (2, "")
        lines = [json.loads(line) for line in cluster.nodes["n1"].log.read_text().splitlines()]
        assert [line["streams_ended"] for line in lines if line["event"] == "reloaded"] == [1, 1]
