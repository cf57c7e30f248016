"""Redrive of the messages that a reconciliation found missing: ``tarry reconcile --redrive``."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tarry.client.aio import Client, Producer
from tarry.client.errors import Damaged, NotFound, Refused
from tarry.client.results import CancelOutcome, MessageState, StoredMessage
from tarry.proto.dead_letters import DEAD_LETTERS, RESERVED
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason

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
    REFUSED = "refused"
    """The cluster refuses its copy, or its body is damaged: ``why`` says so."""
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
    why: str = ""


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

    What is done stands in ``redriven.jsonl`` beside the tables and is not done again. A copy has an
    idempotency key of its message's id, so that one whose answer was lost is not scheduled twice by the next
    run. A message that is past due and still pending is cancelled before its copy is scheduled; what the copy
    needs is written down before that, and serves also where nothing of the message can be read any more.
    Raises what Producer.get, cancel and schedule raise, but for what is refused, once all that went on beside
    it is written down.
    """
    log = Log(out / "redriven.jsonl")
    producer = client.producer()
    every = missing(out)
    while some := list(islice(every, AT_ONCE)):
        fates = await asyncio.gather(
            *(_one(producer, one, log, dry_run=dry_run) for one in some), return_exceptions=True
        )
        told = [one for one in fates if isinstance(one, Redriven)]
        if not dry_run:
            log.note_done(one for one in told if one.fate is Fate.REDRIVEN)
        for one in told:
            yield one
        for failed in fates:
            if isinstance(failed, BaseException):
                raise failed


class Log:
    """Record of what earlier runs have done, and this one: a line of JSON for each message."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: set[str] = set()
        self.begun: dict[str, Copy] = {}
        """Copies of messages that were to be cancelled first, and may have been."""
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # a crash has cut it off
                continue
            if "copy" in row:
                self.done.add(row["id"])
            else:
                self.begun[row["id"]] = Copy.of_line(row)

    def note_begun(self, one: Missing, copy: Copy) -> None:
        """Write down, and to the disk, what a copy needs whose message is about to be cancelled."""
        self._append([{"id": one.id, **copy.line()}])

    def note_done(self, done: Iterable[Redriven]) -> None:
        """Write down what is done."""
        self._append([{"id": one.missing.id, "copy": one.copy} for one in done])

    def _append(self, rows: list[dict[str, Any]]) -> None:
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash has cut the last line off
                    file.write(b"\n")
            file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Copy:
    """Fields that a copy is scheduled with."""

    topic: str
    body: bytes
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    properties: dict[str, str]
    ordering_key: str

    @staticmethod
    def of(stored: StoredMessage) -> Copy:
        """Return the copy of a message, without its idempotency key, which that has used."""
        own = {name: value for name, value in stored.properties.items() if not name.startswith(RESERVED)}
        return Copy(
            stored.topic, stored.body, tuple(stored.tags), tuple(stored.keys), own, stored.ordering_key
        )

    @staticmethod
    def of_line(row: dict[str, Any]) -> Copy:
        """Return the copy that a line tells of."""
        body, tags, keys = base64.b64decode(row["body"]), tuple(row["tags"]), tuple(row["keys"])
        return Copy(row["topic"], body, tags, keys, row["properties"], row["ordering_key"])

    def line(self) -> dict[str, Any]:
        """Return the fields of its line."""
        return {**asdict(self), "body": base64.b64encode(self.body).decode()}


async def _one(producer: Producer, one: Missing, log: Log, *, dry_run: bool) -> Redriven:
    if one.id in log.done:
        return Redriven(one, Fate.DONE_BEFORE)
    try:
        return await _placed(producer, one, log, dry_run=dry_run)
    except (Refused, Damaged) as error:
        return Redriven(one, Fate.REFUSED, why=str(error))


async def _placed(producer: Producer, one: Missing, log: Log, *, dry_run: bool) -> Redriven:
    begun = log.begun.get(one.id)
    try:
        stored = await producer.get(one.id)
    except (NotFound, Damaged) as error:
        if begun is not None:  # an earlier run may have cancelled it
            return await _copied(producer, one, begun, dry_run=dry_run)
        if isinstance(error, Damaged):
            raise
        return Redriven(one, Fate.NOT_STORED)
    pending = stored.state is MessageState.PENDING
    gone = stored.state is MessageState.CANCELLED
    if (gone and begun is None) or (pending and stored.due_ms > time.time_ns() // 1_000_000):
        return Redriven(one, Fate.NOT_MISSING)
    if stored.topic.startswith(DEAD_LETTERS):
        return Redriven(one, Fate.DEAD_LETTER)
    copy = begun if gone and begun is not None else Copy.of(stored)
    if pending and not dry_run:
        log.note_begun(one, copy)
        if await producer.cancel(one.id) not in GONE:
            return Redriven(one, Fate.NOT_MISSING)
    return await _copied(producer, one, copy, dry_run=dry_run)


async def _copied(producer: Producer, one: Missing, copy: Copy, *, dry_run: bool) -> Redriven:
    if dry_run:
        return Redriven(one, Fate.REDRIVEN)
    schedule = partial(
        producer.schedule,
        copy.topic,
        copy.body,
        delay_ms=0,
        tags=copy.tags,
        keys=copy.keys,
        properties={**copy.properties, REDRIVEN_FROM: one.id},
        ordering_key=copy.ordering_key,
    )
    try:
        made = await schedule(idempotency_key=f"{REDRIVEN_FROM}:{one.id}")
    except Refused as refused:
        if refused.reason != Reason.LEVEL_TOO_LOW:
            raise
        made = await schedule()  # a cluster whose upgrade is not finished has no keys
    return Redriven(one, Fate.REDRIVEN, made.id)
