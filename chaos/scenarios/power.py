"""Machines that lose their power while the cluster's durability is async."""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import suppress
from typing import Final, NamedTuple

from tarry.chaos.checks.outages import forgotten
from tarry.chaos.faults import disks, power
from tarry.chaos.faults.catalogue import join_anew
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.scenarios.recovery import joined, words_of
from tarry.chaos.traffic.consumers import BRISK
from tarry.chaos.traffic.traffic import TOKEN
from tarry.client.errors import NotFound, TarryError
from tarry.client.local.cluster import command

FLUSH_MS: Final = 1_000
FLUSH_TAKES_MS: Final = 500
"""One flush, and the wait of a busy event loop for its turn; grows with the load of the machine."""
PATIENCE_S: Final = 60.0
IDS_ASKED: Final = 100
"""Ids from before a loss that are asked for, one after another, at some 35 ms each beside the load."""
ALONE_S: Final = 3.0
"""For which nobody may serve without the operator's word: four patiences of an election."""
POWERLESS: Final = "the machine lost its power before everything was flushed"
ANEW: Final = "comes back as a newcomer"
_POWERLESS_HAS: Final = re.compile(r"ends with entry (\d+) of term (\d+)")
_HAS: Final = re.compile(r"has everything up to entry (\d+)")
_KEEPS: Final = re.compile(r"It keeps entries \d+ to (\d+)")
_TERM: Final = re.compile(r"Its last entry is of term (\d+)")


def _powered(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        power.give_power(node)


@scenario(needs=(disks.no_compiler,), prepare=_powered)
async def async_power_loss_minority(run: Run) -> None:
    """With async durability the leader's machine loses its power, then a follower's: each comes back anew."""
    await _go_async(run)
    chance = random.Random(run.seed)
    for leads in (True, False):
        await run.during(1 + chance.random())
        name = await run.leader() if leads else chance.choice(await run.followers())
        log = _Log(run, name)
        async with run.disturbed("power lost", name):
            run.cluster.lose_power(name)
            marked = _lose(run, name, chance)
            await run.during(1)
            run.cluster.start(name)
            if marked:
                await log.says(POWERLESS)
                await log.says(ANEW)
                await joined(run, name)
        await run.serving()


@scenario(needs=(disks.no_compiler,), prepare=_powered, loads=("light", "singles"))
async def async_power_loss_majority(run: Run) -> None:
    """With async durability two or three of three machines lose their power: no node serves until told to."""
    await _go_async(run)
    chance = random.Random(run.seed)
    await run.during(1 + chance.random())
    names = run.names if run.seed % 2 else [await run.leader(), chance.choice(await run.followers())]
    nodes = run.cluster.local.nodes
    logs = [_Log(run, name) for name in names]
    async with run.disturbed("power of a majority lost", ", ".join(names), loose=True):
        lost_mono_ms = run.cluster.lose_power(*names).at_mono_ms
        marked = [name for name in names if _lose(run, name, chance)]
        run.expect(len(marked) == len(names), f"of {names} only {marked} had something to lose")
        run.cluster.start(*names)
        for log in logs:
            await log.says(POWERLESS)
        run.forgets(lost_mono_ms, FLUSH_MS + round(FLUSH_TAKES_MS * max(1.0, run.load)))
        await run.during(ALONE_S)
        leader = await asyncio.to_thread(run.cluster.local.leader)
        run.expect(leader is None, f"{leader} leads although a majority may have forgotten what it had")
        for name in run.names:
            await run.cluster.stop(name)
        best = await _best(run)
        code, _, words = await words_of(*command(nodes[best].config), "--recover-alone", "--confirm", best)
        run.expect(code == 0, f"{best} cannot go on alone: {words}")
        run.cluster.start(best)
        alone = await run.leader()
        run.expect(alone == best, f"{alone} leads, not {best}")
        for name in run.names:
            if name in names and name != best:
                run.cluster.start(name)
                await joined(run, name)
            elif name != best:
                await join_anew(run, nodes[name])
    await run.serving()
    await _expect_ids_to_name_their_messages(run, lost_mono_ms)
    gone = forgotten(run.history, (BRISK,))
    run.say(f"{gone} messages acknowledged in the last {FLUSH_MS} ms have not come yet, or are lost")


async def _expect_ids_to_name_their_messages(run: Run, lost_mono_ms: int) -> None:
    """Ask for the messages acknowledged last before the loss: each id names its own message, or none."""
    before = [one for one in run.history.acknowledged() if one.answered_mono_ms < lost_mono_ms]
    found, gone = 0, 0
    async with run.client.producer() as producer:
        for one in before[-IDS_ASKED:]:
            try:
                message = await producer.get(one.id)
            except NotFound:
                gone += 1
                continue
            token = TOKEN.unpack_from(message.body)[0]
            run.expect(token == one.token, f"{one.id} was given for {one.token}, and names {token}")
            found += 1
    run.expect(found + gone == IDS_ASKED, f"only {found + gone} ids were given before the loss")
    run.say(f"of the last {IDS_ASKED} ids before the loss, {gone} name nothing, {found} their messages")


async def _go_async(run: Run) -> None:
    """Have the cluster acknowledge before it flushes: once it is of level 2, and the leader has written."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            await run.client.operator().set_cluster(durability="async", flush_ms=FLUSH_MS)
            break
        except TarryError:
            if time.monotonic() > until:
                raise
            await run.during(0.2)
    for name in run.names:
        while not power.is_marked(run.cluster.local.nodes[name]) and time.monotonic() < until:
            await run.during(0.05)


def _lose(run: Run, name: str, chance: random.Random) -> bool:
    """Take from a killed node what it had not flushed; return whether it may notice: else nothing is gone."""
    node = run.cluster.local.nodes[name]
    marked, gone_bytes = power.is_marked(node), power.lose(node, chance)
    run.say(f"{name} lost {gone_bytes} bytes that were not flushed")
    run.expect(marked or not gone_bytes, f"{name} lost {gone_bytes} bytes, and does not know that it may")
    return marked


class _Best(NamedTuple):
    term: int
    entry: int
    keeps_power: bool
    name: str


async def _best(run: Run) -> str:
    """Return the node that an operator goes on with, by what each says that it has."""
    found = []
    for name in run.names:
        node = run.cluster.local.nodes[name]
        code, _, words = await words_of(*command(node.config), "--recover-alone")
        run.expect(code == 2 and "nothing was changed" in words, f"{name}, asked what it has: {words}")
        found.append(what_it_has(name, words))
    run.say(", ".join(f"{one.name}: entry {one.entry} of term {one.term}" for one in found))
    return max(found).name


def what_it_has(name: str, words: str) -> _Best:
    """Return the last entry that a node says it has, and its term. Raises ValueError."""
    if powerless := _POWERLESS_HAS.search(words):
        return _Best(int(powerless[2]), int(powerless[1]), False, name)
    has, keeps, term = _HAS.search(words), _KEEPS.search(words), _TERM.search(words)
    if has is None or term is None:
        raise ValueError(f"{name} does not say what it has: {words}")
    return _Best(int(term[1]), int((keeps or has)[1]), True, name)


class _Log:
    """What a node writes from now on."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._path = run.cluster.local.nodes[name].log
        self._from = self._path.stat().st_size

    async def says(self, words: str) -> None:
        """Wait for a line; where none comes, that is a complaint."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with suppress(OSError), self._path.open("rb") as file:
                file.seek(self._from)
                if words.encode() in file.read():
                    return
            await self._run.during(0.1)
        self._run.expect(False, f"{self._name} does not say {words!r}")
