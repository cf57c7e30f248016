"""Changes of pending messages by several clients at once, while leaders die and leadership moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarry.chaos.run import SETTLE_S, Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.changes import Changing
from tarry.chaos.traffic.traffic import patiently

KILLS = 3
CHANGED_MIN = {"reschedule": 100, "update": 20}


@scenario(loads=("light",), rough=False)
async def pending_changed(run: Run) -> None:
    """Rescheduled, updated, cancelled, swept, listed, all at once: SIGKILL of the leader, three times."""

    async def faults() -> None:
        for _ in range(KILLS):
            await run.crash(await run.leader(), away_s=0.7)
            await run.serving()
            await run.during(0.5)

    await _changed(run, faults)


@scenario(loads=("light",), rough=False)
async def pending_changed_as_leaders_move(run: Run) -> None:
    """The same with transfers, some to a node that is killed at that moment, and SIGKILL of all nodes."""

    async def faults() -> None:
        for _ in range(2):
            for target in await run.followers():
                await run.transfer(target)
                await run.during(0.5)
            target = (await run.followers())[0]
            async with run.disturbed("transfer to a node that dies", target):
                await run.together(run.transfer(target), 0.02, target)
            await run.serving()
        await run.crash_all()
        await run.during(0.5)

    await _changed(run, faults)


async def _changed(run: Run, faults: Callable[[], Awaitable[None]]) -> None:
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    async with run.cluster.connect(deadline_ms=3_000) as other:
        clients = Changing([run.client, other], run.history, run.producers.tokens, run.seed)
        async with clients.going_on():
            await run.during(1.5)
            await faults()
            await clients.stop()
            await run.serving()
            await run.during(1)
            await clients.look_at_all()

            async def delivered() -> int | None:
                return len(clients.left()) or None

            run.expect(await patiently(delivered, SETTLE_S), "changed messages were not delivered")
    run.say(", ".join(f"{count} {name}" for name, count in sorted(clients.outcomes.items())))
    enough = all(
        clients.outcomes[f"{asked} changed"] >= least for asked, least in CHANGED_MIN.items()
    ) and all(clients.outcomes[name] for name in ("reschedule due_differs", "cancel cancelled", "sweep done"))
    run.expect(enough, f"changes came to {dict(clients.outcomes)}", timed=True)
