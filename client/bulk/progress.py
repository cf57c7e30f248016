"""Progress of an import, in a folder that a later start goes on from.

    import.json               what is imported and how, and the producer whose sequences the batches have
    source.parquet            a copy of a source that changes: of Redis, of PostgreSQL
    begun-00000012            the step was begun: some of it may have been sent
    ids/step-00000012-….parquet   the step is done: its rows, with the ids that they have now
    refused.jsonl             rows that the cluster refused, noted before the others of their batch are sent
    result.json               all is done

A step is some consecutive batches. Its file of ids is renamed to its name once it is on disk, so a step is
done or not; one that is not is sent again whole, and the cluster answers what it had taken with the ids that
it gave then.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tarry.client.bulk.mapping import Fault

VERSION: Final = 1
STEP_BATCHES: Final = 8
"""Batches of a step. Of two steps at once these are 32 sequences: the cluster keeps the last 64 answers."""
IDS: Final = pa.schema(
    [("row", pa.int64()), ("id", pa.string()), ("new_id", pa.string()), ("due_ms", pa.int64()),
     ("overdue", pa.bool_()), ("repeated", pa.bool_()), ("refused", pa.string())]
)  # fmt: skip
"""Columns of the id map: row of the source, its id there, id in the cluster, due time as the cluster took it,
whether that was past, whether an idempotency key had been used before, so that nothing new was made; of a row
that is not imported only row and why."""
_STEP: Final = re.compile(r"step-(\d{8})-(\d+)-(\d+)-(\d+)-(\d+)\.parquet")


class ProgressDiffers(ValueError):
    """The folder is of another import: the text says what to give."""


class ProgressClosed(RuntimeError):
    """A write of an import that was broken off: its folder may be another's by now."""


class Step(NamedTuple):
    """A step that is done."""

    number: int
    end: int
    """Row of the source at which the next one begins."""
    taken: int
    refused: int
    skipped: int

    @property
    def name(self) -> str:
        """Name of its file of ids."""
        return f"step-{self.number:08}-{self.end}-{self.taken}-{self.refused}-{self.skipped}.parquet"


P = ParamSpec("P")
R = TypeVar("R")


