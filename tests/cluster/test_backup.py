"""Backups of a running cluster by the real command, and clusters that are made of them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster, command
from tarry.proto.backup_folder import FILES, MANIFEST, backup_in
from tests.cluster.test_rejoining import agree, run_to_the_end

pytestmark = pytest.mark.beside

PATIENCE_S = 60
HOUR_MS = 3_600_000


def tarry(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tarry.node", *arguments],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        **more,
    )


def told(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def back_up(cluster: LocalCluster, to: Path, *more: str) -> dict[str, Any]:
    arguments = ("backup", "--to", str(to), "-o", "json", "-s", cluster.addresses, *more)
    return told(await asyncio.to_thread(tarry, *arguments))


async def restore(source: str, data: Path, **more: Any) -> subprocess.CompletedProcess[bytes]:
    arguments = ("restore", "--from", source, "--data", str(data), "--name", "n1", "-o", "json")
    return await asyncio.to_thread(tarry, *arguments, **more)


async def schedule(client: Client, count: int, delay_ms: int = HOUR_MS) -> list[str]:
    batch = await client.producer().schedule_batch("backup", [b"x" * 100] * count, delay_ms=delay_ms)
    return list(batch.ids)


async def take(client: Client, group: str, count: int) -> dict[str, bool]:
    """Consume and acknowledge so many messages; return by their ids whether they were marked."""
    taken = {}
    async with asyncio.timeout(PATIENCE_S), client.consumer("backup", group=group) as consumer:
        async for message in consumer:
            await message.ack()
            taken[message.id] = message.maybe_duplicate
            if len(taken) == count:
                return taken
    raise AssertionError("ended")


def wait_for_log(cluster: LocalCluster, name: str, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in cluster.nodes[name].log.read_text():
        assert time.monotonic() < deadline, cluster.nodes[name].log_tail()
        time.sleep(0.1)


@contextmanager
def running(cluster: LocalCluster, name: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node with further arguments, and end it."""
    with cluster.nodes[name].log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *command(cluster.nodes[name].config), *more],
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def start_rejoining(cluster: LocalCluster, *names: str) -> None:
    """Start nodes as an operator does who types --rejoin once."""
    for name in names:
        config = cluster.nodes[name].config
        config.write_text('damaged_data = "rejoin"\n' + config.read_text())
        cluster.start(name)


