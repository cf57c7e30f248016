"""Nodes whose journal or state is damaged: refused with what to do, or brought back by the others."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster, command
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.replication.status import Dropped
from tests.cluster.disposable import Disposable
from tests.cluster.test_members import newcomer

pytestmark = pytest.mark.beside

PATIENCE_S = 30
PAGE_BYTES = 4096


def flip(path: Path, at: int = 100) -> None:
    """Turn a bit in every page behind the first two, as a disk that decays would."""
    data = bytearray(path.read_bytes())
    places = slice(2 * PAGE_BYTES + at, None, PAGE_BYTES)
    data[places] = bytes(b ^ 1 for b in data[places])
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 3 * PAGE_BYTES])


def journal(folder: Path) -> None:
    flip(next(folder.glob("journal/*.wal")))


def journal_cut(folder: Path) -> None:
    cut(next(folder.glob("journal/*.wal")))


def checkpoint(folder: Path) -> None:
    (stored,) = folder.glob("state-*/checkpoint/data.mdb")
    flip(stored, PAGE_BYTES - 20)  # a small one lies at the end of its page


def pointer(folder: Path) -> None:
    (folder / "current").write_text("nowhere")


def log_missing(folder: Path) -> None:
    next(folder.glob("state-*/hours/*/delay.log")).unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "journal": journal,
    "journal cut": journal_cut,
    "checkpoint": checkpoint,
    "pointer": pointer,
    "log missing": log_missing,
}


async def schedule(client: Client, count: int) -> None:
    await client.producer().schedule_batch("rejoin", [b"x" * 100] * count, delay_ms=3_600_000)


async def agree(client: Client, names: set[str]) -> list[ClusterStatus]:
    """Return once all of these nodes are members in touch that have applied the same, to the same effect."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answers = (await client.operator().status_of_all(digest=True)).values()
            told = [a for a in answers if isinstance(a, ClusterStatus)]
            if (
                {a.node for a in told} == names
                and len({(a.applied_index, a.state_digest) for a in told}) == 1
                and all({m.node for m in a.members if m.connected} == names for a in told)
            ):
                return told
            await asyncio.sleep(0.1)


