"""Schedules that recur and fire each second or so, while leaders die and leadership moves."""

from __future__ import annotations

from typing import Final

from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.recurring import Firing

ROUNDS: Final = 4


@scenario(loads=("light",), rough=False)
async def recurring_fires(run: Run) -> None:
    """Schedules fire each second: SIGKILL of the leader, transfers to each follower, four times over."""
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    firing = Firing(run.client, run.history.fires)
    async with firing.going_on():
        await run.during(3)
        for _ in range(ROUNDS):
            await run.crash(await run.leader(), away_s=1)
            await run.serving()
            await run.during(1.5)
            for target in await run.followers():
                await run.transfer(target)
                await run.during(1.5)
        run.expect(await firing.end(), "not every fire's message came")
    planned = sum(len(plan.times_ms()) for plan in run.history.fires.planned)
    came = len({one.id for one in run.history.fires.messages})
    run.say(f"{planned} fires, {came} messages, {firing.failed_looks} looks failed")