async def test_a_backup_under_way_of_writes_makes_a_new_cluster_with_all_that_was_acknowledged_before(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    to = tmp_path / "backup"
    async with connect(cluster.addresses) as client:
        await schedule(client, 3_000)
        await client.operator().create_group("backup", "mailer")
        due = set(await schedule(client, 20, delay_ms=0))
        done = await take(client, "mailer", 10)
        later = await schedule(client, 1)
        first = await back_up(cluster, to)
        assert first["node"] != cluster.wait_for_leader()  # a follower's
        assert first["new_bytes"] == first["bytes"]
        written, writing = 0, asyncio.ensure_future(back_up(cluster, to))
        while not writing.done():
            written += len(await schedule(client, 100, delay_ms=5 * HOUR_MS))
        second = await writing
        third = await back_up(cluster, to)
        assert first["index"] < second["index"] <= third["index"]
        assert 0 < third["new_bytes"] < third["bytes"]  # not again what was there
        again = await back_up(cluster, to)
        assert again["new_bytes"] < third["bytes"] / 4
    for name in cluster.nodes:
        await asyncio.to_thread(cluster.stop, name)
        cluster.nodes[name].folder.rename(tmp_path / f"old-{name}")
    data = cluster.nodes["n1"].folder
    assert told(await restore(str(to), data))["digest"] == again["digest"]
    cluster.start("n1")
    await asyncio.to_thread(cluster.wait_for_leader)
    async with connect(cluster.addresses) as client:
        status = await client.operator().status()
        assert [member.node for member in status.members] == ["n1"]
        assert status.pending == 3_000 + written + 1
        assert str((await client.producer().get(later[0])).state) == "pending"  # ids are what they were
        rest = await take(client, "mailer", 10)  # and the group goes on where it was
        assert rest.keys() == due - done.keys()
        assert all(rest.values())  # nobody knows any more what had been delivered
        await start_rejoining(cluster, "n2", "n3")
        await agree(client, {"n1", "n2", "n3"})
        assert str(await client.producer().cancel(later[0])) == "cancelled"
    arguments = ("backup", "--to", str(to), "-s", cluster.addresses)
    refused = await asyncio.to_thread(tarry, *arguments)  # the backup there is of the incarnation before
    assert (refused.returncode, b"use another folder" in refused.stderr) == (1, True), refused.stderr


async def test_a_node_of_the_old_cluster_is_refused_by_the_restored_one_until_it_rejoins(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with connect(cluster.addresses) as client:
        await schedule(client, 500)
        stream = await asyncio.to_thread(tarry, "backup", "--to", "-", "-s", cluster.addresses)
        assert stream.returncode == 0, stream.stderr
        await schedule(client, 70)  # only the old ones know of these
    for name in cluster.nodes:
        await asyncio.to_thread(cluster.stop, name)
    data = cluster.nodes["n1"].folder
    data.rename(tmp_path / "old")
    told(await restore("-", data, input=stream.stdout))
    cluster.start("n1", "n2")
    await asyncio.to_thread(cluster.wait_for_leader)
    await asyncio.to_thread(wait_for_log, cluster, "n2", "once with --rejoin")
    async with connect(cluster.nodes["n1"].address) as client:
        assert (await client.operator().status()).pending == 500
        await asyncio.to_thread(cluster.stop, "n2")
        with running(cluster, "n2", "--rejoin"):
            await agree(client, {"n1", "n2"})
    # a founder without data begins nothing beside that cluster
    cluster.start("n2")
    shutil.rmtree(cluster.nodes["n3"].folder)
    code, said = await asyncio.to_thread(run_to_the_end, cluster, "n3")
    assert code == 3
    assert "went on from a backup, or alone: n3 is no founder" in said
    assert "--rejoin" in said


async def test_what_cannot_be_backed_up_or_restored_says_why_and_changes_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    to, data = tmp_path / "backup", tmp_path / "data"
    async with connect(cluster.addresses) as client:
        await schedule(client, 2_000)
    told_first = await back_up(cluster, to)
    manifest = (to / MANIFEST).read_bytes()
    for arguments, code, text in (
        (("backup", "--to", str(to), "--node", "n9", "-s", cluster.addresses), 1, "no member"),
        (("backup", "--to", str(tmp_path), "-s", cluster.addresses), 1, "name an empty folder"),
    ):
        done = await asyncio.to_thread(tarry, *arguments)
        assert (done.returncode, text in done.stderr.decode()) == (code, True), done.stderr
    assert (to / MANIFEST).read_bytes() == manifest
    data.mkdir()
    (data / "something").touch()
    done = await restore(str(to), data)
    assert (done.returncode, b"not empty" in done.stderr) == (2, True)
    (data / "something").unlink()
    wrong = ("restore", "--from", str(to), "--data", str(data), "--name", "N1")
    done = await asyncio.to_thread(tarry, *wrong)
    assert (done.returncode, b"--name 'N1': give the node's name" in done.stderr) == (2, True), done.stderr
    held = os.open(data, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # as a node does that runs on it
    done = await restore(str(to), data)
    assert (done.returncode, b"another running node's" in done.stderr) == (2, True), done.stderr
    os.close(held)
    backup = backup_in(to)
    assert backup is not None
    assert backup.index == told_first["index"]
    path = to / FILES / next(copy.path for copy in backup.files if copy.path.endswith("delay.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    done = await restore(str(to), data)
    assert (done.returncode, str(path).encode() in done.stderr) == (3, True), done.stderr
    assert list(data.iterdir()) == []
    path.write_bytes(whole)
    assert told(await restore(str(to), data))["index"] == backup.index
    for name in ("n1", "n2"):
        cluster.kill(name)
    refused = ("backup", "--to", str(tmp_path / "less"), "-s", cluster.nodes["n3"].address)
    said = b"no follower is in touch"
    deadline = time.monotonic() + PATIENCE_S
    while b"no follower is in touch" in said and time.monotonic() < deadline:  # n3 led, and does for a moment
        done = await asyncio.to_thread(tarry, *refused)
        said = done.stderr
        assert done.returncode == 3, said
    assert b"no node leads" in said, said
    assert (await back_up(cluster, tmp_path / "less", "--node", "n3"))["node"] == "n3"
