"""Nodes that die, freeze, come back, transfer leadership."""

from __future__ import annotations

from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario


@scenario(duplicates_max=0)
async def no_fault(run: Run) -> None:
    """Nothing is done: what the others are compared with."""
    await run.during(4)


@scenario(rough=False)
async def leader_killed_often(run: Run) -> None:
    """SIGKILL of the leader, five times, each time started again: how long until its successor delivers."""
    for _ in range(5):
        await run.crash(await run.leader(), away_s=2)
        await run.serving()
        await run.during(0.5)


@scenario(fast=True)
async def leader_killed(run: Run) -> None:
    """SIGKILL of the leader in the middle of traffic of every kind."""
    await run.crash(await run.leader())
    await run.serving()


@scenario()
async def follower_killed(run: Run) -> None:
    """SIGKILL of each follower, one after another."""
    for name in await run.followers():
        await run.crash(name)
        await run.serving()


@scenario()
async def all_killed(run: Run) -> None:
    """SIGKILL of all nodes at once, and all started again."""
    await run.crash_all(0.5)


@scenario()
async def killed_again_and_again(run: Run) -> None:
    """A node that dies 200 to 700 ms after each start, eight times: a restart loop, the leader's at first."""
    name = await run.leader()
    async with run.disturbed("restart loop", name):
        for number in range(8):
            run.cluster.kill(name)
            run.cluster.start(name)
            await run.during(0.2 + 0.07 * number)


@scenario(fast=True)
async def leader_frozen(run: Run) -> None:
    """SIGSTOP of the leader for 3 s, then SIGCONT: nothing comes from it once its lease is over."""
    name = await run.leader()
    async with run.disturbed("freeze", name):
        run.cluster.pause(name)
        await run.during(3)
        run.expect(await run.leader() != name, "no other node led while the leader was frozen", timed=True)
        run.cluster.resume(name)


@scenario()
async def leader_frozen_shortly(run: Run) -> None:
    """SIGSTOP of the leader for 100 to 600 ms, about as long as its lease, ten times."""
    for number in range(10):
        await run.freeze(await run.leader(), 0.1 + 0.05 * number)
        await run.during(0.4)


@scenario()
async def follower_frozen(run: Run) -> None:
    """SIGSTOP of one follower, and of the other as soon as the first goes on: one of them always answers."""
    for name in await run.followers():
        await run.freeze(name, 2)
        await run.serving()


@scenario(duplicates_max=0)
async def planned_transfers(run: Run) -> None:
    """Ten planned transfers under load: nothing twice, and no more than 200 ms without proposals each."""
    for _ in range(10):
        moved = await run.client.operator().transfer()
        run.cluster.happened("transfer", moved.leader)
        run.pauses_ms.append(moved.pause_ms)
        paused = f"{moved.pause_ms} ms without proposals in a transfer, more than 200"
        run.expect(moved.pause_ms <= 200, paused, timed=True)
        await run.during(0.4)


@scenario(duplicates_max=0, unavailable_ms_max=500)
async def rolling_restart(run: Run) -> None:
    """Every node stopped in order (SIGTERM) and started again under load, the leader last."""
    for name in [*await run.followers(), await run.leader()]:
        run.cluster.happened("restart", name)
        run.say(f"restart {name}")
        await run.cluster.restart(name)
        await run.serving()
        await run.during(1)


@scenario(unavailable_ms_max=2_500)
async def transfer_to_a_node_that_dies(run: Run) -> None:
    """Leadership given to a node that is killed at that moment; then the old leader killed in a transfer."""
    for victim_leads in (False, True):
        leader, target = await run.leader(), (await run.followers())[0]
        async with run.disturbed("crash in transfer", leader, loose_ms=1_000):
            await run.together(run.transfer(target), 0.01, leader if victim_leads else target)
        await run.serving()


@scenario(nodes=5)
async def two_of_five_killed(run: Run) -> None:
    """Five nodes: the leader and a follower killed together, twice."""
    for _ in range(2):
        leader, other = await run.leader(), (await run.followers())[0]
        async with run.disturbed("crash", leader):
            run.cluster.kill(leader)
            run.cluster.kill(other)
            await run.during(2)
            run.cluster.start(leader, other)
        await run.serving()