def _exclusive(
    method: Callable[Concatenate[Progress, P], R],
) -> Callable[Concatenate[Progress, P], R]:
    """Have no other write beside this one, and none behind close(): threads of an import that is broken off
    go on behind it.
    """

    @wraps(method)
    def alone(self: Progress, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._writes:
            if self._closed:
                raise ProgressClosed(f"{self.folder} is closed")
            return method(self, *args, **kwargs)

    return alone


class Progress:
    """The folder of one import; held by a lock, so that it is not run twice at once."""

    def __init__(self, folder: Path) -> None:
        """Open or make it. Raises OSError; ProgressDiffers where another import has it."""
        self.folder = folder
        self._writes = RLock()
        self._closed = False
        (folder / "ids").mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ProgressDiffers(f"{folder} is in use by another import: wait for it") from None
        try:
            self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def _read(self) -> None:
        folder = self.folder
        self.told: dict[str, Any] | None = _read_json(folder / "import.json")
        if self.told is not None and self.told.get("version") != VERSION:
            text = "is of another version of this client: go on with that, or begin anew with another folder"
            raise ProgressDiffers(f"{folder} {text}")
        self.done = [self._step(path) for path in sorted((folder / "ids").glob("step-*.parquet"))]
        if self.told is None and (self.done or self.unsure):
            raise ProgressDiffers(f"{folder} has no import.json, and steps: begin anew with another folder")
        if [step.number for step in self.done] != list(range(len(self.done))):
            raise ProgressDiffers(f"{folder}/ids lacks a step: begin anew with another folder")
        begun = {path: int(path.name.removeprefix("begun-")) for path in self.folder.glob("begun-*")}
        self.begun_ms = {number: path.stat().st_mtime_ns // 1_000_000 for path, number in begun.items()}
        """When steps were begun by earlier starts, by their numbers."""
        begin = self.done[-1].end if self.done else 0
        noted = _faults(folder / "refused.jsonl")
        self.refused = {fault.row: fault for fault in noted if fault.row >= begin}
        """By the cluster, by the row, of steps that are not done."""

    @property
    def copy(self) -> Path:
        """Path of the copy of a source that changes."""
        return self.folder / "source.parquet"

    @_exclusive
    def keep_copy(self, side: Path) -> None:
        """Give a copy that has been written its name, once it is on disk. Raises OSError."""
        _sync(side)
        side.rename(self.copy)
        _sync(self.folder)

    @property
    def result(self) -> dict[str, Any] | None:
        """Counts of an import that is done; else None."""
        return _read_json(self.folder / "result.json")

    @_exclusive
    def begin(self, told: Mapping[str, Any]) -> None:
        """Note what is imported. Raises OSError."""
        self.told = {"version": VERSION, **told}
        self._replace("import.json", self.told)

    def check(self, what: Mapping[str, Any]) -> None:
        """Compare what is to be imported with what an earlier start noted. Raises ProgressDiffers."""
        assert self.told is not None
        for name, value in what.items():
            if self.told.get(name) != json.loads(json.dumps(value)):
                text = (
                    f"{self.folder} is of an import with other {name}: {self.told.get(name)!r}, now {value!r}"
                )
                raise ProgressDiffers(f"{text}. Give the same, or another folder with --progress")

    @property
    def unsure(self) -> list[int]:
        """Numbers of the steps that were begun and are not done."""
        begun = (int(path.name.removeprefix("begun-")) for path in self.folder.glob("begun-*"))
        return sorted(number for number in begun if number >= len(self.done))

    @_exclusive
    def begin_step(self, number: int) -> None:
        """Note that some of a step may be sent from now on. Raises OSError."""
        path = self.folder / f"begun-{number:08}"
        if not path.exists():
            path.touch()
            _sync(self.folder)

    @_exclusive
    def end_step(self, step: Step, ids: Iterable[pa.RecordBatch]) -> None:
        """Note the ids of a step, which is done. Raises OSError."""
        folder = self.folder / "ids"
        side = folder / f"unfinished-{step.number:08}"
        with side.open("wb") as file:
            pq.write_table(pa.Table.from_batches(list(ids), IDS), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        side.rename(folder / step.name)
        _sync(folder)
        self.done.append(step)
        for row in list(self.refused):  # at once: other threads add some meanwhile
            if row < step.end:
                del self.refused[row]
        (self.folder / f"begun-{step.number:08}").unlink(missing_ok=True)

    @_exclusive
    def refuse(self, faults: Iterable[Fault]) -> None:
        """Note rows that the cluster refused. Raises OSError."""
        fresh = [fault for fault in faults if fault.row not in self.refused]
        lines = "".join(json.dumps(fault._asdict(), ensure_ascii=False) + "\n" for fault in fresh)
        with (self.folder / "refused.jsonl").open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.refused.update((fault.row, fault) for fault in fresh)

    @_exclusive
    def finish(self, result: Mapping[str, Any]) -> None:
        """Note that all is done. Raises OSError."""
        self._replace("result.json", result)

    def close(self) -> None:
        """Let another import have the folder, once the write is over that a thread is in the middle of."""
        with self._writes:
            if self._closed:  # its descriptor may be another file's by now
                return
            self._closed = True
            os.close(self._lock)

    def _step(self, path: Path) -> Step:
        match = _STEP.fullmatch(path.name)
        if match is None:
            raise ProgressDiffers(f"{path} is no file of an import: begin anew with another folder")
        return Step(*map(int, match.groups()))

    def _replace(self, name: str, value: Mapping[str, Any]) -> None:
        side = self.folder / f"{name}.unfinished"
        with side.open("w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        side.replace(self.folder / name)
        _sync(self.folder)


def id_rows(
    rows: NDArray[np.int64],
    ids: pa.Array,
    new: pa.Array,
    due_ms: NDArray[np.int64],
    *flags: NDArray[np.bool_],
) -> pa.RecordBatch:
    """Return rows of the id map, of n messages that were taken; flags: overdue and repeated."""
    arrays = [pa.array(rows), ids, new, pa.array(due_ms), *map(pa.array, flags)]
    return pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(rows), pa.string())], schema=IDS)


def fault_rows(faults: Sequence[Fault]) -> pa.RecordBatch:
    """Return rows of the id map, of what is not imported."""
    told = [{"row": fault.row, "refused": f"{fault.reason}: {fault.text}"} for fault in faults]
    return pa.RecordBatch.from_pylist(told, IDS)


class Counts(NamedTuple):
    """Rows of an id map."""

    taken: int
    refused: int
    distinct: int
    """Ids of the messages that the import has made: as many as were taken, but for the repeated."""
    repeated: int


def counted(folder: Path) -> Counts:
    """Count the rows of the id map in a folder, as they are on disk. Raises OSError."""
    columns = ["new_id", "repeated", "refused"]
    files = sorted(folder.glob("step-*.parquet"))
    parts = [pq.read_table(path, columns=columns) for path in files]
    rows = pa.concat_tables(parts) if parts else IDS.empty_table().select(columns)
    taken = len(rows) - rows.column("new_id").null_count
    repeated = int(pc.sum(rows.column("repeated")).as_py() or 0)
    fresh = rows.filter(pc.equal(rows.column("repeated"), False)).column("new_id")
    return Counts(taken, len(rows) - taken, int(pc.count_distinct(fresh).as_py()), repeated)


def _faults(path: Path) -> Iterator[Fault]:
    """Yield the noted faults; a last line that was cut off is of a row that was not sent again yet."""
    whole = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    whole += len(line)
                    yield Fault(**json.loads(line))
    except FileNotFoundError:
        return
    os.truncate(path, whole)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ProgressDiffers(f"{path} is no file of an import: begin anew with another folder")
    return value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
