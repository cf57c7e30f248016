"""Backups at rest: a folder that grows by what is new, or one stream.

    FOLDER/backup.json        manifest: what the state was, and each file with size and checksum
    FOLDER/files/…            the files; the manifest counts only so many bytes of each
    FOLDER/backup.begun       until the first backup has ended: the files are its, and may be removed

A file of a state only grows, so the next backup appends to the copy: bytes beyond the manifest's size belong
to no backup yet. A file that does not continue its copy gets a new one beside it. Replacing the manifest,
once all is synced, makes the new backup the one that counts; until then the one before is whole. Afterwards
the copies that it does not name are removed.

A stream is a line, then frames: length u32, crc32c u32 (little-endian), BackupResponse; length 0 ends it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

import google_crc32c
from google.protobuf.message import DecodeError

from tarry.proto.files import make_folder, replace_file, sync_path
from tarry.proto.tarry_operator_pb2 import BackupChunk, BackupFile, BackupManifest, BackupResponse

FORMAT: Final = 1
MANIFEST: Final = "backup.json"
FILES: Final = "files"
BEGUN: Final = "backup.begun"
STREAM: Final = b"tarry backup 1\n"
CHUNK_BYTES: Final = 512 << 10
FRAME_BYTES_MAX: Final = 64 << 20
_FRAME_HEAD_BYTES: Final = 8


class BackupDamaged(Exception):
    """A backup is not what was written; the message names the file."""


class BackupRefused(Exception):
    """The folder cannot take, or give, this backup; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of a file in a backup folder."""

    name: str
    size_bytes: int
    crc32c: int
    path: str
    """Below ``files``."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A whole backup in a folder. Field names are those of the manifest."""

    format: int
    number: int  # of the backups in this folder, from 1
    cluster: str
    node: str  # that was asked
    version: str
    shard: int
    index: int  # of the last entry in it
    term: int
    chain: int
    cluster_time_ms: int
    digest: str
    bytes: int
    files: tuple[Copy, ...]

    def manifest(self) -> BackupManifest:
        """Return it as a node tells it."""
        files = [BackupFile(name=c.name, size_bytes=c.size_bytes, crc32c=c.crc32c) for c in self.files]
        return BackupManifest(
            cluster=self.cluster,
            node=self.node,
            version=self.version,
            shard=self.shard,
            index=self.index,
            term=self.term,
            chain=self.chain,
            now_ms=self.cluster_time_ms,
            digest=bytes.fromhex(self.digest),
            files=files,
        )


