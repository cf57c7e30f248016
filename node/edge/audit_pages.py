"""Audit logs read backwards: a bounded piece of one file a call, from the newest line to the oldest.

A place in the log is a file and an offset in it. A file is known by its first line, since it is renamed when
it is full; a place in one that is gone has nothing older. Lines are in the order of the node's clock, which
may be set back: the time bounds what is read with a minute to spare, and each line is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

PIECE_BYTES: Final = 256 << 10
"""Read in one call."""
LINES_MAX: Final = 500
LINES: Final = 100
"""Of a call that does not say how many."""
HEAD_BYTES: Final = 4 << 10
"""Read of a file that is passed over: most lines are shorter."""
NAME_BYTES: Final = 256
"""Of its beginning, by which a file is known."""
SLACK_MS: Final = 60_000
"""By which a clock may have been set back."""
CURSOR: Final = re.compile(r"([0-9a-f]{16})\.(\d{1,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Choice of lines; ``to_ms`` 0, an empty ``token`` and an empty ``method``: all."""

    from_ms: int = 0
    to_ms: int = 0
    token: str = ""
    method: str = ""
    lines_max: int = LINES

    def has(self, line: dict[str, Any], at_ms: int) -> bool:
        """Return whether a line is asked for."""
        return (
            self.from_ms <= at_ms
            and (not self.to_ms or at_ms < self.to_ms)
            and (not self.token or line.get("token") == self.token)
            and (not self.method or line.get("method") == self.method)
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines, the newest first, and where the next call goes on (empty: nothing is older)."""

    lines: tuple[str, ...] = ()
    cursor: str = ""
    looked_to_ms: int = 0
    """All lines of that time or later have been looked at; 0: none."""
    unreadable: int = 0


class _File(NamedTuple):
    at: int
    """Its descriptor."""
    size: int
    name: str
    begins_ms: int | None
    """Time of its first line; None: that cannot be read."""


def read_piece(path: Path, files_max: int, wanted: Wanted, cursor: str = "") -> Piece:
    """Return a piece of the log at a path, from a cursor that ``CURSOR`` matches. Raises OSError."""
    with _opened(path, files_max) as files:
        for file in files:
            end = _end(file, wanted, cursor)
            if end is None:
                continue
            piece, start = _lines(file, end, wanted)
            if start:
                return _to(piece, f"{file.name}.{start}", wanted)
            older = next(files, None)
            return _to(piece, "" if older is None else f"{older.name}.{older.size}", wanted)
    return Piece()


@contextmanager
def _opened(path: Path, files_max: int) -> Iterator[Iterator[_File]]:
    """Yield the files, the newest first, each open while it is looked at.

    Where they are renamed meanwhile, a file may come twice, and none is left out: each gets an older name.
    """
    open_now: list[int] = []

    def files() -> Iterator[_File]:
        seen = set[int]()
        for number in range(files_max):
            named = path.with_name(f"{path.name}.{number}") if number else path
            try:
                at = os.open(named, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            open_now.append(at)
            status = os.fstat(at)
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                yield _file(at, status.st_size)
            if len(open_now) > 2:
                os.close(open_now.pop(0))

    try:
        yield files()
    finally:
        for at in open_now:
            os.close(at)


def _file(at: int, size: int) -> _File:
    first = os.pread(at, HEAD_BYTES, 0)
    if b"\n" not in first:
        first = os.pread(at, PIECE_BYTES, 0)
    first = first.partition(b"\n")[0]
    found = _parsed(first)
    name = hashlib.sha256(first[:NAME_BYTES]).hexdigest()[:16]
    return _File(at, size, name, found[1] if found is not None else None)


def _end(file: _File, wanted: Wanted, cursor: str) -> int | None:
    """Return the offset up to which a file is read; None: it is not looked at."""
    if cursor:
        matched = CURSOR.fullmatch(cursor)
        assert matched is not None
        return min(int(matched[2]), file.size) if matched[1] == file.name else None
    if not wanted.to_ms:
        return file.size
    late_ms = wanted.to_ms + SLACK_MS
    if file.begins_ms is not None and file.begins_ms >= late_ms:
        return None
    low, high = 0, file.size
    while high - low > PIECE_BYTES:
        middle = (low + high) // 2
        at_ms = _time_behind(file, middle)
        # not known: rather what is newer is read, and compared, than what is asked for left out
        low, high = (low, middle) if at_ms is not None and at_ms >= late_ms else (middle, high)
    return _line_end(file, high)


def _time_behind(file: _File, offset: int) -> int | None:
    """Return the time of the first line behind an offset that can be read; None: none in reach can."""
    whole = os.pread(file.at, PIECE_BYTES // 2, offset).split(b"\n")[1:-1]
    return next((found[1] for found in map(_parsed, whole) if found is not None), None)


def _line_end(file: _File, offset: int) -> int:
    """Return the end of the line that an offset lies in."""
    if offset in (0, file.size):
        return offset
    rest = os.pread(file.at, PIECE_BYTES // 2, offset - 1).find(b"\n")
    return offset if rest < 0 else offset + rest


def _lines(file: _File, end: int, wanted: Wanted) -> tuple[Piece, int]:
    """Return the lines asked for before an offset, and the offset where the oldest looked at begins.

    Once there are enough, those follow that are no older than one of them: of the same millisecond, or of a
    clock that was set back meanwhile; so a time says where others go on.
    """
    start = max(0, end - PIECE_BYTES)
    read = os.pread(file.at, end - start, start)
    if start and (cut := read.find(b"\n") + 1) and cut < len(read):
        start, read = start + cut, read[cut:]
    raws = read.splitlines(keepends=True)
    lines = list(map(_parsed, raws))
    until_ms = list(accumulate((line[1] if line is not None else 0 for line in lines), max))
    found, unreadable, looked_to_ms, last_ms = list[str](), 0, 0, 0
    at = start + len(read)
    for place in reversed(range(len(raws))):
        raw, line = raws[place], lines[place]
        if line is not None and len(found) >= wanted.lines_max and until_ms[place] < looked_to_ms:
            break
        at -= len(raw)
        if line is None:
            unreadable += raw != b"\n"
            continue
        last_ms = line[1]
        looked_to_ms = min(looked_to_ms or last_ms, last_ms)
        if wanted.has(*line):
            found.append(raw.decode(errors="replace").rstrip("\n"))
    else:
        looked_to_ms = last_ms + (last_ms > 0)  # others of that time may lie before
    return Piece(tuple(found), "", looked_to_ms, unreadable), at


def _to(piece: Piece, cursor: str, wanted: Wanted) -> Piece:
    over = piece.looked_to_ms and piece.looked_to_ms < wanted.from_ms - SLACK_MS
    return Piece(piece.lines, "" if over else cursor, piece.looked_to_ms, piece.unreadable)


def _parsed(raw: bytes) -> tuple[dict[str, Any], int] | None:
    """Return a line and its time in ms since the epoch; None: it is no line of the log."""
    try:
        line = json.loads(raw)
        return line, round(datetime.fromisoformat(line["at"]).timestamp() * 1_000)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
