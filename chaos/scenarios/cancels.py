"""Cancels of messages that are released and not handed over, while leaders die and leadership moves."""

from __future__ import annotations

from tarry.chaos.run import SETTLE_S, Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.held import Held
from tarry.chaos.traffic.traffic import patiently

ROUNDS = 3
ROUNDS_MAX = 9
"""Played while cancels have come to less than CANCELLED_MIN: on busy cores one takes long."""
CANCELLED_MIN = 50


@scenario(loads=("light",))
async def cancel_held(run: Run) -> None:
    """Crowds, held keys and a rate; cancels of what waits, as the leader is killed and leadership moved."""
    held = Held(run.client, run.history, run.producers.tokens, run.seed)
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    await held.begin()
    try:
        await run.during(1.5)
        for played in range(ROUNDS_MAX):
            if played >= ROUNDS and _several(held):
                break
            await run.crash(await run.leader())
            await run.serving()
            await run.during(0.7)
            await run.transfer()
            await run.during(0.7)
        await held.stop_producing()
        await run.serving()

        async def delivered() -> int | None:
            return len(held.left()) or None

        run.expect(await patiently(delivered, SETTLE_S), "messages behind cancelled ones were not delivered")
    finally:
        await held.end()
    run.say(", ".join(f"{count} {name}" for name, count in sorted(held.outcomes.items())))
    run.say(", ".join(f"{count} {name} of released" for name, count in sorted(held.of_released.items())))
    run.expect(
        held.of_released["cancelled"] > 0, f"no released message was cancelled: {dict(held.of_released)}"
    )
    run.expect(_several(held), f"cancels came to {dict(held.outcomes)}", timed=True)


def _several(held: Held) -> bool:
    return held.outcomes["cancelled"] >= CANCELLED_MIN and held.outcomes["already_delivered"] > 0
