"""Redrive of the messages that a reconciliation found missing: ``tarry reconcile --redrive``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

from tarry.client.aio import Client, Producer
from tarry.client.errors import NotFound
from tarry.client.results import CancelOutcome, MessageState
from tarry.proto.dead_letters import DEAD_LETTERS, RESERVED
from tarry.proto.message_id import MessageId

AT_ONCE: Final = 64
REDRIVEN_FROM: Final = "redriven_from"
"""The property of a copy that names the message it is of."""
GONE: Final = (CancelOutcome.CANCELLED, CancelOutcome.ALREADY_CANCELLED)
"""The second also where the first answer to the cancel was lost."""


class Fate(StrEnum):
    """Outcome for a missing message."""

    REDRIVEN = "redriven"
    """A copy is scheduled, for all groups of its topic; with a dry run: it would be."""
    DONE_BEFORE = "done_before"
    NOT_STORED = "not_stored"
    """No node has its body any more, or ever had it: only its producer can send it again."""
    NOT_MISSING = "not_missing"
    """It was cancelled, or is still on its way."""
    DEAD_LETTER = "dead_letter"
    """Only the cluster places these: ``tarry redrive`` its topic, or seek the group that lacks it."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An acknowledged message that was not delivered."""

    id: str
    topic: str
    groups: tuple[str, ...]
    """The groups that did not get it; none: nobody could, it was not released."""
    check: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """A missing message, its fate, and the id of its copy."""

    missing: Missing
    fate: Fate
    copy: str = ""


def missing(out: Path) -> Iterator[Missing]:
    """Yield the missing messages that a reconciliation wrote to a folder, one in memory at a time.

    Raises FileNotFoundError without a finished reconciliation.
    """
    parts = sorted((out / "missing").glob("part-*.json"))
    if not (out / "missing" / "_SUCCESS").exists():
        raise FileNotFoundError(f"no finished reconciliation in {out}: name LEDGER... to make one")
    for part in parts:
        with part.open() as lines:
            for line in lines:
                row = json.loads(line)
                name = str(MessageId(row["shard"], row["hour"], row["global_index"]))
                yield Missing(name, row["topic"], tuple(row["groups"]), row["check"])


async def redrive(client: Client, out: Path, *, dry_run: bool) -> AsyncIterator[Redriven]:
    """Schedule each missing message once more, due now; yield the outcome of each.

    What is done stands in ``redriven.jsonl`` beside the tables and is not done again; after a crash in
    between, up to AT_ONCE messages can be. A message that is past due and still pending is cancelled
    before its copy is scheduled. Raises what Producer.get, cancel and schedule raise.
    """
    log = out / "redriven.jsonl"
    done = {json.loads(line)["id"] for line in log.read_text().splitlines()} if log.exists() else set()
    producer = client.producer()
    every = missing(out)
    while some := list(islice(every, AT_ONCE)):
        fates = await asyncio.gather(*(_one(producer, one, done, dry_run=dry_run) for one in some))
        if not dry_run:
            _write(log, (one for one in fates if one.fate is Fate.REDRIVEN))
        for one in fates:
            yield one


async def _one(producer: Producer, one: Missing, done: set[str], *, dry_run: bool) -> Redriven:
    if one.id in done:
        return Redriven(one, Fate.DONE_BEFORE)
    try:
        stored = await producer.get(one.id)
    except NotFound:
        return Redriven(one, Fate.NOT_STORED)
    pending = stored.state is MessageState.PENDING
    if stored.state is MessageState.CANCELLED or (pending and stored.due_ms > time.time_ns() // 1_000_000):
        return Redriven(one, Fate.NOT_MISSING)
    if stored.topic.startswith(DEAD_LETTERS):
        return Redriven(one, Fate.DEAD_LETTER)
    if dry_run:
        return Redriven(one, Fate.REDRIVEN)
    if pending and await producer.cancel(one.id) not in GONE:
        return Redriven(one, Fate.NOT_MISSING)
    own = {name: value for name, value in stored.properties.items() if not name.startswith(RESERVED)}
    copy = await producer.schedule(
        stored.topic,
        stored.body,
        delay_ms=0,
        tags=stored.tags,
        keys=stored.keys,
        properties={**own, REDRIVEN_FROM: one.id},
        ordering_key=stored.ordering_key,  # but no idempotency key: the missing message has used it
    )
    return Redriven(one, Fate.REDRIVEN, copy.id)


def _write(log: Path, done: Iterable[Redriven]) -> None:
    with log.open("a") as file:
        for one in done:
            file.write(json.dumps({"id": one.missing.id, "copy": one.copy}) + "\n")
