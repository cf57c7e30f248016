"""Producers: the answers already given, so that a retry never schedules twice.

A producer numbers its requests; the last ``window`` answers of each are kept: which
hours, the first global index in each, and for every message, or for every run of them,
which of the hours it went to (messages of one request and hour have consecutive global
indices). The idea is Kafka's idempotent producer, with answers instead of only a check.

What does not fit into ``answers_bytes_max`` is forgotten, first the oldest answers of
the producer not heard of for longest. That producer is still known, and so is which of
its requests may have been answered: a retry of one is refused, not scheduled again.

Producers beyond ``PRODUCERS_KEPT`` are forgotten, with all that was known of them, once they have been
silent for longer than anybody retries. Where there would be too many of others, new ones are refused.
Both bounds are in the entry, as its leader has them; entries from before have none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.columns import starts_of

WINDOW: Final = 64
"""Answers kept of each producer."""
PRODUCERS_KEPT: Final = 10_000
"""Producers remembered however long they are silent; the one not heard of for longest is forgotten first."""
FORGOTTEN_AT_ONCE_MAX: Final = 4
"""Producers forgotten for one that is heard of: thousands may have been silent for long enough at once."""
ANSWERS_BYTES_MAX: Final = 8 << 20
"""Bytes of all answers kept; of a request whose messages go to one hour, some 30."""
FLOOR_MAX: Final = 2**64 - 1
"""The greatest that a checkpoint holds. Intake refuses sequences near it, but a log of 0.1.0 may have one."""


class Bounds(NamedTuple):
    """Bounds on producers that an entry names."""

    now_ms: int
    producers_max: int
    """0: an entry from before there was a limit; who is beyond those kept is forgotten, however young."""
    silent_ms: int


UNBOUNDED: Final = Bounds(0, 0, 0)


def pack(
    sequences: Sequence[int],
    starts: Sequence[int],
    hour: NDArray[np.uint32],
    global_index: NDArray[np.uint32],
) -> list[log_pb.Answer]:
    """Return the answers to requests in their kept form.

    Both columns have shape (n,) and all requests' messages, one request's after another's; ``starts``: the
    first message of each. No request is empty.
    """
    begins = np.empty(len(hour), np.bool_)
    np.not_equal(hour[1:], hour[:-1], out=begins[1:])
    begins[starts] = True
    runs = np.flatnonzero(begins)  # of one request and hour: mostly a request has one
    lengths = np.append(runs[1:], len(hour)) - runs
    which, first = np.zeros(len(runs), np.intp), runs
    runs_at = hours_at = list(range(len(starts) + 1))
    if len(runs) > len(starts):
        requests = np.arange(len(starts))
        run_starts = np.searchsorted(runs, starts)
        request = np.repeat(requests, np.append(run_starts[1:], len(runs)) - run_starts)
        keys = request << 32 | hour[runs]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        opens = starts_of(keys)
        rank = np.repeat(np.arange(len(opens)), np.append(opens[1:], len(runs)) - opens)
        hour_starts = np.searchsorted(keys[opens] >> 32, requests)
        which[order] = rank - hour_starts[request]
        first = runs[order[opens]]
        runs_at, hours_at = [*run_starts.tolist(), len(runs)], [*hour_starts.tolist(), len(opens)]
    hours, firsts = hour[first].astype("<u4").tobytes(), global_index[first].astype("<u4").tobytes()
    which, run_lengths = which.astype("<u2"), lengths.astype("<u4")
    answers = []
    ends = [*starts[1:], len(hour)]
    for number, (sequence, start, end) in enumerate(zip(sequences, starts, ends, strict=True)):
        of_runs = slice(runs_at[number], runs_at[number + 1])
        of_hours = slice(4 * hours_at[number], 4 * hours_at[number + 1])
        by_run = 6 * (of_runs.stop - of_runs.start) < 2 * (end - start)  # bytes
        answer = log_pb.Answer(
            sequence=sequence,
            hours=hours[of_hours],
            first=firsts[of_hours],
            which=(which[of_runs] if by_run else which[of_runs].repeat(lengths[of_runs])).tobytes(),
            lengths=run_lengths[of_runs].tobytes() if by_run else b"",
        )
        answers.append(answer)
    return answers


def unpack(answer: log_pb.Answer) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the columns hour and global index that ``pack`` was given."""
    hours = np.frombuffer(answer.hours, dtype="<u4")
    first = np.frombuffer(answer.first, dtype="<u4")
    which = np.frombuffer(answer.which, dtype="<u2")
    if answer.lengths:
        which = which.repeat(np.frombuffer(answer.lengths, dtype="<u4"))
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(hours)))
    rank = np.empty(len(which), dtype=np.uint32)
    rank[order] = np.arange(len(which)) - starts[which[order]]
    return hours[which], first[which] + rank


def count(answer: log_pb.Answer) -> int:
    """Return how many messages an answer is about."""
    if not answer.lengths:
        return len(answer.which) // 2
    return int(np.frombuffer(answer.lengths, dtype="<u4").sum())


