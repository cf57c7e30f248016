"""Async durability, by real processes: kills lose nothing, and a lost power is noticed and told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tarry.client.aio import Client, Durability, connect
from tarry.client.cli.main import app
from tarry.client.errors import Refused
from tarry.client.local.cluster import LocalCluster
from tarry.proto.files import replace_file
from tests.cluster.disposable import Disposable
from tests.cluster.test_backup import schedule, wait_for_log
from tests.cluster.test_lost_majority import recover
from tests.cluster.test_rejoining import agree
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

POWERLESS = "the machine lost its power before everything was flushed"


async def go_async(cluster: LocalCluster, folder: Path) -> None:
    """Start each node with a boot id of its own, and let the cluster be async."""
    for name, node in cluster.nodes.items():
        await asyncio.to_thread(cluster.stop, name)
        power(folder, name, 1)
        node.environment["TARRY_BOOT_ID_FILE"] = str(boot_id_file(folder, name))
        cluster.start(name)
    await level(cluster, 2)
    async with connect(cluster.addresses) as client:
        found = await client.operator().set_cluster(durability="async", flush_ms=10_000)
        assert found.settings["durability"] is Durability.ASYNC


def boot_id_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.boot"


def power(folder: Path, name: str, boots: int) -> None:
    """The machine of a node has been started so many times."""
    replace_file(boot_id_file(folder, name), f"{name} {boots}".encode())


async def wait_for_each_log(cluster: LocalCluster, text: str) -> None:
    """Return once each node has logged it."""
    for node in cluster.nodes:
        await asyncio.to_thread(wait_for_log, cluster, node, text)


async def write(client: Client) -> None:
    """Schedule until every node has written something that waits for its flush: the first write is synced."""
    async with asyncio.timeout(30):
        while True:
            await schedule(client, 10)
            told = (await client.operator().status_of_all()).values()
            if all(getattr(answer, "unflushed", 0) for answer in told):
                return


async def test_processes_that_are_killed_lose_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    await go_async(cluster, tmp_path)
    async with connect(cluster.addresses) as client:
        await write(client)
        await agree(client, set(cluster.nodes))
        before = (await client.operator().status()).pending
        ids = await schedule(client, 100)
        for name in cluster.nodes:
            cluster.kill(name)
        cluster.start()
        await asyncio.to_thread(cluster.wait_until_serving)
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == before + len(ids)
    assert not any(POWERLESS in node.log.read_text() for node in cluster.nodes.values())


async def test_status_and_each_node_s_log_say_that_the_durability_is_async(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await go_async(cluster, tmp_path)
    await wait_for_each_log(cluster, "durability async")
    cost = "durability async: a majority without power loses what it acknowledged within 10s"
    assert cost in await status_of(cluster)
    for name in cluster.nodes:
        await asyncio.to_thread(cluster.stop, name)
        cluster.nodes[name].log.write_bytes(b"")
        cluster.start(name)
    await wait_for_each_log(cluster, "durability async")  # at each start
    async with connect(cluster.addresses) as client:
        await client.operator().set_cluster(durability="sync")
    await wait_for_each_log(cluster, "durability sync")
    assert "durability" not in await status_of(cluster)


async def status_of(cluster: LocalCluster) -> str:
    """Return what ``tarry status`` prints."""
    done = await asyncio.to_thread(CliRunner().invoke, app, ["status", "-s", cluster.addresses])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


async def test_a_request_may_ask_for_more_than_the_cluster_s_durability(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Flushes come each 10 s here, but for what is to be answered once a majority has flushed it."""
    await go_async(cluster, tmp_path)

    async def flushed(client: Client) -> int:
        told = (await client.operator().status_of_all()).values()
        return sum(getattr(answer, "unflushed", None) == 0 for answer in told)

    async with connect(cluster.addresses) as client:
        await write(client)
        await client.producer().schedule("sync", b"x", delay_ms=3_600_000, durability="sync")
        assert await flushed(client) >= 2
        await write(client)
        batch = await client.producer().schedule_batch("sync", [b"x"], delay_ms=3_600_000, durability="sync")
        assert len(batch.ids) == 1
        assert await flushed(client) >= 2
        await write(client)
        command = [sys.executable, "-m", "tarry.node", "schedule", "sync", "x", "--delay", "1h"]
        command += ["--durability", "sync", "-s", cluster.addresses]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert await flushed(client) >= 2
        await client.operator().set_cluster(durability="sync")
        for number in range(10):  # less than the cluster's is not to be had
            await client.producer().schedule("sync", b"%d" % number, delay_ms=3_600_000, durability="async")
            assert await flushed(client) >= 2


