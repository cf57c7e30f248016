"""Producers that are killed and start anew with the same idempotency keys, while leaders die."""

from __future__ import annotations

import asyncio
import random
import sys
from itertools import islice

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Repeated, Sent
from tarry.chaos.run import TOPICS, Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.traffic import answered

COUNT = 600
PRODUCERS = 2
"""Processes that schedule the same keys at the same time."""
STARTS = 4
"""Of each of them; all but the last are killed."""
AHEAD_MS = 7_000
KILLED_AFTER_S = (0.9, 1.8)
"""From the start of a process, which takes half a second, to SIGKILL."""
ENDS_S = 60.0


@scenario(loads=("light",))
async def same_keys(run: Run) -> None:
    """Two processes schedule the same keys; SIGKILL of them and of the leader, again and again."""
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    sent_ms, sent_mono_ms = now_ms(), mono_ms()
    tokens = list(islice(run.producers.tokens, COUNT))
    run.expect(tokens[-1] - tokens[0] == COUNT - 1, "the tokens of others lie between")
    arguments = (run.cluster.addresses, TOPICS[0], tokens[0], COUNT, sent_ms + AHEAD_MS)
    chance = random.Random(f"{run.seed} same keys")
    found: dict[int, tuple[str, int]] = {}
    outputs: list[str] = []

    async def produce(chance: random.Random) -> None:
        for start in range(STARTS):
            is_last = start == STARTS - 1
            outputs.append(await _produced(arguments, None if is_last else chance.uniform(*KILLED_AFTER_S)))

    producing = [asyncio.create_task(produce(random.Random(chance.random()))) for _ in range(PRODUCERS)]
    for _ in range(2):
        await run.during(0.8)
        await run.crash(await run.leader(), away_s=0.7)
        await run.serving()
    await asyncio.gather(*producing)
    repeated = 0
    for line in "".join(outputs).splitlines():
        token, message_id, due_ms, is_repeated = line.split()
        first, _ = found.setdefault(int(token), (message_id, int(due_ms)))
        run.history.repeated.append(Repeated(int(token), first, message_id))
        repeated += int(is_repeated)
    run.expect(found.keys() == set(tokens), f"{COUNT - len(found)} keys have no answer")
    for number, (first, answered_ms) in found.items():
        draft = Sent(number, TOPICS[0], answered_ms, sent_ms, sent_mono_ms)
        run.history.sent.append(answered(draft, None, first, answered_ms))
    run.say(f"{len(run.history.repeated)} answers, {repeated} repeated")
    run.expect(repeated >= COUNT, f"only {repeated} answers were repeated")


async def _produced(arguments: tuple[str, str, int, int, int], seconds: float | None) -> str:
    """Return what a producer printed until it ended, or was killed after so many seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tarry.chaos.traffic.by_keys",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        reading = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait((reading,), timeout=ENDS_S if seconds is None else seconds)
        if not done:
            process.kill()
        output, _ = await reading
    finally:
        if process.returncode is None:
            process.kill()
    whole = output.decode().rpartition("\n")[0]  # the last line may be cut
    return f"{whole}\n" if whole else ""
