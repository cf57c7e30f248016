"""The key index: which messages of a topic have a key, on disk, as sorted runs that are merged.

    rows ──► run ─┐                   manifest ──► run, run, run …
    rows ──► run ─┼── merge ──► run
      …           ┘

A log-structured merge tree (O'Neil, Cheng, Gawlick, O'Neil, 1996): keys are written often and looked up
rarely, so rows are only appended, and runs of like size are merged. A row says that a message may have a key:
whoever asks looks into the message, so neither equal hashes nor rows of dropped hours tell anything wrong.
What is asked of the index is that no row is missing, and each byte that is read is proven.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np

from tarry.proto.files import replace_file, sync_path
from tarry.wheel.keys.run import ROW, IsDropped, KeysDamaged, Run, Words, Written, in_order, merged, write_run
from tarry.wheel.state import Rows

MANIFEST_NAME: Final = "manifest"
MERGED_RUNS: Final = 8
"""Runs of like size that are merged into one."""
SMALL_ROWS: Final = 65_536
"""Runs of fewer rows count as of like size, then those of up to eight times as many, and so on."""
DROPPED_MAX: Final = 0.5
"""Share of a run's rows that may be of dropped hours; with more it is written again without them."""
_MAGIC: Final = b"TKEYS\0\0\1"
_HEAD: Final = struct.Struct("<8sQI")
_RUN: Final = struct.Struct("<QQI")
_CRC: Final = struct.Struct("<I")


class KeyIndex:
    """The runs in a folder. Its calls block; one that writes at a time, from any thread."""

    def __init__(
        self,
        folder: Path,
        generation: int = 0,
        runs: Sequence[Run] = (),
        numbers: Iterator[int] | None = None,
    ) -> None:
        """Take what a manifest has, and numbers of runs to come; without them it is a new index."""
        self.folder = folder
        self.generation = generation
        """Number of commits that added rows; 0: there is no manifest."""
        self.runs: tuple[Run, ...] = tuple(runs)
        """Never changed in place: whoever took them may go on reading."""
        self.numbers = numbers or count(max((run.written.number for run in runs), default=-1) + 1)
        """Of runs to come; one that takes the place of this index in its folder goes on with them."""
        self._has_folder = False

    @classmethod
    def open(cls, folder: Path) -> KeyIndex:
        """Open the index as it was committed last; files that it does not name are deleted.

        Raises OSError, KeysDamaged.
        """
        path = folder / MANIFEST_NAME
        try:
            manifest = path.read_bytes()
        except FileNotFoundError:
            return cls(folder)
        generation, written = _read(path, manifest)
        try:
            runs = [Run(folder, one) for one in written]
        except FileNotFoundError as missing:
            raise KeysDamaged(path, f"names a run that is not there: {missing}") from None
        named = {MANIFEST_NAME, *(run.path.name for run in runs)}
        for file in list(folder.iterdir()):
            if file.name not in named:
                file.unlink()
        return cls(folder, generation, runs)

    def renewed(self) -> KeyIndex:
        """Return an index without rows in the same folder, of which everything is deleted. Raises OSError.

        A merge of this one that still goes on in its thread does not get in its way.
        """
        (self.folder / MANIFEST_NAME).unlink(missing_ok=True)  # first, for it names the others
        if self.folder.exists():
            for file in list(self.folder.iterdir()):
                file.unlink(missing_ok=True)
        return KeyIndex(self.folder, numbers=self.numbers)

    @property
    def rows(self) -> int:
        """The number of rows in all runs."""
        return sum(run.rows for run in self.runs)

    def add(self, parts: Iterable[Rows]) -> None:
        """Add rows, in any order, as one run, which lasts from the next commit on. Raises OSError."""
        rows = np.concatenate([np.empty(0, ROW), *parts])
        if len(rows) and (run := self._write((in_order(rows),))):
            self.runs = (*self.runs, run)

    def choose(self, is_dropped: IsDropped) -> list[Run]:
        """Return runs to be merged, eight of like size, or one mostly of dropped hours; none: all is well."""
        sizes: dict[int, list[Run]] = {}
        for run in self.runs:
            sizes.setdefault(_size(run.rows), []).append(run)
        alike = next((sizes[size] for size in sorted(sizes) if len(sizes[size]) >= MERGED_RUNS), [])
        return alike or [run for run in self.runs if run.share_dropped(is_dropped) > DROPPED_MAX][:1]

    def merge(self, runs: Sequence[Run], is_dropped: IsDropped) -> Run | None:
        """Write the rows of runs as one, without dropped hours; None: nothing is left. Then `replace`.

        May run beside another call, which changes other runs. Raises OSError, KeysDamaged.
        """
        return self._write(merged(runs, is_dropped))

    def replace(self, runs: Sequence[Run], by: Run | None) -> None:
        """Put a run in the place of others, which stay on disk until `commit` or `forget`."""
        left = tuple(run for run in self.runs if run not in runs)
        self.runs = left if by is None else (*left, by)

    def commit(self, generation: int) -> None:
        """Make the index as it is now the one that is opened next. Raises OSError."""
        self._make_folder()
        sync_path(self.folder)  # the names of its runs, before one names them
        replace_file(self.folder / MANIFEST_NAME, _written(generation, [run.written for run in self.runs]))
        self.generation = generation

    def forget(self, runs: Iterable[Run]) -> None:
        """Delete the files of runs that no manifest names. Raises OSError."""
        for run in runs:
            run.path.unlink(missing_ok=True)

    def _write(self, parts: Iterable[Rows]) -> Run | None:
        self._make_folder()
        return write_run(self.folder, next(self.numbers), parts)

    def _make_folder(self) -> None:
        """Make the folder once, and none above it: what is written later than it is removed has to fail."""
        if not self._has_folder:
            self.folder.mkdir(exist_ok=True)
            sync_path(self.folder.parent)
            self._has_folder = True


def find(runs: Iterable[Run], key_hash: int, first: int, end: int, most: int) -> Words:
    """Return the first `most` places from `first` on, before `end`, that rows of the runs have for a hash.

    Ascending, each once. For any thread. Raises OSError, KeysDamaged.
    """
    found = [run.find(key_hash, first, end, most) for run in runs]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *found]))[:most]


def _size(rows: int) -> int:
    """Return which runs are of like size: the logarithm of their rows, of small ones 0."""
    size, most = 0, SMALL_ROWS
    while rows >= most:
        size, most = size + 1, most * MERGED_RUNS
    return size


def _written(generation: int, runs: Sequence[Written]) -> bytes:
    body = _HEAD.pack(_MAGIC, generation, len(runs)) + b"".join(_RUN.pack(*run) for run in runs)
    return body + _CRC.pack(google_crc32c.value(body))


def _read(path: Path, manifest: bytes) -> tuple[int, list[Written]]:
    body, crc = manifest[: -_CRC.size], manifest[-_CRC.size :]
    if len(body) < _HEAD.size or _CRC.pack(google_crc32c.value(body)) != crc:
        raise KeysDamaged(path, "does not match its checksum")
    magic, generation, count = _HEAD.unpack_from(body)
    if magic != _MAGIC or len(body) != _HEAD.size + count * _RUN.size:
        raise KeysDamaged(path, "is of another version")
    return generation, [Written(*run) for run in _RUN.iter_unpack(body[_HEAD.size :])]
