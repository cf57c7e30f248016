"""Generated ledgers: from a seed, of any size, with faults in known places.

Each chunk of messages lives through the crash of a leader: the first half is delivered by one node, the
rest, half a second later, by the next node in the next term. Half of all rows are of one topic. Every fault
is planted on messages of its own, and `truth.json` beside the dates names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tarry.proto.ledger.arrow import PLAIN, SCHEMA, same, to_stream
from tarry.proto.ledger.parquet import close
from tarry.proto.ledger.schema import ALWAYS, COLUMNS, GroupMove, Kind
from tarry.proto.ledger.segment import OpenSegment
from tarry.spark.generate_rows import DETAILS, FAULTS, KINDS, OUTAGE_MS, SLOT_MS, Life

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]
HOUR_MS: Final = 3_600_000
START_MS: Final = 489_888 * HOUR_MS  # 2025-11-20T00:00Z
ROWS_EACH: Final = 12
"""Rows of an ordinary message: scheduled, released, acked on each of three nodes; delivered; two receipts."""
QUIET_MS: Final = 10_000  # between chunks


@dataclass(frozen=True, slots=True)
class Plan:
    """Size and faults of a ledger; equal plans make equal ledgers. `planted`: messages a fault in a chunk."""

    messages: int
    chunk: int = 40_000
    nodes: int = 3
    topics: int = 8
    planted: int = 2
    faults: tuple[str, ...] = tuple(fault for fault in FAULTS if fault != "out_of_order")
    order_keys: bool = False  # lateness is then equal for all, so that order is kept
    rate: int = 2_000  # messages a second
    seed: int = 1


class Generator:
    """Writer of one ledger, chunk by chunk."""

    def __init__(self, plan: Plan, ledger: Path) -> None:
        self.plan = plan
        self.ledger = ledger
        self.topics = [f"topic-{number}" for number in range(plan.topics)]
        self.truth: dict[str, list[tuple[int, int]]] = {fault: [] for fault in FAULTS}
        self.rows = 0
        self.segments = 0
        self._next: dict[int, int] = {}  # hour -> its next global index
        self._offsets = np.zeros(plan.topics, np.int64)
        self._numbers: dict[str, int] = {}  # source -> its next segment
        self._index = 0
        self._made = 0  # running number of what is not replicated

    def run(self) -> Iterator[int]:
        """Write everything, the truth last; yield how many messages there are so far."""
        done = 0
        while done < self.plan.messages:
            self._chunk(done, min(self.plan.chunk, self.plan.messages - done))
            done = min(done + self.plan.chunk, self.plan.messages)
            yield done
        truth = {
            "rows": self.rows,
            "segments": self.segments,
            "plan": asdict(self.plan),
            "planted": self.truth,
        }
        (self.ledger / "truth.json").write_text(json.dumps(truth))

    def _numbered(self, of: Column, next_numbers: dict[int, int] | Column) -> Column:
        """Number the rows of each value of `of` on from where the last chunk ended."""
        numbers = np.empty(len(of), np.int64)
        for one in np.unique(of).tolist():
            here = np.flatnonzero(of == one)
            first = next_numbers.get(one, 0) if isinstance(next_numbers, dict) else int(next_numbers[one])
            numbers[here] = np.arange(first, first + len(here))
            next_numbers[one] = first + len(here)
        return numbers

    def _messages(self, done: int, count: int, chance: np.random.Generator) -> dict[str, Column]:
        """Return a chunk's messages in order of due time."""
        plan = self.plan
        start_ms = START_MS + done * 1_000 // plan.rate + done // plan.chunk * QUIET_MS
        due_ms = np.sort(start_ms + 2_000 + chance.integers(0, max(1, count * 1_000 // plan.rate), count))
        topic = np.where(chance.random(count) < 0.5, 0, chance.integers(0, plan.topics, count))
        hour = due_ms // HOUR_MS
        messages = {"topic": topic, "hour": hour, "due_ms": due_ms}
        messages["global_index"] = self._numbered(hour, self._next)
        messages["offset"] = self._numbered(topic, self._offsets)
        if plan.order_keys:
            messages["order_key"] = topic * 1_000 + messages["global_index"] % 20
        return messages

    def _chunk(self, done: int, count: int) -> None:
        plan, chance = self.plan, np.random.default_rng((self.plan.seed, done))
        messages = self._messages(done, count, chance)
        due_ms = messages["due_ms"]
        late_ms = np.full(count, 3) if plan.order_keys else chance.gamma(2.0, 1.5, count).astype(np.int64)
        crash_ms, delivered_ms = int(due_ms[count // 2]) + 20, due_ms + late_ms
        after = delivered_ms > crash_ms
        delivered_ms[after] = np.maximum(delivered_ms[after], crash_ms + OUTAGE_MS)
        chosen = self._plant(messages, delivered_ms, crash_ms, chance)
        delivered_ms[chosen["early"]] = due_ms[chosen["early"]] - 100
        delivered_ms[chosen["out_of_order"]] += 300
        life = Life(messages, delivered_ms, done // plan.chunk * 2 + 1, crash_ms, chosen)
        self._write(life)

    def _plant(
        self, messages: dict[str, Column], delivered_ms: Column, crash_ms: int, chance: np.random.Generator
    ) -> dict[str, Column]:
        """Choose each fault's messages and remember them; each message has one fault at most."""
        early_enough = (delivered_ms < crash_ms - 500) & (messages["topic"] == 0)
        places = chance.permutation(np.flatnonzero(early_enough))
        in_window = np.flatnonzero((delivered_ms > crash_ms - 50) & (delivered_ms <= crash_ms))
        chosen: dict[str, Column] = {}
        for number, fault in enumerate(FAULTS):
            share = places[number * self.plan.planted : (number + 1) * self.plan.planted]
            share = in_window[: self.plan.planted] if fault == "failover" else share
            chosen[fault] = share if fault in self.plan.faults else share[:0]
            names = (messages[name][chosen[fault]].tolist() for name in ("hour", "global_index"))
            self.truth[fault] += zip(*names, strict=True)
        return chosen

    def _write(self, life: Life) -> None:
        replicated, made = life.replicated(), life.made()
        slots, place = np.unique(replicated["at_ms"] // SLOT_MS, return_inverse=True)
        first = self._index
        replicated["index"] = first + 1 + place
        starts = np.searchsorted(place, np.arange(len(slots)))
        replicated["position"] = np.arange(len(place)) - starts[place]
        made["index"] = first + np.searchsorted(slots, made["at_ms"] // SLOT_MS, side="right")
        self._index = first + len(slots)
        created = self._created() if first == 0 else None
        equal = _table(replicated, self.topics)
        if created is not None:
            equal = pa.concat_tables([created, equal])
        for number in range(self.plan.nodes):
            mine = made["term"] % self.plan.nodes == number
            own = self._own(made, mine)
            rows = self._differing(equal, life) if number == self.plan.nodes - 1 else equal
            self._segment(pa.concat_tables([rows, own]), f"n{number + 1}", first, self._index)
        for source, receipts in (("producer:p", life.produced()), ("consumer:c", life.received())):
            self._segment(self._own(receipts, np.ones(len(receipts["term"]), np.bool_)), source, -1, -1)

    def _segment(self, rows: pa.Table, source: str, first: int, last: int) -> None:
        number = self._numbers.get(source, 0)
        write(self.ledger, rows, source, "r1", first, last, number)
        self._numbers[source] = number + 1
        self.rows += rows.num_rows
        self.segments += 1

    def _own(self, columns: dict[str, Column], mine: Column) -> pa.Table:
        own = {name: column[mine] for name, column in columns.items()}
        count = int(mine.sum())
        own["position"] = np.arange(self._made, self._made + count)
        own.setdefault("index", np.full(count, -1))
        self._made += count
        return _table(own, self.topics)

    def _created(self) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {"kind": Kind.GROUP_MOVED, "shard": 0, "term": 1, "index": 1, "position": -1 - number,
                 "at_ms": START_MS, "topic": topic, "group": "workers", "offset": 0,
                 "detail": GroupMove.CREATED, "source": "", "run": ""}
                for number, topic in enumerate(self.topics)
            ],
            PLAIN,
        ).cast(SCHEMA)  # fmt: skip

    def _differing(self, rows: pa.Table, life: Life) -> pa.Table:
        """Return the last node's rows: those of the chosen messages' scheduling are due a millisecond
        later.
        """
        places = life.chosen["replicas_disagree"]
        names = life.messages["hour"][places] * (1 << 32) + life.messages["global_index"][places]
        hour = rows.column("hour").fill_null(-1).to_numpy().astype(np.int64)
        name = hour * (1 << 32) + rows.column("global_index").fill_null(-1).to_numpy()
        scheduled = rows.column("kind").cast(pa.string()).to_numpy() == Kind.SCHEDULED.value
        due_ms = rows.column("due_ms").fill_null(-1).to_numpy() + (np.isin(name, names) & scheduled)
        place = rows.schema.get_field_index("due_ms")
        return rows.set_column(place, rows.schema.field("due_ms"), pa.array(due_ms, mask=due_ms < 0))


def _table(columns: dict[str, Column], topics: list[str]) -> pa.Table:
    """Return the ledger's rows; -1 becomes null where a column may be."""
    names = {
        "kind": [kind.value for kind in KINDS], "topic": topics, "group": ["workers"], "consumer": ["c"],
        "detail": list(DETAILS), "source": [""], "run": [""],
    }  # fmt: skip
    arrays: list[pa.Array] = []
    count = len(columns["at_ms"])
    for name, of in COLUMNS.items():
        column = np.zeros(count, np.int64) if name in ("source", "run", "shard") else columns.get(name)
        if column is None:
            arrays.append(pa.nulls(count, SCHEMA.field(name).type))
        elif of == "string":
            places = pa.array(column.astype(np.int32), mask=column < 0)
            arrays.append(pa.DictionaryArray.from_arrays(places, pa.array(names[name], pa.string())))
        else:
            known = pa.array(column, mask=None if name in ALWAYS else column < 0)
            arrays.append(known.cast(SCHEMA.field(name).type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write(
    ledger: Path, rows: pa.Table, source: str, run: str, first_index: int, last_index: int, segment: int
) -> None:
    """Write rows as a closed segment of a source, as nodes and clients do."""
    for name, value in (("source", source), ("run", run)):
        place = SCHEMA.get_field_index(name)
        rows = rows.set_column(place, SCHEMA.field(name), same(value, rows.num_rows))
    left = OpenSegment(ledger, source, run, segment, first_index)
    left.append(b"", 0, last_index)  # a segment without rows covers its indices, too
    for batch in rows.unify_dictionaries().combine_chunks().to_batches():
        left.append(to_stream(batch), batch.num_rows, last_index)
    close(left, 0)
