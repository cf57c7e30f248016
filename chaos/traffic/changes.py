"""Pending messages that several clients change at the same time: rescheduled, updated, cancelled, looked at.

Everything is written down in the run's history, what had no answer as well. `checks/changes.py` judges it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from struct import Struct

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Asked, Cancelled, History, Operation, Sent, Sweep
from tarry.chaos.traffic.insistence import AGAIN_S, insist
from tarry.chaos.traffic.traffic import GONE, TOKEN, answered, received
from tarry.client.aio import Change, Client, Producer
from tarry.client.errors import NotFound, OutcomeUnknown, Overloaded, TarryError, Unavailable
from tarry.client.queries.bulk_cancel import BulkCancel
from tarry.client.queries.listing import ListedState
from tarry.client.queries.matching import Matching

TOPIC, GROUP = "changed", "changed"
VERSIONED = Struct(f"{TOKEN.format}Q")
HOUR_MS = 3_600_000
BATCH = 20
"""Messages of one tag: a cancel of many is for one of these."""
RECENT = 200
LOOKS_AT_ONCE = 32


@dataclass(slots=True)
class Known:
    """A message as its clients know it: due, by the last answer, when `due_ms` says."""

    token: int
    id: str
    tag: str
    due_ms: int
    cancellable: bool
    """One by one; else its tag is left to a cancel of many, whose count is exact then."""


@dataclass(slots=True)
class Changing:
    """Clients that schedule, change, cancel and look at the same messages, and their consumer."""

    clients: Sequence[Client]
    history: History
    tokens: Iterator[int]
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of all calls, by what was asked and the outcome."""
    _known: list[Known] = field(default_factory=list)
    _unswept: list[list[Known]] = field(default_factory=list)
    _versions: Iterator[int] = field(default_factory=lambda: count(1))
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _producers: list[Producer] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Change while the block lasts; consume until the last is delivered, or long nothing comes."""
        await insist(self._make)
        chance = random.Random(f"{self.seed} changes")
        self._producers = [client.producer() for client in self.clients]
        consuming = asyncio.create_task(self._consume())
        kinds = (self._schedule, self._reschedule, self._reschedule, self._compete, self._update,
                 self._cancel, self._sweep, self._look, self._list)  # fmt: skip
        self._tasks = [asyncio.create_task(kind(random.Random(chance.random()))) for kind in kinds]
        try:
            yield
        finally:
            consuming.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(consuming, *self._tasks, return_exceptions=True)
            for producer in self._producers:
                await producer.close()

    async def stop(self) -> None:
        """Change nothing more, and return once every call has its answer; raises what has ended a task."""
        self._stopped.set()
        await asyncio.gather(*self._tasks)

    async def look_at_all(self) -> None:
        """Look every message up, however often it takes."""
        room = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def look(one: Known) -> None:
            async with room:
                while not await self._get(self._producers[0], one):
                    await self._pause()

        mine = [one for one in self.history.acknowledged() if one.topic == TOPIC]
        await asyncio.gather(*(look(Known(one.token, one.id, "", 0, False)) for one in mine))

    def left(self) -> set[int]:
        """Return the tokens of what was released when it was last looked at, and has not been delivered."""
        here = {one.token for one in self.history.delivered if one.topic == TOPIC}
        mine = {one.token for one in self.history.acknowledged() if one.topic == TOPIC}
        last = {one.token: one.outcome for one in self.history.operations if one.asked is Asked.GET}
        return {token for token, state in last.items() if state == "released"} & mine - here

    async def _make(self) -> None:
        operator = self.clients[0].operator()
        await operator.create_topic(TOPIC)
        await operator.create_group(TOPIC, GROUP)

    @staticmethod
    async def _pause() -> None:
        await asyncio.sleep(AGAIN_S)

    async def _paused(self, chance: random.Random, mean_s: float) -> bool:
        """Wait; return whether to go on."""
        try:
            async with asyncio.timeout(chance.uniform(0, 2 * mean_s)):
                await self._stopped.wait()
        except TimeoutError:
            return True
        return False

    def _drawn(self, chance: random.Random, most: int, *, cancellable: bool = False) -> list[Known]:
        """Return some recent messages, two of three times of the most recent, which others choose, too."""
        some = [one for one in self._known if one.cancellable or not cancellable]
        some = some[-BATCH:] if chance.random() < 0.66 else some
        return chance.sample(some, min(len(some), chance.randint(1, most)))

    @staticmethod
    def _due_ms(chance: random.Random) -> int:
        """Return a due time: soon, hours away, or (one of twenty) past."""
        kind, at_ms = chance.random(), now_ms()
        if kind < 0.05:
            return at_ms - chance.randint(1, 2_000)
        if kind < 0.65:
            return at_ms + chance.randint(300, 5_000)
        return at_ms + chance.randint(1, 30) * HOUR_MS + chance.randrange(HOUR_MS)

    def _record(
        self, about: Known, asked: Operation, outcome: str, *, told_ms: int = 0, version: int | None = None
    ) -> None:
        """Write down an answer; an empty outcome: there was none."""
        self.outcomes[f"{asked.asked.value} {outcome or 'without an answer'}"] += 1
        if told_ms:
            about.due_ms = told_ms
        at_ms = mono_ms() if outcome else None
        done = replace(
            asked, outcome=outcome, answered_mono_ms=at_ms, told_due_ms=told_ms, told_version=version
        )
        self.history.operations.append(done)

    # Kinds

    async def _schedule(self, chance: random.Random) -> None:
        for number in count():
            if not await self._paused(chance, 0.3):
                return
            tag, cancellable = f"tag {number}", number % 2 == 0
            at_mono_ms, at_ms = mono_ms(), now_ms()  # in this order: else what waits seems to wait less
            dues_ms = [max(at_ms + 300, self._due_ms(chance)) for _ in range(BATCH)]
            drafts = [Sent(next(self.tokens), TOPIC, due_ms, at_ms, at_mono_ms) for due_ms in dues_ms]
            bodies = [VERSIONED.pack(draft.token, 0) for draft in drafts]
            try:
                batch = await self._producers[0].schedule_batch(
                    TOPIC, bodies, due_ms=dues_ms, tags=[[tag]] * BATCH
                )
            except TarryError as error:
                self.history.sent += [answered(draft, error) for draft in drafts]
                continue
            rows = list(zip(drafts, batch.ids, batch.due_ms.tolist(), strict=True))
            self.history.sent += [answered(draft, None, found, due) for draft, found, due in rows]
            mine = [Known(draft.token, found, tag, due, cancellable) for draft, found, due in rows]
            self._known = [*self._known, *mine][-RECENT:]
            self._unswept.append(mine)

    async def _reschedule(self, chance: random.Random) -> None:
        while await self._paused(chance, 0.12):
            some = self._drawn(chance, 6)
            if some:
                await self._move(chance.choice(self._producers), some, [self._due_ms(chance) for _ in some])

    async def _compete(self, chance: random.Random) -> None:
        """Reschedule one message twice at once, both where it is due as it was last told; update it, too."""
        while await self._paused(chance, 0.15):
            for one in self._drawn(chance, 1):
                moves = (
                    self._move(producer, [one], [self._due_ms(chance)], if_due_ms=one.due_ms)
                    for producer in (self._producers[0], self._producers[-1])
                )
                await asyncio.gather(*moves, self._give_body(self._producers[0], one, 0))

    async def _move(
        self, producer: Producer, some: list[Known], dues_ms: list[int], if_due_ms: int = 0
    ) -> None:
        asked = [
            Operation(one.token, Asked.RESCHEDULE, "", mono_ms(), None, due_ms, if_due_ms=if_due_ms)
            for one, due_ms in zip(some, dues_ms, strict=True)
        ]
        try:
            changes = await producer.reschedule_many(
                [one.id for one in some], due_ms=dues_ms, if_due_ms=if_due_ms or None
            )
        except TarryError:  # some may have been rescheduled, whatever it says
            for one, each in zip(some, asked, strict=True):
                self._record(one, each, "")
            return
        for one, each, change in zip(some, asked, changes, strict=True):
            self._changed(one, each, change)

    async def _update(self, chance: random.Random) -> None:
        while await self._paused(chance, 0.12):
            for one in self._drawn(chance, 1):
                if_due_ms = one.due_ms if chance.random() < 0.4 else 0
                await self._give_body(chance.choice(self._producers), one, if_due_ms)

    async def _give_body(self, producer: Producer, one: Known, if_due_ms: int) -> None:
        version = next(self._versions)
        asked = Operation(one.token, Asked.UPDATE, "", mono_ms(), None, if_due_ms=if_due_ms, version=version)
        body = VERSIONED.pack(one.token, version)
        try:
            change = await producer.update(one.id, body=body, if_due_ms=if_due_ms or None)
        except TarryError:
            self._record(one, asked, "")
        else:
            self._changed(one, asked, change)

    def _changed(self, one: Known, asked: Operation, change: Change) -> None:
        self._record(one, asked, change.outcome.value, told_ms=change.due_ms or 0)

    async def _cancel(self, chance: random.Random) -> None:
        while await self._paused(chance, 0.25):
            some = self._drawn(chance, 4, cancellable=True)
            asked = [Operation(one.token, Asked.CANCEL, "", mono_ms(), None) for one in some]
            try:
                outcomes = await chance.choice(self._producers).cancel_many(one.id for one in some)
            except TarryError:
                for one, each in zip(some, asked, strict=True):
                    self._record(one, each, "")
                    self.history.cancelled.append(Cancelled(one.token, now_ms(), certain=False))
                continue
            for one, each, outcome in zip(some, asked, outcomes, strict=True):
                self._record(one, each, outcome.value)
                if outcome in GONE:
                    self.history.cancelled.append(Cancelled(one.token, now_ms()))

    async def _sweep(self, chance: random.Random) -> None:
        """Cancel all of a tag, or those of them that are due within a range, once for each tag."""
        while await self._paused(chance, 0.6):
            if len(self._unswept) < 2:
                continue
            mine = self._unswept.pop(chance.randrange(len(self._unswept) - 1))
            only = Matching(tags=[mine[0].tag])
            if chance.random() < 0.5:
                from_ms = now_ms() + chance.choice((1_000, HOUR_MS))
                only |= Matching(due_from_ms=from_ms, due_to_ms=from_ms + chance.choice((2_000, 9 * HOUR_MS)))
            bounds = {"due_ms": only.get("due_from_ms", 0), "due_to_ms": only.get("due_to_ms", 0)}
            asked = Operation(0, Asked.SWEEP, "", mono_ms(), None, **bounds)
            done = await self._swept(chance, only)
            for one in mine:
                self._record(one, replace(asked, token=one.token), "done")
                self.history.cancelled.append(Cancelled(one.token, now_ms(), certain=False))
            tokens, other = tuple(one.token for one in mine), done.unreadable + done.not_found
            self.history.sweeps.append(Sweep(tokens, done.matched, done.cancelled, done.released, other))

    async def _swept(self, chance: random.Random, only: Matching) -> BulkCancel:
        """Go on with the last cursor until it is done, at any client."""
        cursor = ""
        while True:
            try:
                query = chance.choice(self.clients).query()
                async for told in query.cancel_matching(TOPIC, cursor=cursor, **only):
                    cursor = told.cursor
                    if told.done:
                        return told
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)

    async def _look(self, chance: random.Random) -> None:
        while await self._paused(chance, 0.06):
            for one in self._drawn(chance, 1):
                await self._get(chance.choice(self._producers), one)

    async def _get(self, producer: Producer, one: Known) -> bool:
        """Look a message up; return whether there was an answer."""
        asked = Operation(one.token, Asked.GET, "", mono_ms(), None)
        try:
            found = await producer.get(one.id)
        except NotFound:
            self._record(one, asked, "not_found")
            return True
        except TarryError:
            return False
        gone = found.state.value == "cancelled"
        version = None if gone else VERSIONED.unpack(found.body)[1]
        self._record(one, asked, found.state.value, told_ms=0 if gone else found.due_ms, version=version)
        return True

    async def _list(self, chance: random.Random) -> None:
        """List pending messages that are due within a range."""
        while await self._paused(chance, 0.4):
            from_ms = now_ms() + chance.choice((-1_000, 1_000, HOUR_MS))
            to_ms = from_ms + chance.choice((3_000, 5 * HOUR_MS))
            query, known, at_ms = chance.choice(self.clients).query(), list(self._known), mono_ms()
            only = {
                "due_from_ms": from_ms,
                "due_to_ms": to_ms,
                "states": [ListedState.PENDING],
                "bodies": True,
            }
            try:
                listed = [one async for one in query.list_messages(TOPIC, **only)]  # type: ignore[arg-type]
            except TarryError:
                continue
            rows = {VERSIONED.unpack(one.body or b"")[0]: one for one in listed}
            for one in known:
                asked = Operation(one.token, Asked.LIST, "", at_ms, None, from_ms, to_ms)
                row = rows.get(one.token)
                if row is None:
                    self._record(one, asked, "absent")
                else:
                    version = VERSIONED.unpack(row.body or b"")[1]
                    self._record(one, asked, row.state.value, told_ms=row.due_ms, version=version)

    async def _consume(self) -> None:
        while True:
            try:
                async with self.clients[0].consumer(TOPIC, GROUP, name="steady") as consumer:
                    async for message in consumer:
                        version = VERSIONED.unpack(message.body)[1]
                        one = received(message, GROUP, "steady")
                        self.history.delivered.append(replace(one, version=version))
                        message.ack_soon()
            except (Unavailable, OutcomeUnknown, Overloaded):
                await asyncio.sleep(AGAIN_S)
