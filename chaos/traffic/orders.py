"""A program that places orders in transactions, in a process that may be killed; and its database.

    python -m tarry.chaos.traffic.orders ADDRESSES DATABASE PREFIX

Order by order it prepares a message, writes the order into a database of SQLite, and commits; of some it
changes its mind. It answers checks of its producer group by what the database says, whoever placed the order.
It runs until it is killed, and prints a line for each order whose message is prepared: its name.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tarry.client.aio import Half, Producer, TransactionEnd, connect
from tarry.client.errors import OutcomeUnknown, Overloaded, TransactionEnded, Unavailable

TOPIC: Final = "half"
GROUP: Final = "shop"
DELAY_MS: Final = 400
CHANGES_ITS_MIND: Final = 0.3
UNKNOWN: Final = 0.1
"""Of the answers to checks: the database cannot be asked at this moment."""
WORK_S: Final = 0.15
"""That an order takes at most."""
AT_ONCE: Final = 3
AGAIN_S: Final = 0.1


class Database:
    """Database of the orders: by name, placed, or never to be placed any more."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def place(self, name: str) -> bool:
        """Place an order; False: a check has found none, and said so."""
        with self._opened() as orders:
            done = orders.execute("INSERT OR IGNORE INTO orders VALUES (?, 1)", (name,)).rowcount
        return done == 1

    def outcome(self, name: str) -> bool:
        """Return whether an order is placed; one that is not cannot be from now on."""
        with self._opened() as orders:
            orders.execute("INSERT OR IGNORE INTO orders VALUES (?, 0)", (name,))
            (placed,) = orders.execute("SELECT placed FROM orders WHERE name = ?", (name,)).fetchone()
        return bool(placed)

    def all(self) -> dict[str, bool]:
        """Return all that is decided."""
        with self._opened() as orders:
            return {name: bool(placed) for name, placed in orders.execute("SELECT name, placed FROM orders")}

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as opened, opened:
            opened.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT PRIMARY KEY, placed INTEGER)")
            yield opened


class Checking:
    """The check handler of the producer group."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self.asked = 0
        self._database, self._chance = database, chance

    async def __call__(self, half: Half) -> TransactionEnd:
        """Answer by the database, now and then that it is not to be asked."""
        self.asked += 1
        if self._chance.random() < UNKNOWN:
            return TransactionEnd.UNKNOWN
        placed = await asyncio.to_thread(self._database.outcome, half.name)
        return TransactionEnd.COMMIT if placed else TransactionEnd.ROLLBACK


async def main(addresses: str, path: str, prefix: str) -> None:
    """Place orders until killed."""
    database, chance = Database(Path(path)), random.Random(prefix)
    check = Checking(database, random.Random(f"{prefix} checks"))
    async with (
        connect(addresses, deadline_ms=2_000) as client,
        client.producer(group=GROUP, check=check) as producer,
    ):

        async def work(worker: int) -> None:
            number = 0
            while True:
                number += 1
                await _order(producer, database, f"{prefix}-{worker}-{number}", chance)

        await asyncio.gather(*map(work, range(AT_ONCE)))


class _Mind(Exception):
    """The customer has changed it."""


async def _order(producer: Producer, database: Database, name: str, chance: random.Random) -> None:
    try:
        async with producer.transaction(TOPIC, name.encode(), name=name, delay_ms=DELAY_MS):
            print(name, flush=True)
            await asyncio.sleep(chance.uniform(0, WORK_S))
            if chance.random() < CHANGES_ITS_MIND or not await asyncio.to_thread(database.place, name):
                await asyncio.to_thread(database.outcome, name)
                raise _Mind
    except _Mind:
        return
    except (TransactionEnded, Unavailable, OutcomeUnknown, Overloaded):  # what is open a check finds out
        await asyncio.sleep(AGAIN_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
