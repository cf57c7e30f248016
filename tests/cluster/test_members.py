"""Nodes that come and go on a cluster that goes on working."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from tarry.client.aio import Client, connect
from tarry.client.errors import Refused
from tarry.client.local.cluster import LocalCluster, LocalNode, Setting, local_node, own, toml
from tarry.client.local.free_ports import free_ports
from tarry.client.operators.cluster_status import ClusterStatus
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

PATIENCE_S = 40


def newcomer(cluster: LocalCluster, name: str, address: str = "") -> LocalNode:
    """Return a node of the cluster's, running, that is no member yet."""
    port, peer_port = free_ports(2)
    node = local_node(name, int(address.rpartition(":")[2] or port), peer_port, cluster.folder)
    members = {other.name: other.address for other in cluster.nodes.values()}
    node.config.write_text("\n".join(toml({**own(node), "join": True, "members": members})))
    cluster.nodes[name] = node
    cluster.start(name)
    return node


async def schedule(client: Client, count: int) -> None:
    producer = client.producer()
    for _ in range(count // 500):
        await producer.schedule_batch("members", [b"x" * 100] * 500, delay_ms=3_600_000)


async def agree(client: Client, names: set[str]) -> None:
    """Return once all of these nodes have applied the same, to the same effect."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answers = (await client.operator().status_of_all(digest=True)).values()
            told = [a for a in answers if isinstance(a, ClusterStatus) and a.node in names]
            if {a.node for a in told} == names and len(
                {(a.applied_index, a.state_digest) for a in told}
            ) == 1:
                return
            await asyncio.sleep(0.1)


async def test_a_lone_node_grows_to_three_and_shrinks_again_under_its_leader(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_until_serving)
        async with connect(cluster.addresses) as client:
            await schedule(client, 2_000)
            for name in ("n2", "n3"):
                node = newcomer(cluster, name)
                members = await client.operator().add_member(name, node.address)
            assert members == ["n1", "n2", "n3"]
            await schedule(client, 500)
            await agree(client, {"n1", "n2", "n3"})
            assert await client.operator().remove_member("n1") == ["n2", "n3"]  # it leads: transfers first
            cluster.kill("n1")
            await schedule(client, 500)
            await agree(client, {"n2", "n3"})
            assert (await client.operator().status()).pending == 3_000


async def test_three_nodes_grow_to_five_that_bear_two_losses_and_shrink_again(cluster: LocalCluster) -> None:
    await asyncio.to_thread(cluster.wait_until_serving)
    async with connect(cluster.addresses, deadline_ms=20_000) as client:
        await schedule(client, 1_000)
        for name in ("n4", "n5"):
            await client.operator().add_member(name, newcomer(cluster, name).address)
        cluster.kill("n1")
        cluster.kill("n2")  # three of five are a majority, with both that came later
        await schedule(client, 500)
        cluster.start("n1", "n2")
        await agree(client, set(cluster.nodes))
        for name in ("n1", "n2"):
            members = await client.operator().remove_member(name)
            cluster.kill(name)
        assert members == ["n3", "n4", "n5"]
        cluster.kill("n3")  # two of three, neither of which was there at the beginning
        await schedule(client, 500)
        await agree(client, {"n4", "n5"})
        assert (await client.operator().status()).pending == 2_000


async def test_a_member_is_not_let_go_while_the_others_could_not_go_on_without_it(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    away, here = sorted(set(cluster.nodes) - {leader})
    async with connect(cluster.addresses) as client:
        await client.operator().status()
        cluster.kill(away)
        async with asyncio.timeout(PATIENCE_S):
            while True:  # until the leader has noticed
                status = await client.operator().status()
                if not next(m for m in status.members if m.node == away).connected:
                    break
                await asyncio.sleep(0.1)
        with pytest.raises(Refused) as refused:
            await client.operator().remove_member(here)
        assert refused.value.reason == "MEMBERSHIP_REFUSED"
        assert sorted(await client.operator().remove_member(away)) == sorted({leader, here})


async def test_a_node_whose_disk_was_wiped_is_brought_back_by_the_leaders_state(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    wiped = next(name for name in cluster.nodes if name != leader)
    async with connect(cluster.addresses) as client:
        await schedule(client, 5_000)
        await client.operator().remove_member(wiped)
        cluster.kill(wiped)
        shutil.rmtree(cluster.nodes[wiped].folder)
        await schedule(client, 100_000)
        address = cluster.nodes.pop(wiped).address
        node = newcomer(cluster, wiped, address)
        await client.operator().add_member(wiped, node.address)
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == 105_000


async def test_a_node_that_was_away_for_too_long_takes_the_leaders_state_in_place_of_its_own(
    tmp_path: Path,
) -> None:
    short = {"dispatch": {"checkpoint_ms": 300, "journal_retained_bytes": 1 << 20}}
    with Disposable(3, tmp_path, short) as cluster:
        cluster.start()
        leader = await asyncio.to_thread(cluster.wait_until_serving)
        away = next(name for name in cluster.nodes if name != leader)
        async with connect(cluster.addresses) as client:
            await schedule(client, 5_000)
            cluster.kill(away)
            await schedule(client, 100_000)
            await asyncio.sleep(1)  # for a checkpoint, which lets the journal go
            cluster.start(away)
            await schedule(client, 5_000)  # the leader goes on serving
            await agree(client, set(cluster.nodes))
            assert (cluster.nodes[away].folder / "current").read_text() == "state-2"
            cluster.kill(away)
            cluster.start(away)
            await agree(client, set(cluster.nodes))


async def test_a_node_added_again_under_its_name_is_found_at_its_new_address_whatever_is_configured(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    moved, other = sorted(set(cluster.nodes) - {leader})
    async with connect(cluster.addresses, deadline_ms=20_000) as client:
        await schedule(client, 1_000)
        await client.operator().remove_member(moved)
        cluster.kill(moved)
        shutil.rmtree(cluster.nodes.pop(moved).folder)
        node = newcomer(cluster, moved)  # on another port; the others' files go on naming the old one
        await client.operator().add_member(moved, node.address)
        cluster.kill(other)
        cluster.start(other)
        cluster.kill(leader)  # so that nothing goes on but over the new address
        await schedule(client, 500)
        await agree(client, {moved, other})
        status = await client.operator().status()
        assert next(m.address for m in status.members if m.node == moved) == node.address
        assert status.pending == 1_500


async def test_a_leader_killed_in_the_middle_of_sending_its_state_is_replaced_as_its_sender_too(
    tmp_path: Path,
) -> None:
    settings: dict[str, Setting] = {
        "dispatch": {"checkpoint_ms": 300, "journal_retained_bytes": 1 << 20},
        "consensus": STEADY,
    }
    for attempt in range(3):
        with Disposable(3, tmp_path / str(attempt), settings) as cluster:
            if await replaced_as_sender(cluster):
                return
    pytest.fail("every stream was through before its sender was killed")


async def replaced_as_sender(cluster: LocalCluster) -> bool:
    """Kill a leader while it sends its state, and see the other go on; False: all was sent before."""
    cluster.start()
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    away = next(name for name in cluster.nodes if name != leader)
    folder = cluster.nodes[away].folder
    async with connect(cluster.addresses, deadline_ms=20_000) as client:
        cluster.kill(away)
        for _ in range(10):
            await client.producer().schedule_batch("large", [bytes(30_000)] * 100, delay_ms=3_600_000)
        await asyncio.sleep(1)  # for a checkpoint, which lets the journal go
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        cluster.start(away)
        async with asyncio.timeout(PATIENCE_S):
            while arrived(folder / "state-2") < 1 << 20:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        cluster.kill(leader)
        if (folder / "current").read_text() != "state-1":
            return False
        await schedule(client, 500)  # the other one leads
        await agree(client, set(cluster.nodes) - {leader})
        assert (folder / "current").read_text() == "state-2"
        cluster.start(leader)
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == 1_500
    return True


def arrived(folder: Path) -> int:
    """Return how many bytes a state that is on its way has by now."""
    size = 0
    with contextlib.suppress(FileNotFoundError):
        for path in folder.rglob("*"):
            size += path.stat().st_size
    return size
