"""Transactions of a shop while leaders and producers die: each ends once, as the shop's database says."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.orders import GROUP
from tarry.chaos.traffic.transactions import GONE, Fate, Shop
from tarry.client.errors import TransactionEnded
from tarry.client.local.cluster import Setting

SETTINGS: Final[Mapping[str, Setting]] = {
    "transactions": {
        "check_after_ms": 700,
        "check_pauses_ms": [500, 1_000, 2_000],
        "checks_max": 100,
        "groups": {GONE: {"check_after_ms": 600, "check_pauses_ms": [600], "checks_max": 4}},
    }
}
ROUNDS: Final = 3
PAUSE_S: Final = 0.1
"""From one order to the next."""
EXHAUSTED: Final = 40
RACES: Final = 120
RACE_MS: Final = 400
STARTS: Final = 4
"""Of processes that place orders, one after another; each is killed."""
KILLED_AFTER_S: Final = (0.5, 2.0)
"""From its first order."""
BEGINS_S: Final = 60.0
"""From the start of a process to its first order, at most."""


@scenario(loads=("light",), rough=False, settings=SETTINGS)
async def half_message_leader_killed(run: Run) -> None:
    """Orders in transactions, some left open: SIGKILL of the leader, transfers to each follower, thrice."""
    shop = await _opened(run)
    async with shop.going_on(), shop.answering(), asyncio.TaskGroup() as working:
        ordering = working.create_task(_orders(shop, "o"))
        for _ in range(ROUNDS):
            await run.during(1)
            await run.crash(await run.leader(), away_s=1)
            await run.serving()
            for target in await run.followers():
                await run.during(0.7)
                await run.transfer(target)
        ordering.cancel()
        await asyncio.wait([ordering])
        await _judged(run, shop)


@scenario(loads=("light",), rough=False, settings=SETTINGS)
async def producer_gone_group_answers(run: Run) -> None:
    """Two processes place orders and answer checks, and are killed again and again; leadership moves."""
    shop = await _opened(run)
    chance = random.Random(f"{run.seed} producers")
    async with shop.going_on():
        outputs = await asyncio.gather(
            *(_killed(run, number, random.Random(chance.random())) for number in range(2)),
            _moves(run),
        )
        shop.seen.prepared += " ".join(filter(None, outputs)).split()
        left = (await run.client.transactions().list_page(size=1)).open
        run.expect(left > 0, "the producers left nothing open: nothing is shown")
        async with shop.answering(1):
            await _judged(run, shop)


@scenario(loads=("light",), rough=False, settings=SETTINGS)
async def checks_exhausted(run: Run) -> None:
    """Nobody answers the checks of a producer group: SIGKILL of the leader between them, a transfer."""
    shop = await _opened(run)
    async with shop.going_on(), shop.answering():
        names = [f"gone-{number}" for number in range(EXHAUSTED)]
        await asyncio.gather(*(shop.order(name, Fate.LEFT, group=GONE) for name in names))
        await asyncio.gather(*(shop.order(f"o-{number}", shop.fate()) for number in range(EXHAUSTED)))
        await run.crash(await run.leader(), away_s=1)
        await run.serving()
        for target in await run.followers():
            await run.transfer(target)
        await _judged(run, shop)
        unresolved = {one.transaction for one in shop.seen.ended if one.state == "unresolved"}
        run.expect(unresolved == set(names), f"unresolved are {sorted(unresolved)}")
        for name in names[:5]:
            try:
                await run.client.transactions().commit(GONE, name)
            except TransactionEnded as error:
                run.expect(error.state == "UNRESOLVED", f"{name} is {error.state}")
            else:
                run.expect(False, f"{name} was committed after its last check")


@scenario(loads=("light",), rough=False, settings=SETTINGS)
async def commit_races_check(run: Run) -> None:
    """Ends come in the moment of the check: SIGKILL of the leader, and transfers, meanwhile."""
    shop = await _opened(run)
    chance = random.Random(f"{run.seed} races")

    async def race(number: int) -> None:
        await asyncio.sleep(number * 0.1)
        fate = Fate.PLACED if chance.random() < 0.7 else Fate.REFUSED
        work_s = (RACE_MS + chance.uniform(-40, 40)) / 1_000
        await shop.order(f"race-{number}", fate, work_s=work_s, check_after_ms=RACE_MS)

    async with shop.going_on(), shop.answering(), asyncio.TaskGroup() as racing:
        races = [racing.create_task(race(number)) for number in range(RACES)]
        await run.during(3)
        await run.crash(await run.leader(), away_s=1)
        await run.serving()
        for target in await run.followers():
            await run.during(1)
            await run.transfer(target)
        await asyncio.wait(races)
        await _judged(run, shop)
        run.expect(shop.checking.asked >= RACES // 10, f"only {shop.checking.asked} checks: no race")


async def _opened(run: Run) -> Shop:
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    return Shop(run.client, run.history.transactions, _database(run), run.seed)


def _database(run: Run) -> Path:
    return run.cluster.local.folder / "shop.db"


async def _judged(run: Run, shop: Shop) -> None:
    """Wait for all ends and messages; the checks of the verdict do the rest."""
    run.expect(await shop.settle(), "not every transaction ended, or not every message came")
    answered_s = min(shop.seen.answered_s.values(), default=math.inf)
    looked = any(read.begun_s > answered_s for read in shop.seen.open_reads)
    run.expect(looked or not shop.seen.answered_s, "no list of open ones was answered behind an end")
    run.expect(not shop.refused, f"ended otherwise: {shop.refused[:5]}")
    states = [one.state for one in {one.transaction: one for one in shop.seen.ended}.values()]
    counts = {state: states.count(state) for state in sorted(set(states))}
    run.say(f"{len(shop.seen.prepared)} prepared, {counts}, {shop.checking.asked} checks answered here")


async def _orders(shop: Shop, prefix: str) -> None:
    """Place orders, some at a time, until cancelled: what is under way then is left open."""
    number = 0
    async with asyncio.TaskGroup() as working:
        while True:
            number += 1
            working.create_task(shop.order(f"{prefix}-{number}", shop.fate(), work_s=0.1))
            await asyncio.sleep(PAUSE_S)


async def _moves(run: Run) -> str:
    for _ in range(2):
        await run.during(1.5)
        await run.crash(await run.leader(), away_s=1)
        await run.serving()
        for target in await run.followers():
            await run.during(1)
            await run.transfer(target)
    return ""


async def _killed(run: Run, number: int, chance: random.Random) -> str:
    """Return what processes that place orders printed until they were killed, one after another."""
    told = []
    for start in range(STARTS):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tarry.chaos.traffic.orders",
            run.cluster.addresses,
            str(_database(run)),
            f"{GROUP}-{number}-{start}",
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(BEGINS_S):
                told.append((await process.stdout.readline()).decode())
            await asyncio.sleep(chance.uniform(*KILLED_AFTER_S))
            run.expect(process.returncode is None, "a process that places orders has ended by itself")
        finally:
            if process.returncode is None:
                process.kill()
        rest, _ = await process.communicate()
        told.append(rest.decode().rpartition("\n")[0])  # the last line may be cut
    return "\n".join(told)
