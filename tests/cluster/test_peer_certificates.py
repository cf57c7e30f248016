"""Nodes among which each may speak for itself alone: its certificate says who it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.errors import TarryError
from tarry.client.local.cluster import LocalCluster, LocalNode, Setting, toml
from tarry.proto.tarry_peer_pb2 import (
    FetchIndexRequest,
    FetchRecordsRequest,
    FetchSnapshotRequest,
    JoinRequest,
    MeetRequest,
)
from tarry.proto.tarry_peer_pb2_grpc import MembershipServiceStub, PeerServiceStub, RecordServiceStub
from tests.cluster.authority import Authority
from tests.cluster.disposable import Disposable
from tests.cluster.wire import TIMEOUT_S, refusal

pytestmark = pytest.mark.beside


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("n1", "/CN=n1")
    made.sign("n2", "/CN=something else", "DNS:n2")
    made.sign("n3", "/CN=n3", "DNS:n3.example")
    made.sign("shop", "/CN=shop")
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Disposable(3, tmp_path) as nodes:
        yield nodes


def give(node: LocalNode, tls: Mapping[str, Setting]) -> None:
    with node.config.open("a") as config:
        config.write("\n".join(("", *toml({"tls": tls}))))


async def schedule(cluster: LocalCluster, authority: Authority, deadline_ms: int = 20_000) -> None:
    async with connect(cluster.addresses, tls=authority.tls("shop"), deadline_ms=deadline_ms) as client:
        await client.producer().schedule("certified", b"x", delay_ms=60_000)


async def has_log(cluster: LocalCluster, authority: Authority, name: str) -> None:
    """Wait until the leader knows that a node has entries."""
    async with connect(cluster.addresses, tls=authority.tls("shop")) as client, asyncio.timeout(30):
        while True:
            members = (await client.operator().status()).members
            if any(member.node == name and member.match_index for member in members):
                return
            await asyncio.sleep(0.05)


async def test_nodes_that_show_their_names_hear_one_another(
    cluster: LocalCluster, authority: Authority
) -> None:
    for name in ("n1", "n2", "n3"):
        give(cluster.nodes[name], authority.paths(name))
    cluster.start("n1", "n2")  # a majority: a common name, and an alternative one
    await schedule(cluster, authority)
    cluster.start("n3")
    await has_log(cluster, authority, "n3")  # a founder begins only while a majority is in reach
    cluster.kill("n1")
    await schedule(cluster, authority)
    assert not any("peer refused" in node.log_tail(1_000) for node in cluster.nodes.values())


async def test_who_shows_another_certificate_is_no_node_whatever_it_calls_itself(
    cluster: LocalCluster, authority: Authority
) -> None:
    for name, shown in {"n1": "n1", "n2": "n2", "n3": "shop"}.items():
        give(cluster.nodes[name], authority.paths(shown))
    cluster.start()
    await schedule(cluster, authority)
    cluster.kill("n2")  # n1 and the one that calls itself n3 are no majority
    with pytest.raises(TarryError):
        await schedule(cluster, authority, deadline_ms=1_500)
    refused = [line for line in cluster.nodes["n1"].log_tail(1_000).splitlines() if "peer refused" in line]
    assert refused
    assert all('"claimed": "n3"' in line and "shop" in line for line in refused)
    assert len(refused) < 20  # it does not ask again at once


async def test_the_binding_of_names_to_certificates_can_be_switched_off(
    cluster: LocalCluster, authority: Authority
) -> None:
    for node in cluster.nodes.values():
        give(node, {**authority.paths("shop"), "bind_peers": False})
    cluster.start("n1", "n2")
    await schedule(cluster, authority)


@pytest.mark.parametrize(
    ("claimed", "why"), [("n2", "PEER_NOT_CERTIFIED"), ("shop", "PEER_UNKNOWN")], ids=["a node", "itself"]
)
def test_a_client_that_speaks_as_a_node_or_as_one_more_is_told_why_not(
    cluster: LocalCluster, authority: Authority, claimed: str, why: str
) -> None:
    give(cluster.nodes["n1"], authority.paths("n1"))
    cluster.start("n1")
    tls = authority.tls("shop")
    credentials = grpc.ssl_channel_credentials(tls.authorities, tls.private_key, tls.certificate)
    with grpc.secure_channel(cluster.nodes["n1"].address, credentials) as channel:
        grpc.channel_ready_future(channel).result(60)
        peer, record = PeerServiceStub(channel), RecordServiceStub(channel)
        member = MembershipServiceStub(channel)
        me: dict[str, Any] = {"cluster": "tarry", "node": claimed}
        asked: tuple[Callable[[], object], ...] = (
            lambda: peer.Meet(MeetRequest(**me), timeout=TIMEOUT_S),
            lambda: list(peer.FetchSnapshot(FetchSnapshotRequest(**me), timeout=TIMEOUT_S)),
            lambda: record.FetchRecords(FetchRecordsRequest(**me), timeout=TIMEOUT_S),
            lambda: record.FetchIndex(FetchIndexRequest(**me), timeout=TIMEOUT_S),
            lambda: member.Join(JoinRequest(**me, address="127.0.0.1:1"), timeout=TIMEOUT_S),
        )
        for ask in asked:
            with pytest.raises(grpc.RpcError) as caught:
                ask()
            said = refusal(caught.value)
            assert (said.reason, said.code) == (why, grpc.StatusCode.PERMISSION_DENIED)
