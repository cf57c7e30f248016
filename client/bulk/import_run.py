"""An import: batches of a source are scheduled, several at once, and done steps are noted.

    batch 0  ─┐ sequences 2, 3         each request has its own, at each start the same
    batch 1  ─┤ sequences 4, 5
    …         │
    batch 7  ─┘ ─► all answered ─► ids of step 0 on disk        killed anywhere before: step 0 is sent again,
    batch 8  ─┐                                                 and what was taken is answered, not repeated
    …         ┘ ─► step 1

Sequence 1 is a probe: a message for years ahead, cancelled at once. Sent again at a later start, it is
answered with the id that it had, or as too old, as long as the cluster knows the producer, which it does for
at least ``producer_silent_ms``, and mostly for years. A cluster that has forgotten it would take a repeated
batch anew; then steps that were begun and not done are told of, and the caller says what becomes of them.
Another cluster does not know it either, and has nothing of the steps that are done.

Messages with idempotency keys are known by these alone, and a key counts for some time behind its release.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tarry.client.bulk.batches import Batch, Request, batches, requests
from tarry.client.bulk.files import FileSource
from tarry.client.bulk.mapping import UNSURE, Fault, marked
from tarry.client.bulk.progress import STEP_BATCHES, Progress, Step, counted, fault_rows, id_rows
from tarry.client.bulk.record_bytes import records_of
from tarry.client.bulk.schema import COLUMNS
from tarry.client.bulk.values import Imported, Unsure
from tarry.client.errors import OutcomeUnknown, Refused
from tarry.client.records import body_records
from tarry.proto.message_id import LENGTH, MessageId, format_id_octets
from tarry.proto.reasons import Reason
from tarry.proto.tarry_log_pb2 import ScheduleColumns, ScheduledColumns

IN_FLIGHT_MAX: Final = 8
"""Batches without an answer; less than a step, so no more than two steps are begun at once."""
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 1 << 20
PROBE_SEQUENCE: Final = 1
PROBE_AHEAD_MS: Final = (50 * 31_536_000_000, 30 * 86_400_000, 3_600_000)
"""How far ahead the probe is due at most; the first that the cluster's horizon allows. Half of it is drawn by
lot, so that hardly ever another cluster gives its first message of that hour the same id."""

KEYS_COUNT_MS: Final = 3_600_000
"""For so long behind a message's release its idempotency key counts by default (idempotency_window_ms)."""

Send = Callable[[bytes], Awaitable[ScheduledColumns]]
"""Sends a ScheduleBatchRequest, and repeats it until it is answered. Raises TarryError."""
Cancel = Callable[[str], Awaitable[object]]
"""Cancels a message by its id."""

Flags: TypeAlias = NDArray[np.bool_]
_Metric = Callable[[pa.RecordBatch], pa.Array]
_MEASURED: Final[Mapping[str, tuple[_Metric, ...]]] = {
    Reason.RECORD_TOO_LARGE: (
        lambda rows: pc.binary_length(rows.column("body")),
        lambda rows: pc.binary_length(records_of(rows)),
    ),
    Reason.TOO_MANY_TAGS: (lambda rows: pc.list_value_length(rows.column("tags")),),
    Reason.TOO_MANY_KEYS: (lambda rows: pc.list_value_length(rows.column("keys")),),
    Reason.TOO_MANY_PROPERTIES: (
        lambda rows: pa.array(np.diff(rows.column("properties").offsets.to_numpy())),
    ),
    Reason.ORDERING_KEY_TOO_LONG: (lambda rows: pc.utf8_length(rows.column("ordering_key")),),
    Reason.IDEMPOTENCY_KEY_TOO_LONG: (lambda rows: pc.utf8_length(rows.column("idempotency_key")),),
    Reason.TOPIC_INVALID: (lambda rows: pc.utf8_length(rows.column("topic")),),
}
"""Of refusals that name no message of a batch: what their texts tell the greatest value of, as a number."""


class CountDiffers(Exception):
    """The source's rows are not those that were taken, refused or skipped."""


