"""What operators do after the worst, and what they did before it: backups, and clusters made of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.client.local.cluster import LocalCluster, LocalClusterError


async def tarry(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a command; return its exit code, what it told, and its words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tarry.node",
        *arguments,
        "-o",
        "json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, words = await process.communicate()
    answer: dict[str, Any] = json.loads(told) if process.returncode == 0 else {}
    return process.returncode or 0, answer, words.decode(errors="replace")


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
    code, last, words = await _back_up(run, folder)
    run.expect(code == 0, f"no backup after the crashes: {words}")
    with LocalCluster(1, folder.with_name("restored")) as restored:
        code, told, words = await _restore(folder, restored.nodes["n1"].folder)
        run.expect(told.get("digest") == last.get("digest"), f"restored {told}, backed up {last}: {words}")
        restored.start()
        try:
            await asyncio.to_thread(restored.wait_for_leader)
        except LocalClusterError as error:
            run.expect(False, f"the restored node does not lead: {error}")


async def _back_up(run: Run, to: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    return await tarry("backup", "--to", str(to), "-s", run.cluster.addresses, *more)


async def _restore(source: Path, data: Path) -> tuple[int, dict[str, Any], str]:
    return await tarry("restore", "--from", str(source), "--data", str(data), "--name", "n1")
