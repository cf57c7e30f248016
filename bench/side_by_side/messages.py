"""Bodies that name their message, and the account of what came of them.

    body: id u64, due_ms i64 (little-endian), then filler that follows from the id

So a receiver can tell from the body alone what it is, when it was due, and whether a byte has changed.
"""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
from operator import add
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

HEADER: Final = np.dtype([("id", "<u8"), ("due_ms", "<i8")])
BODY_BYTES_MAX: Final = 4_096
_OFFSETS: Final = 4_096
_FILLER: Final = np.frombuffer(np.random.default_rng(6).bytes(_OFFSETS + BODY_BYTES_MAX), np.uint8)


def bodies_of(ids: NDArray[np.uint64], due_ms: NDArray[np.int64], size: int) -> list[bytes]:
    """Return a body of `size` bytes (the header's 16 to BODY_BYTES_MAX) for each id."""
    joined = _block(ids, due_ms, size).tobytes()
    return [joined[start : start + size] for start in range(0, len(joined), size)]


def _block(ids: NDArray[np.uint64], due_ms: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    if not HEADER.itemsize <= size <= BODY_BYTES_MAX:
        raise ValueError(f"a body has {HEADER.itemsize} to {BODY_BYTES_MAX} bytes, not {size}")
    header = np.empty(len(ids), HEADER)
    header["id"], header["due_ms"] = ids, due_ms
    block = np.empty((len(ids), size), np.uint8)
    block[:, : HEADER.itemsize] = header.view(np.uint8).reshape(len(ids), HEADER.itemsize)
    block[:, HEADER.itemsize :] = sliding_window_view(_FILLER, size - HEADER.itemsize)[ids % _OFFSETS]
    return block


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of lost, early, repeated and changed messages; all zero is well."""

    lost: int = 0
    early: int = 0
    duplicates: int = 0
    changed: int = 0  # of another size, of an id never sent, or with other bytes

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(*map(add, astuple(self), astuple(other)))


class Account:
    """Messages sent and received in one turn: ids from `first_id` on, all bodies of one size."""

    def __init__(self, first_id: int, size: int) -> None:
        self.first_id = first_id
        self.size = size
        self.sent = 0
        self.complete = False  # nothing more will be sent
        self._due: list[NDArray[np.int64]] = []
        self._seen = np.zeros(0, np.bool_)
        self._came: list[tuple[NDArray[np.uint8], float]] = []
        self._distinct = 0
        self._misshapen = 0

    def send(self, due_ms: NDArray[np.int64]) -> list[bytes]:
        """Return the bodies of the next messages; they count as sent."""
        ids = np.arange(len(due_ms), dtype=np.uint64) + np.uint64(self.first_id + self.sent)
        self._due.append(due_ms)
        self.sent += len(due_ms)
        return bodies_of(ids, due_ms, self.size)

    def take_back(self, count: int) -> None:
        """Count the last `count` messages (of the last call of `send`) as not sent."""
        self.sent -= count
        if count:
            self._due[-1] = self._due[-1][:-count]

    def take(self, bodies: list[bytes], received_ms: float | None = None) -> bool:
        """Note bodies as received; say whether everything has come.

        `received_ms`: since the epoch; None: now, a consumer calls this at once.
        """
        at_ms = time.time_ns() / 1e6 if received_ms is None else received_ms
        whole = [body for body in bodies if len(body) == self.size]
        self._misshapen += len(bodies) - len(whole)
        if whole:
            block = np.frombuffer(b"".join(whole), np.uint8).reshape(len(whole), self.size)
            self._came.append((block, at_ms))
            self._see(block)
        return self.complete and self._distinct >= self.sent

    def _see(self, block: NDArray[np.uint8]) -> None:
        if len(self._seen) < self.sent:
            self._seen = np.concatenate([self._seen, np.zeros(2 * self.sent - len(self._seen), np.bool_)])
        numbers = _headers(block)["id"].astype(np.int64) - self.first_id
        numbers = np.unique(numbers[(numbers >= 0) & (numbers < self.sent)])
        self._distinct += int(np.count_nonzero(~self._seen[numbers]))
        self._seen[numbers] = True

    def lateness_ms(self) -> NDArray[np.float64]:
        """Return received minus due of every message that came."""
        parts = [at_ms - _headers(block)["due_ms"] for block, at_ms in self._came]
        return np.concatenate(parts) if parts else np.zeros(0)

    def verdict(self, *, all_came: bool = True) -> Verdict:
        """Compare byte by byte. `all_came`: what did not come is lost; else only what came is judged."""
        due_ms = np.concatenate(self._due) if self._due else np.zeros(0, np.int64)
        counts = np.zeros(self.sent, np.int64)
        early, changed = 0, self._misshapen
        for block, at_ms in self._came:
            numbers = _headers(block)["id"].astype(np.int64) - self.first_id
            known = (numbers >= 0) & (numbers < self.sent)
            numbers = numbers[known]
            ids = numbers.astype(np.uint64) + np.uint64(self.first_id)
            expected = _block(ids, due_ms[numbers], self.size)
            same = (expected == block[known]).all(axis=1)
            changed += len(block) - int(np.count_nonzero(same))
            early += int(np.count_nonzero(at_ms < due_ms[numbers]))
            np.add.at(counts, numbers, 1)
        lost = int(np.count_nonzero(counts == 0)) if all_came else 0
        return Verdict(lost, early, int(np.maximum(counts - 1, 0).sum()), changed)


def _headers(block: NDArray[np.uint8]) -> NDArray[np.void]:
    headers: NDArray[np.void] = np.ascontiguousarray(block[:, : HEADER.itemsize]).view(HEADER)[:, 0]
    return headers
