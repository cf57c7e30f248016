"""Files of a ledger: the open segment, closed ones with their manifests, and the remains of a crash.

    open/<run>-<segment>-<first_index>.rows    frames: length, crc32c, covered index, rows, payload
                    │ close: see parquet.py
                    ▼
    date=…/<stem>.parquet, then <stem>.json

A frame's rows survive the end of the process once its append has returned, and a power cut once synced. A
payload is packed by chunk.py, or is an Arrow stream. All of this is for a thread, one call at a time for each
open segment.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, get_origin, get_type_hints

import google_crc32c

from tarry.proto.files import sync_path
from tarry.proto.ledger.schema import VERSION, Manifest

_FRAME: Final = struct.Struct("<IIqI")
_KINDS: Final = {name: get_origin(hint) or hint for name, hint in get_type_hints(Manifest).items()}
"""Of a manifest's values."""

Closed: TypeAlias = tuple[Path, Manifest]
"""A closed segment: its Parquet file, and what its manifest says."""


@dataclass(slots=True)
class OpenSegment:
    """Segment that is not closed, and its rows."""

    ledger: Path
    source: str
    run: str
    segment: int
    first_index: int
    covered: int = field(init=False)
    rows: int = 0
    bytes: int = 0
    dirty: bool = False
    filtered: bool = False

    def __post_init__(self) -> None:
        self.covered = self.first_index

    @property
    def path(self) -> Path:
        """Path of the file of frames."""
        return self.ledger / "open" / f"{self.run}-{self.segment}-{self.first_index}.rows"

    def append(self, payload: bytes, rows: int, covered: int) -> None:
        """Write rows, and that all indices up to ``covered`` are told of.

        Raises:
            OSError: nothing was written, and the segment is as it was.
        """
        head = _FRAME.pack(len(payload), _crc(payload, covered, rows), covered, rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            try:
                file.write(head)
                file.write(payload)
                file.flush()
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), self.bytes)
                raise
            self.bytes += len(head) + len(payload)
            self.rows += rows
            self.covered = covered
            self.dirty = True

    def sync(self) -> None:
        """Force what was written to disk. Raises OSError."""
        if self.dirty:
            sync_path(self.path)
            sync_path(self.path.parent)
            self.dirty = False

    def payloads(self) -> Iterator[bytes]:
        """Yield what was appended, but for frames without rows."""
        return (payload for payload, _, end in _frames(self.path) if payload and end <= self.bytes)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from closing it meanwhile. Raises FileNotFoundError: one has closed it."""
        with self.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.path.stat()
            yield


def recover(ledger: Path, source: str) -> list[OpenSegment]:
    """Return the open segments that the last run left, in order, each cut behind its last whole frame.

    What a process of that run is just closing is waited for.
    """
    found = []
    for path in (ledger / "open").glob("*-*-*.rows"):
        run, segment, first = path.stem.rsplit("-", 2)
        if not (segment.isdecimal() and first.isdecimal()):
            continue  # somebody else's
        left = OpenSegment(ledger, source, run, int(segment), int(first))
        with suppress(FileNotFoundError), left.locked():
            for _, (left.covered, rows), left.bytes in _frames(path):
                left.rows += rows
            os.truncate(path, left.bytes)
            found.append(left)
    return sorted(found, key=lambda left: left.segment)


def closed(ledger: Path) -> list[Closed]:
    """Return the closed segments' Parquet files and manifests, in the order of their writing."""
    return closed_and_damaged(ledger)[0]


def closed_and_damaged(ledger: Path) -> tuple[list[Closed], list[Path]]:
    """Return likewise, and the Parquet files whose manifests do not say what a manifest does."""
    found: list[Closed] = []
    damaged: list[Path] = []
    for path in ledger.glob("date=*/*.json"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            manifest, parquet = _manifest(path.read_bytes()), path.with_suffix(".parquet")
            if manifest is None:
                damaged.append(parquet)
            else:
                found.append((parquet, manifest))
    return sorted(found, key=lambda one: one[1]["segment"]), sorted(damaged)


def _manifest(data: bytes) -> Manifest | None:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("version") != VERSION:
        return None
    if not all(isinstance(told.get(name), kind) for name, kind in _KINDS.items()):
        return None
    return Manifest(**told)  # type: ignore[typeddict-item]


def delete(parquet: Path) -> None:
    """Delete a closed segment, its manifest first: without one it is not closed. Raises OSError."""
    parquet.with_suffix(".json").unlink(missing_ok=True)
    parquet.unlink(missing_ok=True)
    with suppress(OSError):  # not the last of its day
        parquet.parent.rmdir()


def _crc(payload: bytes, covered: int, rows: int) -> int:
    told = struct.pack("<qI", covered, rows)
    return int(google_crc32c.extend(google_crc32c.value(payload), told))


def _frames(path: Path) -> Iterator[tuple[bytes, tuple[int, int], int]]:
    """Yield (payload, (covered index, rows), where the next frame begins) of every whole frame."""
    data, at = path.read_bytes(), 0
    while at + _FRAME.size <= len(data):
        size, crc, covered, rows = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        payload = data[at : at + size]
        if len(payload) < size or _crc(payload, covered, rows) != crc:
            return
        at += size
        yield payload, (covered, rows), at
