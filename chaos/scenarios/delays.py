"""Groups with a delay, while leaders die and leadership moves."""

from __future__ import annotations

from functools import partial

from tarry.chaos.run import SETTLE_S, Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.delayed import LATER, NOW, Delayed
from tarry.chaos.traffic.traffic import patiently

DELAY_MS, LONG_MS = 2_500, 3_600_000
ROUNDS = 3


@scenario(loads=("light",))
async def delayed_group(run: Run) -> None:
    """One group gets messages at once, one later, as leaders die; an hour's delay is set, then lifted."""
    delayed = Delayed(run.client, run.history, run.producers.tokens, run.seed)
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    await delayed.begin(DELAY_MS)
    try:
        await run.during(1.5)
        for _ in range(ROUNDS):
            await run.crash(await run.leader())
            await run.serving()
            await run.during(1.0)
            await run.transfer()
            await run.during(1.0)
        await run.serving()
        await delayed.set_delay(LONG_MS)
        early = delayed.early(DELAY_MS)
        run.expect(not early, f"{len(early)} messages came before the delay was over, as {early[:1]}")
        await run.crash(await run.leader())
        await run.serving()
        held = delayed.left(LATER)
        await run.during(DELAY_MS / 1_000)
        await delayed.stop_producing()
        given = held - delayed.left(LATER)
        run.expect(not given, f"{len(given)} messages came within an hour that they were to wait")
        run.expect(bool(held), "nothing waited for the delay")
        await delayed.set_delay(0)
        for group in (NOW, LATER):
            done = await patiently(partial(_left, delayed, group), SETTLE_S)
            run.expect(done, f"{len(delayed.left(group))} messages never came to {group}")
    finally:
        await delayed.end()
    run.say(f"{len(held)} waited for the hour's delay, and came once it was lifted")


async def _left(delayed: Delayed, group: str) -> int | None:
    return len(delayed.left(group)) or None
