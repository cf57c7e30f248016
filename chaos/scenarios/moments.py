"""Every fault during a transfer, a change of members, a snapshot, checkpoints and the change of the hour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.faults import clocks
from tarry.chaos.faults.catalogue import FAULTS, Inject, at_once, equip, possible
from tarry.chaos.faults.clocks import HOUR_MS, INEXACT_MS, to_the_next_hour_ms
from tarry.chaos.faults.disks import wipe
from tarry.chaos.run import Run
from tarry.chaos.scenario import SHORT_JOURNAL, scenario

FAULT_S = 0.8
BEHIND = 4_000  # messages that a follower misses, for a snapshot

Moment = Callable[[str, Inject], Awaitable[None]]
"""Has something go on while the fault is injected into the node."""


_injecting = partial(scenario, prepare=equip, tolerance_ms=INEXACT_MS, patience_ms=6_000, travel_ms=4_000)


async def _each(run: Run, moment: Moment) -> None:
    """Inject at the leader and at a follower by turns, once with everything."""
    for number, (name, inject) in enumerate(possible().items()):
        victim = await run.leader() if number % 2 == 0 else (await run.followers())[0]
        run.say(f"{name}: {victim}")
        await moment(victim, inject)
        await run.serving()


@_injecting()
async def faults_in_transfers(run: Run) -> None:
    """Every fault in turn as leadership is transferred, at the leader and at a follower alternately."""

    async def moment(victim: str, inject: Inject) -> None:
        await at_once(inject(run, victim, FAULT_S), run.transfer())

    await _each(run, moment)


@_injecting()
async def faults_in_membership_changes(run: Run) -> None:
    """Every fault in turn as a fourth node joins, or is let go."""
    node = run.cluster.newcomer("n4")
    equip(run, node)
    joins = True

    async def moment(victim: str, inject: Inject) -> None:
        nonlocal joins
        change = _join() if joins else run.removed("n4")
        await at_once(inject(run, victim, FAULT_S), change)
        if not joins:
            await _forget()
        joins = not joins

    async def _join() -> None:
        run.cluster.start("n4")
        await run.added(node)

    async def _forget() -> None:
        if node.running:
            run.cluster.kill("n4")
        wipe(node)
        run.cluster.rejoin(node)

    await _each(run, moment)
    if joins:
        await _join()


@_injecting(settings=SHORT_JOURNAL, rough=False)
async def faults_in_snapshots(run: Run) -> None:
    """Every fault in turn as a follower takes the leader's state, at the leader and at that follower."""

    async def moment(victim: str, inject: Inject) -> None:
        leader = await run.leader()
        behind = victim if victim != leader else (await run.followers())[0]
        run.cluster.kill(behind)
        await run.fill(BEHIND)
        await run.during(0.6)  # in which the journal is compacted
        run.cluster.start(behind)
        await run.during(0.5)
        await inject(run, victim, FAULT_S)

    await _each(run, moment)


@_injecting(settings={"dispatch": {"checkpoint_ms": 100}})
async def faults_in_checkpoints(run: Run) -> None:
    """Every fault in turn while checkpoints are written ten times a second."""

    async def moment(victim: str, inject: Inject) -> None:
        await inject(run, victim, FAULT_S)

    await _each(run, moment)


async def _as_the_hour_changes(run: Run, *names: str) -> None:
    """Inject one fault after another into the leader of the moment, the first of them across the change."""
    left_s = (HOUR_MS - (now_ms() + run.ahead_ms) % HOUR_MS) / 1_000
    run.expect(left_s < 60, "the hour had changed before the load began: the run shows little", timed=True)
    await run.during(max(0.0, left_s - 0.4) if left_s < 60 else 0.0)
    for name in names:
        if name in possible():
            await FAULTS[name].inject(run, await run.leader(), FAULT_S)
            await run.serving()


@_injecting(needs=(clocks.lacking,), ahead_ms=to_the_next_hour_ms)
async def hour_changes_while_cut_off(run: Run) -> None:
    """The hour changes while the leader is cut off; then its successor is frozen, mute, reset, half open."""
    await _as_the_hour_changes(run, "isolated", "freeze", "mute", "deaf", "resets", "half open")


@_injecting(needs=(clocks.lacking,), ahead_ms=to_the_next_hour_ms)
async def hour_changes_on_bad_disks(run: Run) -> None:
    """The hour changes while the leader's disk is slow; then syncs fail, files decay, links and clocks go."""
    await _as_the_hour_changes(
        run, "slow fsync", "failing fsync", "crash and damage", "latency", "bandwidth", "slices",
        "clock ahead", "clock behind",
    )  # fmt: skip
