"""Schedules that recur and fire each second or so, while leaders die and leadership moves."""

from __future__ import annotations

from typing import Final

from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.recurring import MISSING, Firing
from tarry.client.aio import Missed

ROUNDS: Final = 4
DOWN_S: Final = 9.0
MISSED_MIN: Final = 4
"""Of fires a second in that time, of which those of the last two seconds are late and not missed."""


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
    skipped = sum(plan.missed for plan in run.history.fires.planned)
    run.say(f"{planned} fires, {came} messages, {skipped} skipped, {firing.failed_looks} looks failed")
    run.expect(skipped > 0, "no fire met the message of the one before")


@scenario(loads=("light",), rough=False)
async def recurring_fires_missed(run: Run) -> None:
    """Schedules fire each second: SIGKILL of all nodes for 9 s; each policy for missed fires has its way."""
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    firing = Firing(run.client, run.history.fires, MISSING)
    async with firing.going_on():
        await run.during(4)
        await run.crash_all(DOWN_S)
        await run.during(2)
        run.expect(await firing.end(), "not every fire's message came")
    missed = {plan.schedule: plan.missed for plan in run.history.fires.planned}
    run.say(f"missed: {missed}")
    last, every, none = (missed[f"missed-{policy}"] for policy in (Missed.LAST, Missed.ALL, Missed.NONE))
    run.expect((every, none - last) == (0, 1), f"the policies for missed fires came to {missed}")
    run.expect(none >= MISSED_MIN, f"only {none} fires were missed", timed=True)