class UnsureSteps(Exception):
    """The cluster has forgotten the import's producer, so that steps begun and not done may be scheduled."""

    def __init__(self, steps: int, begin: int) -> None:
        rows = steps * STEP_BATCHES
        super().__init__(
            f"the cluster does not know this import: it has forgotten it, or is another one, for which to "
            f"give another folder with --progress. {steps} steps were begun and not done: the rows of "
            f"at most {rows} batches from row {begin} on may be scheduled. Look for them; then "
            f"give --unsure skip to leave them out, or --unsure send to send them with the property {UNSURE}"
        )


class UnsureKeys(UnsureSteps):
    """Messages of steps begun and not done may be delivered, and their idempotency keys count no more."""

    def __init__(self, rows: int, begin: int) -> None:
        Exception.__init__(
            self,
            f"{rows} rows with idempotency keys, from row {begin} on, may have been scheduled before this "
            f"import was ended, and delivered so long ago that their keys count no more. Look for them; then "
            f"give --unsure skip to leave them out, or --unsure send to send them with the property {UNSURE}",
        )


class ClusterDiffers(Exception):
    """The cluster does not know an import of which a part or all is done: mostly it is another one."""

    def __init__(self, folder: Path, rows: int) -> None:
        super().__init__(
            f"{folder} is of an import of which {rows} rows are done, and this cluster does not know it. For "
            f"another cluster give another folder with --progress; if it is the same one, and has forgotten "
            f"the import or was restored from before it, look for these rows, then give --unsure send or "
            f"--unsure skip to go on behind them"
        )


class _Answer(NamedTuple):
    batch: Batch
    ids: list[pa.RecordBatch]
    taken: int
    refused: int