def run_to_the_end(cluster: LocalCluster, name: str, *more: str) -> tuple[int, str]:
    """Run a node that is expected to end by itself; return its exit code and what it said."""
    done = subprocess.run(
        [sys.executable, *command(cluster.nodes[name].config), *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_damaged_data_is_refused_with_what_to_do_and_comes_back_on_the_operators_word(
    cluster: LocalCluster, damage: Callable[[Path], None]
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    victim = next(name for name in cluster.nodes if name != leader)
    async with connect(cluster.addresses) as client:
        await schedule(client, 2_000)
        await agree(client, set(cluster.nodes))  # the victim has applied something to be damaged
        await asyncio.to_thread(cluster.stop, victim)
        await schedule(client, 500)
        damage(cluster.nodes[victim].folder)
        code, said = await asyncio.to_thread(run_to_the_end, cluster, victim)
        assert code == 3, said
        assert "--rejoin" in said
        assert "Traceback" not in said
        config = cluster.nodes[victim].config
        config.write_text('damaged_data = "rejoin"\n' + config.read_text())
        cluster.start(victim)
        await schedule(client, 500)  # meanwhile the others serve
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == 3_000
        assert (cluster.nodes[victim].folder / "damaged-1").exists()


async def test_a_node_on_an_empty_disk_comes_back_with_one_flag(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        leader = await asyncio.to_thread(cluster.wait_until_serving)
        victim = next(name for name in cluster.nodes if name != leader)
        async with connect(cluster.addresses) as client:
            await schedule(client, 1_000)
            cluster.kill(victim)
            cluster.nodes[victim].folder.rename(tmp_path / "gone")
            node = cluster.nodes[victim]
            rejoined = await asyncio.create_subprocess_exec(
                *(sys.executable, *command(node.config), "--rejoin"), stderr=asyncio.subprocess.DEVNULL
            )
            try:
                await agree(client, set(cluster.nodes))
            finally:
                rejoined.terminate()
                assert await asyncio.wait_for(rejoined.wait(), PATIENCE_S) == 0
            cluster.start(victim)  # a node as any other
            await agree(client, set(cluster.nodes))
            assert not (node.folder / "rejoining").exists()
            assert (await client.operator().transfer(victim)).leader == victim


async def test_a_founder_whose_folder_was_emptied_is_refused_and_rejoins_when_told_to(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    victim = next(name for name in cluster.nodes if name != leader)
    async with connect(cluster.addresses) as client:
        await schedule(client, 1_000)
        cluster.kill(victim)
        shutil.rmtree(cluster.nodes[victim].folder)
        code, said = await asyncio.to_thread(run_to_the_end, cluster, victim)
        assert code == 3, said
        assert "has taken part in this cluster before" in said
        assert "--rejoin" in said
        assert "Traceback" not in said
        config = cluster.nodes[victim].config
        config.write_text('damaged_data = "rejoin"\n' + config.read_text())
        cluster.start(victim)
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == 1_000


async def test_an_added_member_whose_folder_was_emptied_does_not_count_before_it_has_rejoined(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    async with connect(cluster.addresses) as client:
        added = newcomer(cluster, "n4")
        await client.operator().add_member("n4", added.address)
        await client.operator().status()  # the client learns of it
        await agree(client, set(cluster.nodes))
        cluster.kill("n4")
        shutil.rmtree(added.folder)
        cluster.start("n4")
        await schedule(client, 1_000)  # the others serve
        async with asyncio.timeout(PATIENCE_S):
            while Dropped.JOURNAL.value not in cluster.nodes[leader].log_tail(100):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.to_thread(cluster.stop, "n4")
        rejoined = await asyncio.create_subprocess_exec(
            *(sys.executable, *command(added.config), "--rejoin"), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await agree(client, set(cluster.nodes))
        finally:
            rejoined.terminate()
            assert await asyncio.wait_for(rejoined.wait(), PATIENCE_S) == 0
        assert (await client.operator().status()).pending == 1_000


def test_a_member_that_was_away_while_most_lost_their_data_ends_rather_than_follow_another_history(
    cluster: LocalCluster,
) -> None:
    away = cluster.wait_until_serving()
    asyncio.run(scheduled(cluster, 1_000))
    for node in cluster.nodes.values():
        cluster.kill(node.name)
        if node.name != away:
            shutil.rmtree(node.folder)
            cluster.start(node.name)
    cluster.wait_for_leader()  # two that have never had a journal: as a new cluster
    for _ in range(2):
        asyncio.run(scheduled(cluster, 7))
    cluster.start(away)
    process = cluster.nodes[away].process
    assert process is not None
    assert process.wait(PATIENCE_S) == 1
    assert "is another than the leader's" in cluster.nodes[away].log_tail()


async def scheduled(cluster: LocalCluster, count: int) -> None:
    async with connect(cluster.addresses) as client:
        await schedule(client, count)


async def test_a_node_that_lost_its_data_does_not_vote_before_the_others_have_let_it_go(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    behind, victim = sorted(set(cluster.nodes) - {leader})
    async with connect(cluster.addresses, deadline_ms=20_000) as client:
        cluster.kill(behind)
        await schedule(client, 1_000)  # on the leader and the victim alone
        for name in (victim, leader):
            cluster.kill(name)
        journal(cluster.nodes[victim].folder)
        config = cluster.nodes[victim].config
        config.write_text('damaged_data = "rejoin"\n' + config.read_text())
        cluster.start(behind, victim)
        until = time.monotonic() + 3
        while time.monotonic() < until:  # with the victim's vote the one behind would lead, and lose all
            assert cluster.leader() is None
            await asyncio.sleep(0.1)
        cluster.start(leader)
        await agree(client, set(cluster.nodes))
        assert (await client.operator().status()).pending == 1_000
