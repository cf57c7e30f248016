"""Members that come and go while something else goes wrong."""

from __future__ import annotations

import asyncio

from tarry.chaos.faults.catalogue import join_anew
from tarry.chaos.faults.disks import wipe
from tarry.chaos.faults.network import isolated
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario


@scenario(fast=True)
async def member_added_and_the_leader_killed(run: Run) -> None:
    """A fourth node joins; the leader is killed as it does."""
    node = run.cluster.newcomer("n4")
    run.cluster.start("n4")
    leader = await run.leader()
    async with run.disturbed("join and crash", leader, loose=True):
        joining = asyncio.create_task(run.added(node))
        await asyncio.sleep(0.7)
        run.cluster.kill(leader)
        await run.during(1)
        run.cluster.start(leader)
        await joining
    await run.serving()


@scenario(loads=("light",))
async def emptied_founder(run: Run) -> None:
    """A follower that has acknowledged what the third lacks loses its folder: it must not elect the third."""
    leader, (emptied, behind) = await run.leader(), await run.followers()
    node = run.cluster.local.nodes[emptied]
    async with run.disturbed("a folder emptied", loose=True):
        run.cluster.links.cut(isolated(behind, run.names))
        await run.during(2)
        run.cluster.kill(leader)
        run.cluster.kill(emptied)
        wipe(node)
        run.cluster.links.mend(isolated(behind, run.names))
        # not on record as a start: a node that cannot vote makes no majority
        run.cluster.local.start(emptied)
        await run.during(3)
        leads = any(seen.leads for seen in await run.ask())
        run.expect(not leads, f"{behind} or {emptied} leads without what {leader} and {emptied} acknowledged")
        run.cluster.start(leader)
        ended = await run.ended(emptied, within_s=20)
        run.expect(ended, f"{emptied} goes on although its peers know that its name has spoken before")
        told = "--rejoin" in node.log_tail(40)
        run.expect(told, f"{emptied} does not say what to do: {node.log_tail(5)}")
        if not ended:
            run.cluster.kill(emptied)
        await run.removed(emptied)
        run.cluster.rejoin(node)
        run.cluster.start(emptied)
        await run.added(node)
    await run.serving()


@scenario()
async def leader_removed(run: Run) -> None:
    """A fourth node joins, the leader is removed (it transfers first) and comes back as a newcomer."""
    node = run.cluster.newcomer("n4")
    run.cluster.start("n4")
    await run.added(node)
    leader = await run.leader()
    await run.removed(leader)
    async with run.disturbed("removed", leader):
        await run.cluster.stop(leader)
        await join_anew(run, run.cluster.local.nodes[leader])
    await run.serving()


@scenario()
async def member_removed_while_cut_off(run: Run) -> None:
    """A follower is cut off, removed, and comes back into reach: it must disturb nobody, and joins again."""
    leader, name = await run.leader(), (await run.followers())[0]
    async with run.disturbed("cut off", name):
        run.cluster.links.cut(isolated(name, run.names))
        await run.removed(name)
        run.cluster.links.mend(isolated(name, run.names))
        await run.during(2)
        same = await run.leader() == leader
        run.expect(same, "a node that is no member any more deposed the leader", timed=True)
        run.cluster.kill(name)
        await join_anew(run, run.cluster.local.nodes[name])
    await run.serving()
