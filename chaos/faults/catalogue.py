"""The faults that scenarios combine and draw from: each injures one node for some time and heals it.

inject = FAULTS["half open"].inject
await inject(run, "n2", 0.8)
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Final

from tarry.chaos.cluster.proxies import Link
from tarry.chaos.faults import clocks, disks
from tarry.chaos.faults.network import deaf, isolated, mute
from tarry.chaos.run import Run
from tarry.client.local.cluster import LocalNode

Inject = Callable[[Run, str, float], Coroutine[None, None, None]]
"""Injures a node of a run for so many seconds."""

LEASE_MS = 700
ENDS_S = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """`need`: what the node must have been given before it was started: clock, disk, or nothing."""

    inject: Inject
    need: str = ""


async def _crash_and_tear(run: Run, name: str, seconds: float) -> None:
    """Cut off ends of files that nobody syncs, and damage records, while the node is down."""
    async with run.disturbed("crash", name):
        run.cluster.kill(name)
        chance, node = random.Random(f"{run.seed} {name}"), run.cluster.local.nodes[name]
        disks.tear(node, chance, "state-*/hours/*/slots")
        disks.flip_bits(node, chance, "state-*/hours/*/delay.log", 3)
        await run.during(seconds)
        run.cluster.start(name)


async def _cut(
    links: Callable[[str, tuple[str, ...]], list[Link]], run: Run, name: str, seconds: float
) -> None:
    chosen = links(name, run.names)
    async with run.disturbed(links.__name__, name, loose_ms=LEASE_MS):
        run.cluster.links.cut(chosen)
        await run.during(seconds)
        run.cluster.links.mend(chosen)


def _spoil(kind: str, **attributes: int) -> Inject:
    async def inject(run: Run, name: str, seconds: float) -> None:
        async with run.disturbed(kind, name, loose=True):
            run.cluster.links.spoil(isolated(name, run.names, clients=True), kind, **attributes)
            await run.during(seconds)
            run.cluster.links.heal()

    return inject


async def _slow_sync(run: Run, name: str, seconds: float) -> None:
    node = run.cluster.local.nodes[name]
    async with run.disturbed("slow fsync", name, loose=True):
        disks.set_disk(node, 100)
        await run.during(seconds)
        disks.set_disk(node)


async def _failing_sync(run: Run, name: str, seconds: float) -> None:
    node = run.cluster.local.nodes[name]
    async with run.disturbed("fsync fails", name, loose=True):
        disks.set_disk(node, error=errno.EIO)
        ended = await run.ended(name, within_s=ENDS_S)
        disks.set_disk(node)
        run.expect(ended, f"{name} goes on although its disk does not sync")
        if not ended:
            run.cluster.kill(name)
        await run.during(seconds / 2)
        run.cluster.start(name)


async def _clock(ahead_ms: int, run: Run, name: str, seconds: float) -> None:
    node = run.cluster.local.nodes[name]
    async with run.disturbed("clock", name):
        clocks.set_clock(node, run.ahead_ms + ahead_ms)
        await run.during(seconds + 1)  # it is read once a second
        clocks.set_clock(node, run.ahead_ms)


MINUTES_10: Final = 600_000
FAULTS: Final = {
    "crash": Fault(Run.crash),
    "crash and damage": Fault(_crash_and_tear),
    "freeze": Fault(Run.freeze),
    "isolated": Fault(partial(_cut, isolated)),
    "mute": Fault(partial(_cut, mute)),
    "deaf": Fault(partial(_cut, deaf)),
    "latency": Fault(_spoil("latency", latency=40, jitter=30)),
    "bandwidth": Fault(_spoil("bandwidth", rate=64)),
    "slices": Fault(_spoil("slicer", average_size=60, size_variation=30, delay=10)),
    "resets": Fault(_spoil("reset_peer", timeout=300)),
    "half open": Fault(_spoil("timeout", timeout=0)),
    "slow fsync": Fault(_slow_sync, "disk"),
    "failing fsync": Fault(_failing_sync, "disk"),
    "clock ahead": Fault(partial(_clock, MINUTES_10), "clock"),
    "clock behind": Fault(partial(_clock, -MINUTES_10), "clock"),
}


async def join_anew(run: Run, node: LocalNode) -> None:
    """Have a node that is down and no member join with an empty disk."""
    disks.wipe(node)
    run.cluster.rejoin(node)
    run.cluster.start(node.name)
    await run.added(node)


async def at_once(*doing: Coroutine[None, None, None]) -> None:
    """Do it all at the same time; where one fails, the others end as well."""
    tasks = [asyncio.create_task(one) for one in doing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def lacking() -> dict[str, str]:
    """Return why nodes can be given no clock, or no disk, of their own here; empty: they can."""
    reasons = {"clock": clocks.lacking(), "disk": disks.no_compiler()}
    return {need: reason for need, reason in reasons.items() if reason}


def equip(run: Run, *nodes: LocalNode) -> None:
    """Give nodes, or all, what the faults need, before they are started; say what this machine cannot do."""
    reasons = lacking()
    for reason in reasons.values():
        run.say(f"left out: {reason}")
    for node in nodes or run.cluster.local.nodes.values():
        if "clock" not in reasons:
            clocks.give_clock(node, run.ahead_ms)
        if "disk" not in reasons:
            disks.give_disk(node)


def possible() -> dict[str, Inject]:
    """Return the faults that this machine can do, by name."""
    reasons = lacking()
    return {name: fault.inject for name, fault in FAULTS.items() if fault.need not in reasons}
