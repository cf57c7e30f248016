"""Disks that are full, slow, failing, decayed, torn or empty."""

from __future__ import annotations

import random
from functools import partial

from tarry.chaos.faults import disks
from tarry.chaos.faults.catalogue import FAULTS, join_anew
from tarry.chaos.run import Run
from tarry.chaos.scenario import SHORT_JOURNAL, scenario

DISK_BYTES = 256 << 20
FULL = {name: {"disk_free_bytes_min": 1 << 20} for name in ("limits", "ledger")}  # the disks are small


def _small_disks(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        disks.mount_small(node, DISK_BYTES)
        run.on_end(partial(disks.unmount, node))


def _told_disks(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        disks.give_disk(node)


@scenario(needs=(disks.not_root,), prepare=_small_disks, settings=FULL)
async def disk_full(run: Run) -> None:
    """The leader's disk fills up, then a follower's: nothing that was taken is lost; then it is freed."""
    for leads in (True, False):
        name = await run.leader() if leads else (await run.followers())[-1]
        node = run.cluster.local.nodes[name]
        async with run.disturbed("disk full", name, loose=True):
            disks.fill(node)
            ended = await run.ended(name, within_s=8)
            run.say(f"{name} {'ended' if ended else 'goes on'}")
            disks.free(node)
            if not ended:
                run.cluster.kill(name)
            run.cluster.start(name)
        await run.serving()


@scenario(needs=(disks.no_compiler,), prepare=_told_disks)
async def slow_fsync(run: Run) -> None:
    """Every sync takes 40 ms longer on a follower, then on the leader, then 400 ms on the leader."""
    for who, delay_ms in (("follower", 40), ("leader", 40), ("leader", 400)):
        name = await run.leader() if who == "leader" else (await run.followers())[0]
        node = run.cluster.local.nodes[name]
        async with run.disturbed(f"fsync takes {delay_ms} ms longer", name, loose=True):
            disks.set_disk(node, delay_ms)
            await run.during(2)
            disks.set_disk(node)
        await run.serving()


@scenario(needs=(disks.no_compiler,), prepare=_told_disks)
async def failing_fsync(run: Run) -> None:
    """Every sync fails (EIO) on the leader, then on a follower: the node must end, and the others go on."""
    for leads in (True, False):
        name = await run.leader() if leads else (await run.followers())[0]
        await FAULTS["failing fsync"].inject(run, name, 0)
        await run.serving()


@scenario()
async def torn_files(run: Run) -> None:
    """Nodes killed, and bytes cut off the ends of files that nobody has synced since the last checkpoint."""
    chance = random.Random(run.seed)
    for name in (await run.leader(), (await run.followers())[0]):
        async with run.disturbed("crash", name):
            run.cluster.kill(name)
            node = run.cluster.local.nodes[name]
            torn = disks.tear(node, chance, "state-*/hours/*/slots")
            run.say(f"torn: {torn} files of {name}")
            await run.during(1)
            run.cluster.start(name)
        await run.serving()


@scenario()
async def decayed_records(run: Run) -> None:
    """Bits turned in the delay log of a follower that is down; then it leads, and mends them from peers."""
    chance = random.Random(run.seed)
    name = (await run.followers())[0]
    async with run.disturbed("decay", name):
        await run.cluster.stop(name)
        turned = disks.flip_bits(run.cluster.local.nodes[name], chance, "state-*/hours/*/delay.log", 20)
        run.say(f"turned {turned} bits")
        run.cluster.start(name)
        await run.serving()
        await run.transfer(name)
    await run.during(3)


@scenario()
async def wiped_node(run: Run) -> None:
    """A node loses its data, is let go, joins again with an empty disk and then leads."""
    name = (await run.followers())[0]
    async with run.disturbed("disk wiped", name):
        run.cluster.kill(name)
        await run.removed(name)
        await join_anew(run, run.cluster.local.nodes[name])
    await run.transfer(name)
    await run.during(2)


@scenario(settings=SHORT_JOURNAL)
async def snapshot_and_crash(run: Run) -> None:
    """A follower far behind is killed again and again while it takes the leader's state."""
    name = (await run.followers())[0]
    async with run.disturbed("behind", name):
        run.cluster.kill(name)
        await run.fill(20_000)
        await run.during(1)
        for number in range(4):
            run.cluster.start(name)
            await run.during(0.6 + 0.15 * number)
            run.cluster.kill(name)
        run.cluster.start(name)
        await run.serving()


@scenario(settings=SHORT_JOURNAL)
async def snapshot_from_a_leader_that_dies(run: Run) -> None:
    """The leader is killed while a follower takes its state; the third goes on with it."""
    leader, name = await run.leader(), (await run.followers())[0]
    async with run.disturbed("behind", name, loose=True):
        run.cluster.kill(name)
        await run.fill(20_000)
        await run.during(1)
        run.cluster.start(name)
        await run.during(1)
        run.cluster.kill(leader)
        await run.during(0.5)
        run.cluster.start(leader)
        await run.serving()


@scenario(settings={"dispatch": {"checkpoint_ms": 100}})
async def crash_in_checkpoints(run: Run) -> None:
    """Nodes killed while checkpoints are written ten times a second, the leader first."""
    for _ in range(2):
        for name in (await run.leader(), (await run.followers())[0]):
            await run.crash(name, away_s=0.5)
            await run.serving()