def backup_in(folder: Path) -> Backup | None:
    """Return the backup in a folder; None: there is none. Raises BackupDamaged, BackupRefused, OSError."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        told = json.loads(path.read_bytes())
        crc = told.pop("crc32c")
        if told["format"] != FORMAT:
            raise BackupRefused(
                f"{path} has format {told['format']}, this tarry reads {FORMAT}: use a newer one"
            )
        if crc != _crc_of(told):
            raise BackupDamaged(f"{path}: checksum")
        files = tuple(Copy(**copy) for copy in told.pop("files"))
        backup = Backup(**told, files=files)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BackupDamaged(f"{path} is no manifest: {error}") from error
    for copy in backup.files:
        _inside(copy.name)
        _inside(copy.path)
    return backup


def _crc_of(told: dict[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(told, sort_keys=True).encode()))


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise BackupDamaged(f"{name!r} is no file of a backup")
    return path


class FolderWriter:
    """Writes one backup into a folder, beside the one before it. One at a time."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it. Raises BackupDamaged, BackupRefused, OSError."""
        self.folder = folder
        make_folder(folder)
        self._held = _lock(folder)  # before it is read: a backup that ends now is the one before this
        try:
            self.before = _before(folder)
        except BaseException:
            os.close(self._held)
            raise
        self._copies = {copy.name: copy for copy in (self.before.files if self.before else ())}
        self._manifest = BackupManifest()
        self._done: list[Copy] = []
        self._target: BinaryIO | None = None
        self._path, self._offset, self._crc = "", 0, 0
        self._written: set[Path] = set()
        self.bytes_written = 0

    def kept(self) -> list[BackupFile]:
        """Return the files that the folder has, largest first; none of what is shorter than it should be."""
        whole = (
            copy
            for copy in self._copies.values()
            if copy.size_bytes and _size_of(self.folder / FILES / copy.path) >= copy.size_bytes
        )
        largest = sorted(whole, key=lambda copy: copy.size_bytes, reverse=True)
        return [BackupFile(name=c.name, size_bytes=c.size_bytes, crc32c=c.crc32c) for c in largest]

    def begin(self, manifest: BackupManifest) -> None:
        """Take what the node tells. Raises BackupRefused, BackupDamaged."""
        before = self.before
        if before is not None and (before.cluster, before.shard) != (manifest.cluster, manifest.shard):
            raise BackupRefused(
                f"{self.folder} has a backup of cluster {before.cluster!r}, shard {before.shard}: "
                "use another folder"
            )
        if before is not None and before.index > manifest.index:
            raise BackupRefused(
                f"{self.folder} has a backup up to entry {before.index}, the node is at {manifest.index}: "
                "use another folder, so that the newer one stays"
            )
        names = [str(_inside(file.name)) for file in manifest.files]
        if len(set(names)) < len(names) or self._manifest.files:
            raise BackupDamaged("the node told of a file twice")
        self._manifest = manifest

    def take(self, chunk: BackupChunk) -> None:
        """Write a chunk. Raises BackupDamaged: it is not the one that follows; OSError."""
        if google_crc32c.value(chunk.data) != chunk.crc32c or not chunk.data:
            raise BackupDamaged(f"file {chunk.file} at {chunk.offset}: checksum, on the way")
        files = self._manifest.files
        if chunk.file >= len(files) or chunk.offset + len(chunk.data) > files[chunk.file].size_bytes:
            raise BackupDamaged(f"file {chunk.file} at {chunk.offset}: more than the node told of")
        if len(self._done) < chunk.file or self._target is None:
            self._finish_files(chunk.file)
            self._start(chunk)
        if (chunk.file, chunk.offset) != (len(self._done), self._offset):
            raise BackupDamaged(f"file {chunk.file} at {chunk.offset} came out of order")
        assert self._target is not None
        self._target.write(chunk.data)
        self._crc = google_crc32c.extend(self._crc, chunk.data)
        self._offset += len(chunk.data)
        self.bytes_written += len(chunk.data)

    def _start(self, chunk: BackupChunk) -> None:
        file = self._manifest.files[chunk.file]
        copy = self._copies.get(file.name)
        if copy is not None and chunk.offset == copy.size_bytes:
            self._open(copy.path, copy.size_bytes, copy.crc32c)
        else:
            self._open(self._fresh_path(file.name), 0, 0)

    def _fresh_path(self, name: str) -> str:
        """Return where a new copy goes: no earlier backup's copy may be changed."""
        taken = {copy.path for copy in self._copies.values()}
        return name if name not in taken else f"{name}.{self._number}"

    @property
    def _number(self) -> int:
        return 1 if self.before is None else self.before.number + 1

    def _open(self, path: str, size_bytes: int, crc: int) -> None:
        target = self.folder / FILES / path
        make_folder(target.parent)
        self._target = target.open("r+b" if size_bytes else "wb")
        self._target.truncate(size_bytes)
        self._target.seek(size_bytes)
        self._path, self._offset, self._crc = path, size_bytes, crc
        self._written.add(target)

    def _finish_files(self, until: int) -> None:
        """End the file under way, and those behind it that need no bytes, up to a place in the manifest."""
        while len(self._done) < until:
            file = self._manifest.files[len(self._done)]
            if self._target is None:
                self._unchanged(file)
            else:
                self._target.close()
                self._target = None
                if (self._offset, self._crc) != (file.size_bytes, file.crc32c):
                    raise BackupDamaged(f"{file.name} came incomplete, or changed on the way")
                self._done.append(Copy(file.name, file.size_bytes, file.crc32c, self._path))

    def _unchanged(self, file: BackupFile) -> None:
        copy = self._copies.get(file.name)
        if copy is not None and (copy.size_bytes, copy.crc32c) == (file.size_bytes, file.crc32c):
            self._done.append(copy)
        elif file.size_bytes == 0:
            self._open(self._fresh_path(file.name), 0, 0)
            assert self._target is not None
            self._target.close()
            self._target = None
            self._done.append(Copy(file.name, 0, 0, self._path))
        else:
            raise BackupDamaged(f"{file.name} did not come")

    def finish(self) -> Backup:
        """Make it the backup of the folder, durably. Raises BackupDamaged, OSError."""
        told = self._manifest
        self._finish_files(len(told.files))
        for path in self._written:
            sync_path(path)
        for parent in {path.parent for path in self._written}:
            sync_path(parent)
        backup = Backup(
            format=FORMAT,
            number=self._number,
            cluster=told.cluster,
            node=told.node,
            version=told.version,
            shard=told.shard,
            index=told.index,
            term=told.term,
            chain=told.chain,
            cluster_time_ms=told.now_ms,
            digest=told.digest.hex(),
            bytes=sum(file.size_bytes for file in told.files),
            files=tuple(self._done),
        )
        values = asdict(replace(backup, files=())) | {"files": [asdict(copy) for copy in backup.files]}
        text = json.dumps({**values, "crc32c": _crc_of(values)}, indent=1)
        replace_file(self.folder / MANIFEST, text.encode())
        (self.folder / BEGUN).unlink(missing_ok=True)
        self._remove_others(backup)
        return backup

    def _remove_others(self, backup: Backup) -> None:
        root = self.folder / FILES
        named = {root / copy.path for copy in backup.files}
        for folder, _, files in os.walk(root, topdown=False):
            here = Path(folder)
            for path in (here / name for name in files):
                if path not in named:
                    path.unlink()
            if here != root and not any(here.iterdir()):
                here.rmdir()

    def close(self) -> None:
        """Let the folder go; what was not finished is overwritten by the next backup."""
        if self._target is not None:
            self._target.close()
            self._target = None
        os.close(self._held)