class Import:
    """One import into a cluster, from a source that is read in the same order at each start."""

    def __init__(
        self,
        source: FileSource,
        progress: Progress,
        send: Send,
        cancel: Cancel,
        *,
        what: Mapping[str, Any],
        unsure: Unsure = "stop",
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        begun_ms: int = 0,
    ) -> None:
        """Take ``what``, which has to be the same at each start; sizes and time are those of the first."""
        self._source, self._progress, self._send, self._cancel = source, progress, send, cancel
        self._what, self._unsure = what, unsure
        self._changing = asyncio.Lock()
        self._first = {"batch_rows": batch_rows, "batch_bytes": batch_bytes, "begun_ms": begun_ms}

    async def steps(self) -> AsyncGenerator[Imported]:
        """Import, and yield how far it is after each step.

        Raises TarryError where the cluster does not take it, InvalidSource, ProgressDiffers, ClusterDiffers,
        UnsureSteps, OSError; a later import with the same folder goes on.
        """
        total = await asyncio.to_thread(self._begin)
        if self._told["probe_topic"] is not None:
            await self._probe()
        if self._progress.result is None and self._told["probe_topic"] is not None:
            yield self._state(total)
            async with aclosing(self._run()) as run:
                async for _ in run:
                    yield self._state(total)
        result = await asyncio.to_thread(self._finish, total)
        yield result

    def _begin(self) -> int | None:
        """Note what is imported, or compare it with what an earlier start noted; return the source's rows."""
        if self._progress.told is None:
            topics = (chunk.messages.column("topic") for chunk in self._source.chunks())
            first = next((column[0].as_py() for column in topics if len(column)), None)
            self._progress.begin({**self._what, **self._first, **_producer(), "probe_topic": first})
        else:
            self._progress.check(self._what)
        return self._source.rows

    @property
    def _told(self) -> dict[str, Any]:
        assert self._progress.told is not None
        return self._progress.told

    def _state(self, total: int | None) -> Imported:
        done = self._progress.done
        taken, refused, skipped = (
            sum(getattr(step, name) for step in done) for name in ("taken", "refused", "skipped")
        )
        rows = done[-1].end if done else 0
        return Imported(rows, total, taken, refused, skipped, str(self._progress.folder))

    def _finish(self, total: int | None) -> Imported:
        """Count what is noted against the source. Raises CountDiffers."""
        state, found = self._state(total), counted(self._progress.folder / "ids")
        if self._told["probe_topic"] is None:  # no row is a message: none was looked at in a batch
            chunks = [(chunk.size, len(chunk.faults), chunk.skipped) for chunk in self._source.chunks()]
            rows, refused, skipped = (
                (sum(column) for column in zip(*chunks, strict=True)) if chunks else (0, 0, 0)
            )
            state = replace(state, rows=rows, refused=refused, skipped=skipped)
        elif (found.taken, found.refused) != (state.taken, state.refused):
            raise CountDiffers(f"{self._progress.folder}/ids has {found}, where {state} was noted")
        if found.distinct != found.taken - found.repeated:
            raise CountDiffers(f"{found.taken - found.repeated} messages were made with {found.distinct} ids")
        if state.rows != state.taken + state.refused + state.skipped or total not in (None, state.rows):
            raise CountDiffers(f"the source has {total} rows, of which {state} was noted")
        counts = {name: getattr(state, name) for name in ("rows", "taken", "refused", "skipped")}
        self._progress.finish({**counts, "repeated": found.repeated})
        return replace(state, done=True)

    async def _probe(self) -> None:
        """See that the cluster knows the producer, or was sent nothing that it may have forgotten."""
        found, unsure = await self._probed(), self._progress.unsure
        known = found in ("", self._told["probe"]) and not self._told["lost"]
        if known or found == self._told["probe"]:  # lost was noted at another cluster
            return
        if unsure and self._unsure == "stop":
            await self._change(lost=True)  # from now on the probe is known again
            raise self._unsure_steps()
        if (done := self._progress.done) and self._unsure == "stop":
            raise ClusterDiffers(self._progress.folder, done[-1].end)
        if unsure:
            choice = {"unsure_until": unsure[-1] + 1, "unsure": self._unsure}
            await self._change(**{**_producer(), **choice})
            found = await self._probed()
        await self._change(probe=found)  # before anything else is sent

    async def _change(self, **changed: Any) -> None:
        async with self._changing:
            await asyncio.to_thread(self._progress.begin, {**self._told, **changed})

    def _unsure_steps(self) -> UnsureSteps:
        done = self._progress.done
        return UnsureSteps(len(self._progress.unsure), done[-1].end if done else 0)

    async def _probed(self) -> str:
        """Send the probe; return its id, or nothing where it is too old to be told."""
        for ahead_ms in PROBE_AHEAD_MS:
            request = ScheduleColumns(
                producer=self._told["producer"],
                sequence=PROBE_SEQUENCE,
                topics=[self._told["probe_topic"]],
                due_ms=np.array([_now_ms() + ahead_ms - random.randrange(ahead_ms // 2)], "<i8").tobytes(),
                records=body_records([b"a probe of an import, cancelled at once"]),
            )
            try:
                answer = await self._send(request.SerializeToString())
            except OutcomeUnknown as error:
                if error.reason == Reason.SEQUENCE_TOO_OLD:
                    return ""
                raise
            except Refused as error:
                if error.reason != Reason.DUE_TOO_FAR or ahead_ms == PROBE_AHEAD_MS[-1]:
                    raise
                continue
            hour, index = (
                int(np.frombuffer(column, "<u4")[0]) for column in (answer.hour, answer.global_index)
            )
            probe = str(MessageId(answer.shard, hour, index))
            await self._cancel(probe)
            return probe
        raise AssertionError("the last refusal is raised")

    async def _run(self) -> AsyncGenerator[None]:
        under_way: deque[asyncio.Task[_Answer]] = deque()
        answered: list[_Answer] = []
        made = self._batches()
        try:
            while (batch := await asyncio.to_thread(next, made, None)) is not None:
                await asyncio.to_thread(self._progress.begin_step, batch.number // STEP_BATCHES)
                under_way.append(asyncio.create_task(self._sent(batch)))
                while len(under_way) >= IN_FLIGHT_MAX or (under_way and under_way[0].done()):
                    answered.append(await under_way[0])
                    under_way.popleft()
                    if len(answered) == STEP_BATCHES:
                        await self._note(answered)
                        answered = []
                        yield
            while under_way or answered:
                if under_way:
                    answered.append(await under_way[0])
                    under_way.popleft()
                if len(answered) == STEP_BATCHES or not under_way:
                    await self._note(answered)
                    answered = []
                    yield
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _batches(self) -> Iterator[Batch]:
        done = self._progress.done
        begin = done[-1].end if done else 0
        chunks = self._source.chunks(begin)
        sizes = self._told["batch_rows"], self._told["batch_bytes"]
        return batches(chunks, *sizes, begin, len(done) * STEP_BATCHES)

    async def _sent(self, batch: Batch) -> _Answer:
        """Schedule a batch, without the rows that are refused."""
        unsure, choice = self._unsure_rows(batch)
        if unsure.any():
            batch = _decided(batch, unsure, choice)
        taken = await self._taken(batch)
        refused = self._progress.refused
        faults = [*batch.faults, *(refused[row] for row in batch.rows.tolist() if row in refused)]
        ids = [*taken.values(), fault_rows(faults)] if faults else list(taken.values())
        return _Answer(batch, ids, sum(map(len, taken.values())), len(faults))

    def _unsure_rows(self, batch: Batch) -> tuple[Flags, Unsure]:
        """Flag the messages that may be scheduled without the cluster knowing; say what becomes of them."""
        step = batch.number // STEP_BATCHES
        if step < self._told["unsure_until"]:
            return np.ones(len(batch.rows), np.bool_), self._told["unsure"]
        before_ms = _now_ms() - KEYS_COUNT_MS
        if self._progress.begun_ms.get(step, before_ms) >= before_ms:  # in this start, or not long ago
            return np.zeros(len(batch.rows), np.bool_), "send"
        keyed = pc.binary_length(batch.messages.column("idempotency_key")).to_numpy() > 0
        return keyed & (batch.messages.column("due_ms").to_numpy() < before_ms), self._unsure

    async def _taken(self, batch: Batch) -> dict[int, pa.RecordBatch]:
        """Send the requests of a batch, anew without the rows of each refusal; return ids by sequence."""
        taken: dict[int, pa.RecordBatch] = {}
        while True:
            refused = self._progress.refused.keys()
            for request in await asyncio.to_thread(requests, batch, self._told["producer"], refused):
                if request.sequence in taken:
                    continue
                if (ids := await self._request(batch, request)) is None:
                    break
                taken[request.sequence] = ids
            else:
                return taken

    async def _request(self, batch: Batch, request: Request) -> pa.RecordBatch | None:
        """Send a request; return its ids, None where rows of it were refused, which is noted."""
        try:
            return _ids(batch, request, await self._send(request.octets))
        except Refused as error:
            faults = _faults(batch, request, error)
            if not faults:
                raise
            await asyncio.to_thread(self._progress.refuse, faults)
            return None
        except OutcomeUnknown as error:
            if error.reason != Reason.SEQUENCE_TOO_OLD:
                raise
            await self._change(lost=True)
            raise self._unsure_steps() from error

    async def _note(self, answered: list[_Answer]) -> None:
        last = answered[-1].batch
        step = Step(
            last.number // STEP_BATCHES,
            last.end,
            sum(answer.taken for answer in answered),
            sum(answer.refused for answer in answered),
            sum(answer.batch.skipped for answer in answered),
        )
        ids = [part for answer in answered for part in answer.ids]
        await asyncio.to_thread(self._progress.end_step, step, ids)


def _producer() -> dict[str, Any]:
    """Return what is noted of a new producer."""
    return {
        "producer": f"import-{uuid.uuid4().hex}",
        "probe": None,
        "lost": False,
        "unsure_until": 0,
        "unsure": "stop",
    }


def _decided(batch: Batch, unsure: Flags, choice: Unsure) -> Batch:
    """Return a batch with its unsure messages marked, or without them. Raises UnsureKeys."""
    rows = batch.rows[unsure]
    if choice == "stop":
        raise UnsureKeys(len(rows), int(rows[0]))
    others, these = (batch.messages.filter(pa.array(flags)).cast(COLUMNS) for flags in (~unsure, unsure))
    if choice == "skip":
        text = "it may have been scheduled before the cluster forgot this import, or its idempotency key"
        faults = [Fault(row, "UNSURE", text) for row in rows.tolist()]
        return batch._replace(rows=batch.rows[~unsure], messages=others, faults=[*batch.faults, *faults])
    parts = [others, marked(these, [(UNSURE, "true")]).cast(COLUMNS)]
    order = np.argsort(np.concatenate((np.flatnonzero(~unsure), np.flatnonzero(unsure))))
    messages = pa.Table.from_batches(parts, COLUMNS).combine_chunks().to_batches()[0]
    return batch._replace(messages=messages.take(pa.array(order)))


def _faults(batch: Batch, request: Request, error: Refused) -> list[Fault]:
    """Return the rows that a refusal is about, and those that the same bound refuses; none: about no row."""
    rows = batch.rows[request.places]
    messages = batch.messages.take(pa.array(request.places))
    position = error.facts.get("position", "")
    if position.isdecimal() and int(position) < len(rows):
        at = int(position)
        wrong = _alike(messages, at, error.reason)
    else:
        wrong = _beyond(messages, error)
        if not wrong.any():
            return []
        at = int(wrong.argmax())
    first = int(rows[at])
    others = rows[wrong & (rows != first)].tolist()
    told = [Fault(row, error.reason, f"as row {first}: {error.text}") for row in others]
    return [Fault(first, error.reason, error.text), *told]


def _alike(messages: pa.RecordBatch, at: int, reason: str) -> Flags:
    """Flag the message at a position, and others that are refused as it is: each would cost a request."""
    wrong: Flags = np.arange(len(messages)) == at
    if reason == Reason.DUE_TOO_FAR:
        due_ms = messages.column("due_ms").to_numpy()
        wrong |= due_ms >= due_ms[at]
    elif reason == Reason.RECORD_TOO_LARGE:  # for its topic
        sizes = pc.binary_length(messages.column("body")).to_numpy()
        topic = pc.equal(messages.column("topic"), messages.column("topic")[at])
        wrong |= topic.to_numpy(zero_copy_only=False) & (sizes >= sizes[at])
    return wrong


def _beyond(messages: pa.RecordBatch, error: Refused) -> Flags:
    """Flag the messages beyond the bound of a refusal that tells the greatest value, and mostly the bound."""
    numbers = list(map(int, re.findall(r"\d{1,18}", error.text)))[:2]
    for metric in _MEASURED.get(error.reason, ()) if numbers else ():
        values = metric(messages).to_numpy(zero_copy_only=False)
        if numbers[0] in values:
            return values > min(numbers[-1], numbers[0] - 1)  # type: ignore[no-any-return]
    return np.zeros(len(messages), np.bool_)


def _ids(batch: Batch, request: Request, answer: ScheduledColumns) -> pa.RecordBatch:
    """Return the rows of the id map of a request. Raises OutcomeUnknown where the answer is another's."""
    if len(answer.hour) != 4 * len(request.places):
        text = f"sequence {request.sequence} was answered for {len(answer.hour) // 4} messages"
        raise OutcomeUnknown(Reason.OUTCOME_UNKNOWN, f"{text}, and has {len(request.places)}")
    hour, index = (np.frombuffer(column, "<u4") for column in (answer.hour, answer.global_index))
    octets = format_id_octets(answer.shard, hour, index)
    ends = np.arange(0, LENGTH * (len(octets) + 1), LENGTH, dtype=np.int32)
    new = pa.StringArray.from_buffers(len(octets), pa.py_buffer(ends), pa.py_buffer(octets))
    overdue, repeated = (np.zeros(len(hour), np.bool_) for _ in range(2))
    overdue[np.frombuffer(answer.overdue, "<u4")] = True
    repeated[np.frombuffer(answer.repeats, "<u4")] = True
    old = batch.messages.column("id").take(pa.array(request.places))
    due_ms = np.frombuffer(answer.due_ms, "<i8")
    return id_rows(batch.rows[request.places], old, new, due_ms, overdue, repeated)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
