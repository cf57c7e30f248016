"""What operators do after the worst, and what they did before it: backups, and clusters made of them."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarry.chaos.faults.disks import wipe
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.client.errors import TarryError
from tarry.client.local.cluster import LocalCluster, LocalClusterError, command

REJOIN_LOOKS = 300
BACKUP_TRIES = 3


async def tarry(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a command; return its exit code, what it told, and its words."""
    code, told, words = await words_of("-m", "tarry.node", *arguments, "-o", "json")
    return code, json.loads(told) if code == 0 else {}, words


async def words_of(*arguments: str) -> tuple[int, str, str]:
    """Run Python with arguments; return its exit code, what it told, and its words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, words = await process.communicate()
    return process.returncode or 0, told.decode(), words.decode(errors="replace")


@scenario(loads=("light", "bulk"))
async def backup_restore(run: Run) -> None:
    """The node that gives a backup is killed, then a leader that does; the last whole one makes a cluster."""
    folder = run.cluster.local.folder / "backup"
    code, first, words = await _back_up(run, folder)
    run.expect(code == 0, f"no backup of a cluster at peace: {words}")
    for victim in ((await run.followers())[0], await run.leader()):
        async with run.disturbed("crash in a backup", victim, loose=True):
            taking = asyncio.create_task(_back_up(run, folder, "--node", victim))
            await asyncio.sleep(0.4)
            run.cluster.kill(victim)
            await taking  # it breaks off, or was quicker
            await run.during(1)
            run.cluster.start(victim)
        await run.serving()
        code, told, words = await _restore(folder, folder.with_name(f"restored-{victim}"))
        kept = code == 0 and told.get("index", 0) >= first.get("index", 0)
        run.expect(kept, f"a backup that broke off spoilt the one before: {words}")
    for _ in range(BACKUP_TRIES):  # a busy machine may be without a leader for a moment more
        await run.serving()
        code, last, words = await _back_up(run, folder)
        if "BACKUP_UNAVAILABLE" not in words:
            break
    run.expect(code == 0, f"no backup after the crashes: {words}")
    # another cluster, whose ledger is not this one's
    with tempfile.TemporaryDirectory() as other, LocalCluster(1, Path(other)) as restored:
        code, told, words = await _restore(folder, restored.nodes["n1"].folder)
        run.expect(told.get("digest") == last.get("digest"), f"restored {told}, backed up {last}: {words}")
        restored.start()
        try:
            await asyncio.to_thread(restored.wait_for_leader)
        except LocalClusterError as error:
            run.expect(False, f"the restored node does not lead: {error}")


@scenario(loads=("light", "bulk"))
async def lost_majority(run: Run) -> None:
    """Both followers lose their disks; the leader goes on alone, and they come back with --rejoin."""
    leader, others = await run.leader(), await run.followers()
    nodes = run.cluster.local.nodes
    async with run.disturbed("majority lost", leader, loose=True):
        for name in others:
            run.cluster.kill(name)
            wipe(nodes[name])
        await run.during(0.5)
        run.cluster.kill(leader)
        recover = (*command(nodes[leader].config), "--recover-alone", "--confirm", leader)
        code, _, words = await words_of(*recover)
        run.expect(code == 0, f"{leader} cannot go on alone: {words}")
        run.cluster.start(leader)
        alone = await run.leader()
        run.expect(alone == leader, f"{alone} leads, not {leader}")
        for name in others:
            config = nodes[name].config
            config.write_text('damaged_data = "rejoin"\n' + config.read_text())
            run.cluster.start(name)
            await joined(run, name)
    await run.serving()


async def joined(run: Run, name: str) -> None:
    """Wait until a node that rejoins by itself is a member."""
    for _ in range(REJOIN_LOOKS):
        with suppress(TarryError):
            if name in {member.node for member in (await run.client.operator().status()).members}:
                return
        await run.during(0.2)
    run.expect(False, f"{name} does not rejoin: {run.cluster.local.nodes[name].log_tail(5)}")


async def _back_up(run: Run, to: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    return await tarry("backup", "--to", str(to), "-s", run.cluster.addresses, *more)


async def _restore(source: Path, data: Path) -> tuple[int, dict[str, Any], str]:
    return await tarry("restore", "--from", str(source), "--data", str(data), "--name", "n1")