async def test_a_node_whose_machine_lost_its_power_comes_back_as_a_newcomer(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await go_async(cluster, tmp_path)
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    async with connect(cluster.addresses) as client:
        await write(client)
        cluster.kill(leader)
        power(tmp_path, leader, 2)
        await asyncio.to_thread(cluster.wait_until_serving)
        cluster.start(leader)
        await asyncio.to_thread(wait_for_log, cluster, leader, "comes back as a newcomer")
        await agree(client, set(cluster.nodes))
        assert POWERLESS in cluster.nodes[leader].log.read_text()
        assert (cluster.nodes[leader].folder / "damaged-1" / "journal" / "unflushed").exists()
        await client.operator().set_cluster(durability="sync")
        assert all(
            getattr(a, "unflushed", 1) == 0 for a in (await client.operator().status_of_all()).values()
        )


async def test_where_all_machines_lost_their_power_one_is_told_to_go_on(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await go_async(cluster, tmp_path)
    async with connect(cluster.addresses) as client:
        await write(client)
        await agree(client, set(cluster.nodes))
        before = (await client.operator().status()).pending
    for name in cluster.nodes:
        cluster.kill(name)
        power(tmp_path, name, 2)
    cluster.start()
    for name in cluster.nodes:
        await asyncio.to_thread(wait_for_log, cluster, name, POWERLESS)
    survivor = min(cluster.nodes)
    await asyncio.to_thread(cluster.stop, survivor)
    code, said = await asyncio.to_thread(recover, cluster, survivor, survivor)
    assert code == 0, said
    assert "lost its power before everything was flushed: what is left ends with entry" in said
    cluster.start(survivor)
    async with connect(cluster.addresses) as client:
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending <= before


async def test_of_two_members_the_one_that_kept_its_power_goes_on_with_all_when_told(
    tmp_path: Path,
) -> None:
    """Nobody can be elected without the other one, which waits until it is let go."""
    with Disposable(2, tmp_path) as cluster:
        cluster.start()
        await go_async(cluster, tmp_path)
        leader = await asyncio.to_thread(cluster.wait_until_serving)
        (kept,) = cluster.nodes.keys() - {leader}
        async with connect(cluster.addresses) as client:
            await write(client)
            before = (await client.operator().status()).pending
            ids = await schedule(client, 100)
            cluster.kill(leader)
            power(tmp_path, leader, 2)
            cluster.start(leader)
            await asyncio.to_thread(wait_for_log, cluster, leader, POWERLESS)
            assert cluster.leader() is None
            await asyncio.to_thread(cluster.stop, kept)
            code, said = await asyncio.to_thread(recover, cluster, kept, kept)
            assert code == 0, said
            cluster.start(kept)
            await asyncio.to_thread(wait_for_log, cluster, leader, "comes back as a newcomer")
            await agree(client, set(cluster.nodes))
            assert (await client.operator().status()).pending == before + len(ids)


async def test_a_leader_without_a_boot_id_refuses_async(cluster: LocalCluster, tmp_path: Path) -> None:
    for name, node in cluster.nodes.items():
        await asyncio.to_thread(cluster.stop, name)
        node.environment["TARRY_BOOT_ID_FILE"] = str(tmp_path / "none")
        cluster.start(name)
    await level(cluster, 2)
    async with connect(cluster.addresses) as client:
        with pytest.raises(Refused, match="no boot id"):
            await client.operator().set_cluster(durability="async")
