"""The ledger's folder as its node writes it: the open segment, rotation, retention. For a thread."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarry.node.config import LedgerSettings
from tarry.node.ledger.buffer import Stretch
from tarry.node.ledger.closer import Closer
from tarry.proto.files import free_bytes
from tarry.proto.ledger.chunk import pack
from tarry.proto.ledger.segment import Closed, OpenSegment, closed_and_damaged, delete, recover

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Left:
    """Files that earlier runs left."""

    covered: int | None  # all up to here is told of; None: there is no ledger
    killed: bool  # the last one did not close its segment
    damaged: Sequence[Path]  # Parquet files whose manifests say nothing: they are left alone


class Disk:
    """One node's ledger folder. After an OSError it is as it was: make the call again."""

    def __init__(self, folder: Path, source: str, run: str, settings: LedgerSettings, closer: Closer) -> None:
        self.folder = folder
        self.closer = closer
        self.open: OpenSegment | None = None
        self.bytes = 0  # of closed segments
        self.segments: deque[Closed] = deque()
        self._source = source
        self._run = run
        self._settings = settings
        self._next = 1
        self.sealed: list[OpenSegment] = []  # to be closed
        self._begun_ms = 0

    def begin(self, now_ms: int, first_index: int) -> Left:
        """Find what a killed process left, to be closed, and open a segment."""
        left = recover(self.folder, self._source)
        every, damaged = closed_and_damaged(self.folder)
        own = [known for known in every if known[1]["source"] == self._source]
        numbers = {manifest["segment"] for _, manifest in own}
        for one in left:
            if one.segment in numbers:  # closed, and then killed
                one.path.unlink()
        self._remove_unfinished({path for path, _ in own} | set(damaged))
        self.sealed = [one for one in left if one.segment not in numbers]
        numbers |= {one.segment for one in left} | set(self._numbers(damaged))
        self._next = 1 + max(numbers, default=0)
        self.segments, self.bytes = deque(own), sum(manifest["bytes"] for _, manifest in own)
        covered = [manifest["last_index"] for _, manifest in own] + [one.covered for one in self.sealed]
        # the clock of a node that has just started is its own, and may be years ahead
        newest_ms = max((manifest["last_at_ms"] for _, manifest in own), default=now_ms)
        self._delete_old(min(now_ms, newest_ms))
        self._start(first_index)
        return Left(max(covered, default=None), bool(left), damaged)

    def write(self, stretches: list[Stretch], now_ms: int, *, sync: bool) -> None:
        """Add rows to the open segment, or that nothing happened up to an index; behind a hole begin another.

        Takes out of the list what is written.
        """
        assert self.open is not None
        if free_bytes(self.folder) < self._settings.disk_free_bytes_min:
            least = self._settings.disk_free_bytes_min
            raise OSError(errno.ENOSPC, f"less than ledger.disk_free_bytes_min = {least} is free")
        while stretches:
            one = stretches[0]
            if one.behind is not None:
                self._seal(one.behind)
                one.behind = None
            if one.chunks or one.covered > self.open.covered:
                payload = pack(one.chunks) if one.chunks else b""
                if not self.open.rows:
                    self._begun_ms = now_ms
                self.open.append(payload, sum(chunk.rows for chunk in one.chunks), one.covered)
            stretches.pop(0)
        if sync:
            self.open.sync()

    def full_at_ms(self) -> int | None:
        """Return when the open segment is to be closed for its age; None where it has no rows."""
        if self.open is None or not self.open.rows:
            return None
        next_day_ms = (self._begun_ms // DAY_MS + 1) * DAY_MS
        return min(self._begun_ms + self._settings.segment_ms, next_day_ms)

    def rotate(self, now_ms: int) -> None:
        """Begin another segment if the open one is full. It may be called while ``close_sealed`` runs."""
        full_at_ms = self.full_at_ms()
        if self.open is None or full_at_ms is None:
            return
        if self.open.rows >= self._settings.segment_rows_max or now_ms >= full_at_ms:
            self._seal(self.open.covered)

    def close_sealed(self, now_ms: int) -> None:
        """Make Parquet of full segments, and delete the oldest where there is too much."""
        try:
            while self.sealed:
                done = self.closer.close(self.sealed[0], now_ms)
                self.sealed.pop(0)
                if done is not None:
                    self.segments.append(done)
                    self.bytes += done[1]["bytes"]
        finally:
            self.closer.rest()
        self._delete_old(now_ms)

    def end(self, now_ms: int) -> None:
        """Close everything."""
        if self.open is not None:
            self.sealed.append(self.open)
            self.open = None
        self.close_sealed(now_ms)

    def _delete_old(self, now_ms: int) -> None:
        kept_from_ms = now_ms - self._settings.retention_ms
        while self.segments and (
            self.bytes > self._settings.disk_bytes_max or self.segments[0][1]["last_at_ms"] < kept_from_ms
        ):
            path, manifest = self.segments[0]
            delete(path)
            self.segments.popleft()
            self.bytes -= manifest["bytes"]

    def _remove_unfinished(self, finished: set[Path]) -> None:
        for path in self.folder.glob("date=*/*.parquet*"):
            if self._is_own(path) and path not in finished:
                path.unlink()  # its open segment is still there

    def _numbers(self, closed: Sequence[Path]) -> Iterator[int]:
        """Yield the numbers in the names of this node's own segments."""
        for path in closed:
            number = path.stem.rpartition("-")[2]
            if self._is_own(path) and number.isdecimal():
                yield int(number)

    def _is_own(self, path: Path) -> bool:
        return path.name.rsplit("-", 4)[0].lstrip(".") == self._source

    def _seal(self, first_index: int) -> None:
        """Let the next segment begin; one that tells of nothing gives it its number."""
        assert self.open is not None
        if self.open.bytes:
            self.sealed.append(self.open)
        else:
            self._next = self.open.segment
        self._start(first_index)

    def _start(self, first_index: int) -> None:
        self.folder.joinpath("open").mkdir(parents=True, exist_ok=True)
        self.open = OpenSegment(self.folder, self._source, self._run, self._next, first_index)
        self._next += 1
