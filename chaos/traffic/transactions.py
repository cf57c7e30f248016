"""Transactions of a shop, their checks, and the consumer of what comes of them.

Everything is written down in the run's `Transactions`; `checks/transactions.py` judges it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum, auto
from functools import partial
from pathlib import Path
from typing import Final

from tarry.chaos.history import HalfMessage, OpenRead, Transactions
from tarry.chaos.history import TransactionEnded as Ended
from tarry.chaos.traffic.orders import DELAY_MS, GROUP, TOPIC, Checking, Database
from tarry.chaos.traffic.recurring import insisted
from tarry.chaos.traffic.traffic import patiently
from tarry.client.aio import Client, TransactionInfo
from tarry.client.errors import NotFound, OutcomeUnknown, Overloaded, TransactionEnded, Unavailable
from tarry.client.transactions.transactions import PAGE_MAX
from tarry.proto.dead_letters import UNRESOLVED, dead_letter_topic

GONE: Final = "gone"
"""A producer group of which nobody answers checks."""
LETTERS: Final = dead_letter_topic(TOPIC, UNRESOLVED)
MAIL: Final = "mail"
"""The group of the consumers."""
AGAIN_S: Final = 0.2
READ_S: Final = 0.05
"""Pause between two lists of open ones."""
SETTLES_S: Final = 60.0
ONE_TOO_MANY_S: Final = 1.0
"""In which one too many would come."""


class Fate(StrEnum):
    """Fate of an order."""

    PLACED = auto()
    REFUSED = auto()
    LEFT_PLACED = auto()
    """The program dies once the order is placed, and says nothing more."""
    LEFT = auto()
    """It dies before."""


class Shop:
    """Orders in transactions, until all have ended and what is to come has come."""

    def __init__(self, client: Client, seen: Transactions, database: Path, seed: int) -> None:
        self.seen, self.database = seen, Database(database)
        self.refused: list[str] = []
        """Ends that were refused, for the transaction had ended otherwise: names and states."""
        self._client, self._chance = client, random.Random(f"{seed} shop")
        self.checking = Checking(self.database, random.Random(f"{seed} checks"))

    @asynccontextmanager
    async def answering(self, producers: int = 2) -> AsyncIterator[None]:
        """Answer checks, as several producers, while the block lasts."""
        async with AsyncExitStack() as open_ones:
            for _ in range(producers):
                producer = self._client.producer(group=GROUP, check=self.checking)
                await open_ones.enter_async_context(producer)
            yield

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Consume, and list open ones, while the block lasts; a failure of that ends it."""
        await insisted(lambda: self._client.operator().create_topic(TOPIC))
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._consume(TOPIC, self.seen.messages)),
                tasks.create_task(self._consume(LETTERS, self.seen.letters)),
                tasks.create_task(self._read_open_ones()),
            ]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def order(
        self,
        name: str,
        fate: Fate,
        *,
        group: str = GROUP,
        work_s: float = 0.0,
        delay_ms: int = DELAY_MS,
        check_after_ms: int | None = None,
    ) -> None:
        """Prepare an order's message, do the work, and end it as the database says, if the program lives."""
        self.seen.delays_ms[name] = delay_ms
        if group == GONE:
            self.seen.unanswered.append(name)
        transactions = self._client.transactions()
        await insisted(
            lambda: transactions.prepare(
                group, TOPIC, name.encode(), name=name, delay_ms=delay_ms, check_after_ms=check_after_ms
            )
        )
        self.seen.prepared.append(name)
        await asyncio.sleep(work_s)
        placed = fate in (Fate.PLACED, Fate.LEFT_PLACED) and await asyncio.to_thread(
            self.database.place, name
        )
        if fate is Fate.REFUSED:
            await asyncio.to_thread(self.database.outcome, name)
        if fate in (Fate.PLACED, Fate.REFUSED):
            await self.end(name, placed=placed, group=group)

    async def end(self, name: str, *, placed: bool, group: str = GROUP) -> None:
        """Commit an order that is placed, and roll another back; the answer is written down."""
        transactions = self._client.transactions()
        end = transactions.commit if placed else transactions.rollback
        try:
            self._see(await insisted(lambda: end(group, name)))
            self.seen.answered_s.setdefault(name, time.monotonic())
        except TransactionEnded as error:
            self.refused.append(f"{name} {error.state}")

    def fate(self) -> Fate:
        """Return one by chance."""
        return self._chance.choice(list(Fate))

    async def settle(self) -> bool:
        """Return once all have ended, all ends are told, and all messages have come; False: long none did."""
        transactions = self._client.transactions()

        async def open_ones() -> int | None:
            return (await insisted(partial(transactions.list_page, size=1))).open or None

        settled = await patiently(open_ones, SETTLES_S)
        told = await insisted(self._ended)
        for one in told:
            self._see(one)
            self.seen.delays_ms.setdefault(one.name, DELAY_MS)
        self.seen.database.update(await asyncio.to_thread(self.database.all))
        for one in self._chance.sample(told, min(50, len(told))):  # a second end answers what the first did
            if one.producer_group == GROUP:
                await self.end(one.name, placed=self.seen.database.get(one.name, False))
        messages = {one.id for one in self.seen.ended if one.id}
        letters = {one.transaction for one in self.seen.ended if one.state == "unresolved"}

        async def come() -> int | None:
            left = len(messages - {one.id for one in self.seen.messages})
            left += len(letters - {one.transaction for one in self.seen.letters})
            return left or None

        settled = await patiently(come, SETTLES_S) and settled
        await asyncio.sleep(ONE_TOO_MANY_S)
        return settled

    async def _read_open_ones(self) -> None:
        transactions = self._client.transactions()
        while True:
            begun_s = time.monotonic()
            try:
                page = await transactions.list_page(size=PAGE_MAX)
            except (Unavailable, OutcomeUnknown, Overloaded):
                pass
            else:
                names = frozenset(one.name for one in page.transactions)
                self.seen.open_reads.append(OpenRead(begun_s, names))
            await asyncio.sleep(READ_S)

    async def _ended(self) -> list[TransactionInfo]:
        return [one async for one in self._client.transactions().list(ended=True)]

    def _see(self, told: TransactionInfo) -> None:
        self.seen.ended.append(Ended(told.name, told.state.value, told.id, told.ended_ms))

    async def _consume(self, topic: str, to: list[HalfMessage]) -> None:
        operator = self._client.operator()
        while True:
            try:
                await insisted(lambda: operator.create_group(topic, MAIL, "earliest"))
                async with self._client.consumer(topic, MAIL, name=MAIL) as consumer:
                    async for message in consumer:
                        one = HalfMessage(
                            message.body.decode(), message.id, message.due_ms, message.received_ms
                        )
                        to.append(one)
                        message.ack_soon()
            except (Unavailable, OutcomeUnknown, Overloaded, NotFound):  # no letter yet: there is no topic
                await asyncio.sleep(AGAIN_S)
