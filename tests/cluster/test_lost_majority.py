"""A survivor of three that goes on alone, by the real command, and the others that come back."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tarry.chaos.cluster import releases
from tarry.client.aio import AckOutcome, Client, connect
from tarry.client.cli.consume import handle_of
from tarry.client.consumers.message import View
from tarry.client.local.cluster import LocalCluster, command
from tarry.proto.ledger.schema import Kind
from tests.cluster.disposable import Disposable
from tests.cluster.test_backup import running, schedule, wait_for_log
from tests.cluster.test_ledger import read
from tests.cluster.test_moving import told
from tests.cluster.test_rejoining import agree

pytestmark = pytest.mark.beside

PATIENCE_S = 60


def recover(cluster: LocalCluster, name: str, typed: str = "", *more: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command(cluster.nodes[name].config), "--recover-alone", *more],
        input=f"{typed}\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


async def received(client: Client) -> list[View]:
    messages: list[View] = []
    while len(messages) < 2:
        messages += await client.puller("due", "g", name="console").receive(2 - len(messages), wait_ms=5_000)
    return messages


async def settled_in_one_incarnation_only(client: Client, cluster: LocalCluster, before: list[View]) -> None:
    """Settle by calls what came before the recovery, and what came again behind it."""
    puller = client.puller("due", "g", name="console")

    async def acked(message: View) -> object:
        command = "ack", "due", handle_of(message), "-g", "g"
        code = 0 if message.batch.incarnation else 1
        rows: Any = await asyncio.to_thread(told, cluster, *command, code=code)
        return rows[0]["outcome"]

    assert await puller.ack(before) == [AckOutcome.STALE] * 2
    assert await acked(before[1]) == "stale"
    now = await received(client)
    assert [message.offset for message in now] == [message.offset for message in before]
    assert await puller.ack([*before[:1], *now[:1]]) == [AckOutcome.STALE, AckOutcome.OK]
    assert await acked(now[1]) == "ok"


async def test_the_leader_that_is_left_of_three_goes_on_with_all_that_was_acknowledged(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    survivor = await asyncio.to_thread(cluster.wait_until_serving)
    one, other = sorted(cluster.nodes.keys() - {survivor})
    async with connect(cluster.addresses) as client:
        ids = await schedule(client, 1_000)
        await client.producer().schedule_batch("due", [b"x"] * 2, delay_ms=0)
        before = await received(client)
        await asyncio.to_thread(cluster.stop, one)
        ids += await schedule(client, 500)
        cluster.kill(other)
        cluster.kill(survivor)
        shutil.rmtree(cluster.nodes[other].folder)
        assert recover(cluster, survivor, "no")[0] == 2
        code, said = recover(cluster, survivor, survivor)
        assert code == 0, said
        assert f"What {one}, {other} acknowledged without it behind entry" in said
        code, said = recover(cluster, survivor, "", "--confirm", survivor)
        assert (code, "is the only member" in said) == (2, True), said
        cluster.start(survivor)
        assert await asyncio.to_thread(cluster.wait_for_leader) == survivor
        assert (await client.operator().status()).pending == 1_500
        await settled_in_one_incarnation_only(client, cluster, before)
        ids += await schedule(client, 500)
        # one that was away with its data is told, and takes part in nothing
        cluster.start(one)
        await asyncio.to_thread(wait_for_log, cluster, one, "once with --rejoin")
        await asyncio.to_thread(cluster.stop, one)
        with running(cluster, one, "--rejoin"), running(cluster, other, "--rejoin"):
            await agree(client, set(cluster.nodes))
            ids += await schedule(client, 10)
            assert len(set(ids)) == 2_010
            assert (await client.operator().status()).pending == 2_010
    assert "RECOVERED_ALONE" in cluster.nodes[survivor].log.read_text()
    await asyncio.to_thread(cluster.stop, survivor)
    _, rows = read(cluster.nodes[survivor].folder / "ledger")
    [hole] = [row for row in rows if row["kind"] == Kind.GAP and "RECOVERED_ALONE" in row["detail"]]
    assert hole["source"] == survivor
    assert not (cluster.nodes[survivor].folder / "recovered-alone").exists()


async def test_an_old_majority_that_comes_back_never_mixes_with_the_one_that_went_on(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    survivor, other = sorted(cluster.nodes.keys() - {leader})
    async with connect(cluster.addresses) as client:
        await schedule(client, 100)
    code, said = await asyncio.to_thread(recover, cluster, survivor, survivor)
    assert (code, "another running node's" in said) == (2, True), said
    await asyncio.to_thread(cluster.stop, survivor)
    code, said = await asyncio.to_thread(recover, cluster, survivor, survivor)
    assert (code, "Start it without --recover-alone" in said) == (2, True), said
    async with connect(cluster.addresses) as client:
        await schedule(client, 30)  # which the survivor never hears of
    for name in (leader, other):
        cluster.kill(name)
    code, said = await asyncio.to_thread(recover, cluster, survivor, survivor)
    assert code == 0, said
    cluster.start()  # all three, with their data
    for name in (leader, other):
        await asyncio.to_thread(wait_for_log, cluster, name, "once with --rejoin")
    async with connect(cluster.nodes[survivor].address) as client:
        await schedule(client, 7)
        alone = await client.operator().status_of(cluster.nodes[survivor].address, digest=True)
        assert (alone.pending, [member.node for member in alone.members]) == (107, [survivor])
    async with connect(cluster.nodes[leader].address) as client:
        async with asyncio.timeout(PATIENCE_S):  # the two elect one of them, which commits what they have
            while (old := await client.operator().status_of(cluster.nodes[leader].address)).pending < 130:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert old.pending == 130
        assert {member.node for member in old.members} == set(cluster.nodes)
        await asyncio.to_thread(cluster.stop, survivor)
        await asyncio.to_thread(cluster.start, survivor)
        # nothing of either has come to the other, not by a restart either
        assert (await client.operator().status_of(cluster.nodes[leader].address)).pending == 130


def test_a_survivor_with_another_peer_token_does_not_go_on_beside_members_that_refuse_it(
    tmp_path: Path,
) -> None:
    with Disposable(3, tmp_path, {"peer_token": "the token of the cluster"}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        survivor = "n1"
        cluster.stop(survivor)
        config = cluster.nodes[survivor].config
        config.write_text(config.read_text().replace("of the cluster", "of last year"))
        code, said = recover(cluster, survivor, survivor)
        assert (code, "n2 refuses to say what it has (UNAUTHENTICATED" in said) == (2, True), said
        for name in cluster.nodes.keys() - {survivor}:
            cluster.kill(name)
        code, said = recover(cluster, survivor, survivor)
        assert code == 0, said


async def test_a_release_that_knows_of_no_incarnations_refuses_the_survivors_data(tmp_path: Path) -> None:
    """It would mix with the nodes of before: with them it would elect, and take their entries for its own."""
    if reason := releases.lacking("0.2.0"):
        pytest.skip(reason)
    with Disposable(3, tmp_path, {"upgrade": {"finish": "manual"}}) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_until_serving)
        async with connect(cluster.addresses) as client:
            await schedule(client, 100)
        for name in cluster.nodes:
            cluster.kill(name)
        survivor = cluster.nodes["n1"]
        code, said = recover(cluster, "n1", "n1")
        assert code == 0, said
        releases.release("0.2.0").put_on(survivor)
        cluster.start()
        assert survivor.process is not None
        assert await asyncio.to_thread(survivor.process.wait, PATIENCE_S) == 3
        releases.take_off(survivor)
        cluster.start("n1")
        async with connect(survivor.address) as client:
            await schedule(client, 7)
            alone = await client.operator().status_of(survivor.address)
            assert (alone.pending, alone.level, len(alone.members)) == (107, 2, 1)