def _before(folder: Path) -> Backup | None:
    """Return the backup in a folder, which is made ready for another. Raises BackupDamaged, BackupRefused."""
    if not (folder / MANIFEST).exists():
        there = {path.name for path in folder.iterdir()}
        strange = sorted(there - ({FILES, BEGUN, f".{MANIFEST}.new"} if BEGUN in there else set()))
        if strange:
            raise BackupRefused(
                f"{folder} has {strange[0]} and no backup: name an empty folder, or a new one"
            )
        (folder / BEGUN).touch()  # before there is anything else: what is not a backup's stays
        sync_path(folder)
    make_folder(folder / FILES)
    folder.chmod(0o700)  # it holds messages
    return backup_in(folder)


def _lock(folder: Path) -> int:
    import fcntl

    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise BackupRefused(f"another backup into {folder} is under way: let it end") from None
    return held


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def parts_of(folder: Path) -> Iterator[BackupResponse]:
    """Yield the parts of the backup in a folder, as a node sends them.

    Raises BackupRefused: there is none; BackupDamaged, which names the file; OSError.
    """
    backup = backup_in(folder)
    if backup is None:
        raise BackupRefused(f"{folder} has no {MANIFEST}: name the folder of a backup that came to its end")
    yield BackupResponse(manifest=backup.manifest())
    for chunk in _chunks_of(folder, backup):
        yield BackupResponse(chunk=chunk)


def _chunks_of(folder: Path, backup: Backup) -> Iterator[BackupChunk]:
    """Yield the bytes of a backup's files, in order. Raises BackupDamaged, which names the file."""
    for place, copy in enumerate(backup.files):
        path, crc, offset = folder / FILES / copy.path, 0, 0
        try:
            with path.open("rb") as source:
                while offset < copy.size_bytes:
                    data = source.read(min(CHUNK_BYTES, copy.size_bytes - offset))
                    if not data:
                        raise BackupDamaged(f"{path} has {offset} bytes, not {copy.size_bytes}")
                    crc = google_crc32c.extend(crc, data)
                    if offset + len(data) == copy.size_bytes and crc != copy.crc32c:
                        raise BackupDamaged(f"{path}: checksum")
                    yield BackupChunk(file=place, offset=offset, data=data, crc32c=google_crc32c.value(data))
                    offset += len(data)
        except OSError as error:
            raise BackupDamaged(f"{path}: {error.strerror}") from error


class StreamWriter:
    """Writes a backup as one stream."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._manifest = BackupManifest()
        self.bytes_written = 0
        target.write(STREAM)

    def kept(self) -> list[BackupFile]:
        """Return nothing: a stream has all."""
        return []

    def begin(self, manifest: BackupManifest) -> None:
        self._manifest = manifest
        self._put(BackupResponse(manifest=manifest).SerializeToString())

    def take(self, chunk: BackupChunk) -> None:
        self._put(BackupResponse(chunk=chunk).SerializeToString())
        self.bytes_written += len(chunk.data)

    def finish(self) -> None:
        self._put(b"")
        self._target.flush()

    def close(self) -> None:
        """Do nothing: the stream is the caller's."""

    def _put(self, frame: bytes) -> None:
        head = len(frame).to_bytes(4, "little") + google_crc32c.value(frame).to_bytes(4, "little")
        self._target.write(head + frame)


def stream_of(source: BinaryIO) -> Iterator[BackupResponse]:
    """Yield the parts of a backup's stream. Raises BackupDamaged: it is none, ends early, or was changed."""
    if source.read(len(STREAM)) != STREAM:
        raise BackupDamaged("the stream is no backup, or one of another format")
    at = len(STREAM)
    while True:
        head = source.read(_FRAME_HEAD_BYTES)
        size = int.from_bytes(head[:4], "little")
        if len(head) < _FRAME_HEAD_BYTES or size > FRAME_BYTES_MAX:
            raise BackupDamaged(f"the stream ends, or is damaged, at byte {at}")
        frame = source.read(size)
        if len(frame) < size or google_crc32c.value(frame).to_bytes(4, "little") != head[4:]:
            raise BackupDamaged(f"the stream ends, or is damaged, at byte {at}")
        if not frame:
            return
        try:
            yield BackupResponse.FromString(frame)
        except DecodeError as error:
            raise BackupDamaged(f"the stream is damaged at byte {at}") from error
        at += _FRAME_HEAD_BYTES + size
