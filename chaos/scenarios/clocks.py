"""Clocks that are wrong, jump, drift; leaders that have to realign; the change of the hour."""

from __future__ import annotations

import time

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.faults import clocks
from tarry.chaos.faults.clocks import HOUR_MS, INEXACT_MS, to_the_next_hour_ms
from tarry.chaos.run import ALL_BEHIND_MS, Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.recurring import STEADY, Firing, Kind
from tarry.client.aio import Interval, Missed, Overlap

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
TOLD_MS = 200
"""Greatest error of the offset that operators are told."""
MOVES_S = 30
LATE_MS = 10_000
"""Of a fire while a clock is wrong: until leadership has moved."""


def _clocks(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        clocks.give_clock(node, run.ahead_ms)


def _skewed(run: Run) -> None:
    for node, ahead_ms in zip(run.cluster.local.nodes.values(), (100, 0, -80), strict=True):
        clocks.give_clock(node, ahead_ms)


async def _jump(run: Run, jump_ms: int, *, leads: bool) -> None:
    name = await run.leader() if leads else (await run.followers())[0]
    run.cluster.happened("clock", name)
    run.say(f"the clock of {name} jumps by {jump_ms} ms")
    clocks.set_clock(run.cluster.local.nodes[name], jump_ms)
    await run.during(1)
    await run.told_of_clock(name, jump_ms, TOLD_MS)
    if leads:
        since = time.monotonic()
        while await run.leader() == name and time.monotonic() - since < MOVES_S:
            await run.during(0.2)
        moved = await run.leader() != name
        run.expect(moved, f"{name} leads on with a clock that is {jump_ms} ms off", timed=True)
    clocks.set_clock(run.cluster.local.nodes[name], 0)
    await run.during(1.5)  # a second until the node reads it


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def leader_clock_jumps_by_a_second(run: Run) -> None:
    """The leader's clock jumps by + 1 s, the next leader's by - 1 s: told, transferred, nothing early."""
    for jump_ms in (SECOND, -SECOND):
        await _jump(run, jump_ms, leads=True)


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def leader_clock_jumps_by_ten_minutes(run: Run) -> None:
    """The leader's clock jumps by + 10 min, the next one's by - 10 min: told, transferred, nothing early."""
    for jump_ms in (10 * MINUTE, -10 * MINUTE):
        await _jump(run, jump_ms, leads=True)


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def leader_clock_jumps_by_a_day(run: Run) -> None:
    """The leader's clock jumps by + 1 day, the next one's by - 1 day: told, transferred, nothing early."""
    for jump_ms in (DAY, -DAY):
        await _jump(run, jump_ms, leads=True)


@scenario(loads=("light",), needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def recurring_fires_clock_jumps(run: Run) -> None:
    """Schedules fire each second: the leader's clock jumps by ± 1 s and ± 10 min; each fire comes once."""
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    kinds = {**STEADY, "last": Kind(Interval(SECOND), SECOND, missed=Missed.LAST)}
    firing = Firing(run.client, run.history.fires, kinds)
    async with firing.going_on():
        await run.during(3)
        for jump_ms in (SECOND, -SECOND, 10 * MINUTE, -10 * MINUTE):
            await _jump(run, jump_ms, leads=True)
        run.expect(await firing.end(), "not every fire's message came")
    fires = run.history.fires
    (last,) = (plan for plan in fires.planned if plan.schedule == "last")
    run.expect(not last.missed, f"{last.missed} fires were missed, though none was a minute late")
    at_ms = {
        one.id: one.fire_ms for one in fires.seen if one.id and kinds[one.schedule].overlap is Overlap.ALLOW
    }
    late_ms = max(one.received_ms - at_ms.get(one.id, one.received_ms) for one in fires.messages)
    run.expect(late_ms < LATE_MS, f"a fire's message came {late_ms} ms late", timed=True)
    planned = sum(len(plan.times_ms()) for plan in fires.planned)
    came = len({one.id for one in fires.messages})
    run.say(f"{planned} fires, {came} messages, the last {late_ms} ms late")


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def follower_clock_jumps(run: Run) -> None:
    """A follower's clock jumps by ± 1 s, ± 10 min, ± 1 day: told, and nothing else happens."""
    for jump_ms in (SECOND, -SECOND, 10 * MINUTE, -10 * MINUTE, DAY, -DAY):
        await _jump(run, jump_ms, leads=False)


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def wrong_clock_takes_over(run: Run) -> None:
    """Leadership given to a node whose clock is 10 min ahead, then behind; then the leader killed."""
    for jump_ms in (10 * MINUTE, -10 * MINUTE):
        name = (await run.followers())[0]
        node = run.cluster.local.nodes[name]
        run.cluster.happened("clock", name)
        clocks.set_clock(node, jump_ms)
        await run.during(1)
        await run.transfer(name)
        await run.during(1)
        await run.crash(await run.leader(), away_s=1)
        await run.serving()
        clocks.set_clock(node, 0)
        await run.during(1)


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def clocks_that_jump_while_a_follower_is_down(run: Run) -> None:
    """A node down whose clock the new leader never heard: its own jumps by - 3 s, then the follower's."""
    before, (down, leader) = await run.leader(), await run.followers()
    run.cluster.kill(down)
    await run.transfer(leader)
    await run.during(1)
    for name in (leader, before):
        run.cluster.happened("clock", name)
        clocks.set_clock(run.cluster.local.nodes[name], -3_000)
        await run.during(2)
        clocks.set_clock(run.cluster.local.nodes[name], 0)
        await run.during(1)
    run.cluster.start(down)
    await run.serving()
    await run.during(1)


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def wakes_up_in_the_future(run: Run) -> None:
    """All nodes down; one wakes up first, alone and an hour ahead, and knows no clock but its own."""
    name = run.names[0]
    async with run.disturbed("all down", behind_ms=ALL_BEHIND_MS, loose_ms=500):
        for each in run.names:
            run.cluster.kill(each)
        run.cluster.happened("clock", name)
        clocks.set_clock(run.cluster.local.nodes[name], HOUR_MS)
        run.cluster.start(name)
        await run.during(2.5)
        run.cluster.start(*run.names[1:])
        await run.serving()
    await run.transfer(name)
    await run.during(2)
    clocks.set_clock(run.cluster.local.nodes[name], 0)
    await run.during(1)


@scenario(needs=(clocks.lacking,), prepare=_skewed, tolerance_ms=150)  # of three clocks one is right, or none
async def clocks_apart(run: Run) -> None:
    """Clocks 100 ms ahead and 80 ms behind from the start on; leadership goes round, a leader is killed."""
    for _ in range(3):
        await run.transfer()
        await run.during(1)
    await run.crash(await run.leader(), away_s=1)
    await run.serving()


@scenario(needs=(clocks.lacking,), prepare=_clocks, tolerance_ms=INEXACT_MS)
async def clocks_drift(run: Run) -> None:
    """One clock runs 2 % fast, another 1 % slow, for 6 s; the leader is killed meanwhile."""
    first, second, _ = run.names
    clocks.set_clock(run.cluster.local.nodes[first], 0, rate=1.02)
    clocks.set_clock(run.cluster.local.nodes[second], 0, rate=0.99)
    run.cluster.happened("clock", first)
    await run.during(3)
    await run.crash(await run.leader(), away_s=1)
    await run.during(2)
    for name in (first, second):
        clocks.set_clock(run.cluster.local.nodes[name], 0)
    await run.serving()


@scenario(needs=(clocks.lacking,), prepare=_clocks, patience_ms=9_000, set_back_ms=5_000)
async def realign_behind(run: Run) -> None:
    """All clocks set back by 5 s, and the leader killed: its successor stands behind the tick and waits."""
    async with run.disturbed("clocks set back"):
        for node in run.cluster.local.nodes.values():
            clocks.set_clock(node, -5_000)
        await run.during(1.5)
    frontier_ms = await run.frontier_ms()
    await run.crash(await run.leader(), away_s=0.5)
    await run.serving()
    run.expect(await run.frontier_ms() >= frontier_ms, "the frontier moved back")
    await run.during(5)  # past the tick


@scenario(rough=False)
async def realign_ahead(run: Run) -> None:
    """All nodes away for 4 s, 30,000 messages due meanwhile: the next leader rushes, then keeps pace."""
    await run.fill(30_000, delay_ms=3_000, delivered=True)
    await run.crash_all(4, name="all away", loose=True)
    await run.during(3)


@scenario(needs=(clocks.lacking,), prepare=_clocks, ahead_ms=to_the_next_hour_ms, fast=True)
async def hour_changes(run: Run) -> None:
    """The hour changes under load; the leader is killed at about that moment, leadership moved soon after."""
    left_s = (HOUR_MS - (now_ms() + run.ahead_ms) % HOUR_MS) / 1_000
    run.say(f"the hour changes in {left_s:.1f} s")
    run.expect(left_s < 60, "the hour had changed before the load began: the run shows little", timed=True)
    await run.during(max(0.0, left_s - 0.3) if left_s < 60 else 0.0)
    await run.crash(await run.leader(), away_s=0.5)
    await run.transfer()
    await run.during(3)