@dataclass(slots=True)
class _Producer:
    floor: int = 0
    """Answers to requests below may have been given and forgotten."""
    highest: int = 0
    heard_ms: int = 0
    """When its latest answer was given; 0: by an entry that did not bound producers."""
    answers: dict[int, bytes] = field(default_factory=dict)
    """Each an Answer."""
    captured: bytes = b""
    """The ProducerCheckpoint, as it was built last."""

    def build(self, name: str) -> None:
        answers = [self.answers[sequence] for sequence in sorted(self.answers)]
        checkpoint = log_pb.ProducerCheckpoint(
            producer=name,
            highest=self.highest,
            floor=self.floor,
            answers=answers,
            heard_ms=self.heard_ms,
        )
        self.captured = checkpoint.SerializeToString()

    def forget(self, sequence: int) -> int:
        """Forget one answer and all that came before; return how many bytes that frees."""
        self.floor = max(self.floor, min(sequence + 1, FLOOR_MAX))
        old = [self.answers.pop(known) for known in list(self.answers) if known <= sequence]
        return sum(map(len, old))


class Producers:
    """Table producer -> last answers, bounded in number and in bytes."""

    def __init__(
        self,
        window: int = WINDOW,
        producers_kept: int = PRODUCERS_KEPT,
        answers_bytes_max: int = ANSWERS_BYTES_MAX,
    ) -> None:
        self._window = window
        self._producers_kept = producers_kept
        self._answers_bytes_max = answers_bytes_max
        self.answers_bytes = 0
        self._table: OrderedDict[str, _Producer] = OrderedDict()  # stalest first
        self._changed: set[str] = set()  # whose part of a checkpoint is to be built anew
        self._with_answers: OrderedDict[str, _Producer] = OrderedDict()  # those of them, in the same order

    def free(self) -> None:
        """Free all producers, one at a time. For a thread, beside which others run."""
        while self._table:
            self._with_answers.pop(self._table.popitem()[0], None)

    def answer(self, producer: str, sequence: int) -> log_pb.Answer | None:
        """Return the answer given to this request before, if it is still known."""
        known = self._table.get(producer)
        answer = known.answers.get(sequence) if known else None
        return None if answer is None else log_pb.Answer.FromString(answer)

    def too_old(self, producer: str, sequence: int) -> bool:
        """Return whether an answer to this request may have been given and forgotten."""
        known = self._table.get(producer)
        return known is not None and sequence < known.floor

    def full(self, producer: str, bounds: Bounds, coming: int = 0) -> bool:
        """Return whether one more producer, beside others that are coming, would be too many."""
        return (
            bounds.producers_max > 0
            and len(self._table) + coming >= bounds.producers_max
            and producer not in self._table
            and (coming > 0 or not self._silent(bounds))
        )

    def _silent(self, bounds: Bounds) -> bool:
        """Return whether the producer not heard of for longest may be forgotten."""
        stalest = next(iter(self._table.values()))
        return stalest.heard_ms + bounds.silent_ms < bounds.now_ms

    def _forget(self) -> None:
        name, stalest = self._table.popitem(last=False)
        self._with_answers.pop(name, None)
        self.answers_bytes -= sum(map(len, stalest.answers.values()))

    def _make_room(self, bounds: Bounds) -> None:
        if not bounds.producers_max:
            if len(self._table) > self._producers_kept:
                self._forget()
            return
        most = min(self._producers_kept, bounds.producers_max)
        for _ in range(FORGOTTEN_AT_ONCE_MAX):
            if len(self._table) <= most or not self._silent(bounds):
                return
            self._forget()

    def remember(self, producer: str, answer: log_pb.Answer, bounds: Bounds = UNBOUNDED) -> None:
        """Keep an answer to a request that has none, and is not too old; stale ones make room."""
        known = self._table.setdefault(producer, _Producer())
        if bounds.producers_max:
            known.heard_ms = max(known.heard_ms, bounds.now_ms)
        self._table.move_to_end(producer)
        self._with_answers[producer] = known
        self._with_answers.move_to_end(producer)
        kept = answer.SerializeToString()
        known.answers[answer.sequence] = kept
        self._changed.add(producer)
        known.highest = max(known.highest, answer.sequence)
        self.answers_bytes += len(kept)
        if known.floor <= known.highest - self._window:
            self.answers_bytes -= known.forget(known.highest - self._window)
        self._make_room(bounds)
        while self.answers_bytes > self._answers_bytes_max:
            name, stalest = next(iter(self._with_answers.items()))
            self.answers_bytes -= stalest.forget(min(stalest.answers))
            self._changed.add(name)
            if not stalest.answers:
                del self._with_answers[name]

    def build(self, most: int) -> int:
        """Build so many producers' parts anew, of those of which something has changed; return how many."""
        most = min(most, len(self._changed))
        for _ in range(most):
            name = self._changed.pop()
            if (known := self._table.get(name)) is not None:
                known.build(name)
        return most

    def capture(self) -> list[bytes]:
        """Return the table for a checkpoint, stalest producer first, each a ProducerCheckpoint."""
        self.build(len(self._changed))
        return [known.captured for known in self._table.values()]

    def recover(self, table: Iterable[bytes]) -> None:
        """Become what ``capture`` returned."""
        for captured in table:
            checkpoint = log_pb.ProducerCheckpoint.FromString(captured)
            answers = {log_pb.Answer.FromString(answer).sequence: answer for answer in checkpoint.answers}
            known = _Producer(checkpoint.floor, checkpoint.highest, checkpoint.heard_ms, answers, captured)
            self._table[checkpoint.producer] = known
            if answers:
                self._with_answers[checkpoint.producer] = known
            self.answers_bytes += sum(map(len, answers.values()))
