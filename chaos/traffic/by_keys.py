"""A producer in a process of its own, which may be killed: it schedules the same keys whenever it is started.

    python -m tarry.chaos.traffic.by_keys ADDRESSES TOPIC FIRST COUNT DUE_MS

Bodies are the tokens FIRST, FIRST + 1, and so on, and so are the idempotency keys. It remembers nothing of an
earlier start. Prints a line for each answer: token, id, due time, 1 where it was repeated; ends once it has
all of them.
"""

from __future__ import annotations

import asyncio
import sys

from tarry.chaos.traffic.traffic import TOKEN
from tarry.client.aio import Producer, connect
from tarry.client.errors import OutcomeUnknown, Overloaded, Unavailable

AT_ONCE = 8
BATCH = 5
EVERY_BATCH = 3
"""Of so many requests one is a batch."""


async def main(addresses: str, topic: str, first: int, count: int, due_ms: int) -> None:
    """Schedule all of it, some requests at a time."""
    left = iter(range(first, first + count, BATCH))
    async with connect(addresses, deadline_ms=2_000) as client, client.producer() as producer:

        async def work() -> None:
            for token in left:
                await _schedule(producer, topic, range(token, min(token + BATCH, first + count)), due_ms)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _schedule(producer: Producer, topic: str, tokens: range, due_ms: int) -> None:
    bodies, keys = [TOKEN.pack(token) for token in tokens], [f"key {token}" for token in tokens]
    while True:
        try:
            if tokens[0] // BATCH % EVERY_BATCH:
                calls = (
                    producer.schedule(topic, body, due_ms=due_ms, idempotency_key=key)
                    for body, key in zip(bodies, keys, strict=True)
                )
                answers = [(one.id, one.due_ms, one.repeated) for one in await asyncio.gather(*calls)]
            else:
                batch = await producer.schedule_batch(topic, bodies, due_ms=due_ms, idempotency_keys=keys)
                repeats = set(batch.repeats.tolist())
                answers = [
                    (one, int(due), at in repeats)
                    for at, (one, due) in enumerate(zip(batch.ids, batch.due_ms, strict=True))
                ]
        except (OutcomeUnknown, Overloaded, Unavailable):
            continue  # its keys find what was scheduled
        for token, (message_id, due, repeated) in zip(tokens, answers, strict=True):
            print(token, message_id, due, int(repeated), flush=True)
        return


if __name__ == "__main__":
    servers, named, *numbers = sys.argv[1:]
    asyncio.run(main(servers, named, *map(int, numbers)))
