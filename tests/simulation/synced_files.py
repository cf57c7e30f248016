"""What of a world's files has been synced: the bytes of each, and which names are in each folder."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

from tarry.replication.snapshot.state_folder import POINTER
from tarry.wheel import durability


class Rename(NamedTuple):
    """Of a file within a folder."""

    source: str
    target: str
    replaced: bytes | None
    """What was at the target."""
    kept_bytes: int
    """How much of that had been synced."""
    kept_name: bool
    """Whether its folder had been synced with it."""


class SyncedFiles:
    """Listens to this process's syncs, from ``watch`` to ``unwatch``."""

    def __init__(self, world: Path) -> None:
        """``world``: a folder that has one for each node, each on a disk of its own."""
        self._world = world.resolve()
        self._bytes: dict[Path, tuple[int, int]] = {}  # inode, and how many from the beginning
        self._names: dict[Path, dict[str, int]] = {}  # inode by name
        self._pointers: dict[Path, bytes] = {}  # of the folder that it is in
        self._renames: dict[Path, list[Rename]] = {}  # since the folder was synced
        self._before: tuple[Any, ...] = ()

    def watch(self) -> None:
        """Listen."""
        fsync, truncate, syncfs, rename, replace = self._before = (
            os.fsync, os.truncate, durability._syncfs, os.rename, os.replace
        )  # fmt: skip

        def heard_fsync(fd: int) -> None:
            fsync(fd)
            self._note(Path(f"/proc/self/fd/{fd}").readlink())

        def heard_truncate(path: Any, length: int) -> None:
            truncate(path, length)
            inode, size = self._bytes.get(Path(path).resolve(), (0, 0)) if isinstance(path, Path) else (0, 0)
            if inode:
                self._bytes[path.resolve()] = inode, min(size, length)

        def heard_syncfs(fd: int) -> int:
            assert syncfs is not None
            done = syncfs(fd)
            disk = self._disk_of(Path(f"/proc/self/fd/{fd}").readlink())
            for path in [disk, *disk.rglob("*")] if disk is not None and done == 0 else ():
                self._note(path)
            return done

        def heard_rename(source: Any, target: Any, **more: Any) -> None:
            replaced = self._replaced(Path(target))
            rename(source, target, **more)
            self._move(Path(source).resolve(), Path(target).resolve(), replaced)

        def heard_replace(source: Any, target: Any, **more: Any) -> None:
            replaced = self._replaced(Path(target))
            replace(source, target, **more)
            self._move(Path(source).resolve(), Path(target).resolve(), replaced)

        os.rename, os.replace = heard_rename, heard_replace
        os.fsync, os.truncate = heard_fsync, heard_truncate  # type: ignore[assignment]
        durability._syncfs = None if syncfs is None else heard_syncfs  # type: ignore[misc]

    def unwatch(self) -> None:
        """Listen no more."""
        if self._before:
            os.fsync, os.truncate, durability._syncfs, os.rename, os.replace = self._before  # type: ignore[misc]
            self._before = ()

    def kept_bytes(self, path: Path) -> int:
        """Return how much of a file a power loss leaves for certain."""
        path = path.resolve()
        inode, size = self._bytes.get(path, (0, 0))
        return min(size, path.stat().st_size) if path.stat().st_ino == inode else 0

    def keeps_name(self, path: Path) -> bool:
        """Return whether a file or folder is there for certain after a power loss."""
        path = path.resolve()
        return self._names.get(path.parent, {}).get(path.name) == path.stat().st_ino

    def kept_pointer(self, data: Path) -> bytes | None:
        """Return which state folder a node's data names for certain; None: there may be no name."""
        return self._pointers.get(data.resolve())

    def undo_renames(self, folder: Path, rng: random.Random) -> set[str]:
        """Of renames in a folder that was not synced since, undo the last; return names that a rename leaves.

        They are there for certain: of the new file or, where that name was synced before, of the old one.
        """
        folder = folder.resolve()
        renames = self._renames.pop(folder, [])
        done = rng.randrange(len(renames) + 1)
        for rename in reversed(renames[done:]):
            source, target = folder / rename.source, folder / rename.target
            if target.exists():
                self._before[3](target, source)
                if target in self._bytes:
                    self._bytes[source] = self._bytes.pop(target)
                if rename.replaced is not None:
                    target.write_bytes(rename.replaced)
                    self._bytes[target] = target.stat().st_ino, rename.kept_bytes
        left = {rename.target for rename in renames[:done]}
        return left | {rename.target for rename in renames[done:] if rename.kept_name}

    def note_left(self, *places: Path) -> None:
        """Note what a loss of power has left: it is on the disk, whatever had been synced before."""
        for path in places:
            if path.exists():
                self._note(path.resolve())

    def _replaced(self, target: Path) -> tuple[bytes | None, int, bool]:
        """Return what is at a place, how much of it was synced, and whether its name was."""
        if self._disk_of(target.resolve()) is None or not target.is_file():
            return None, 0, False
        return target.read_bytes(), self.kept_bytes(target), self.keeps_name(target)

    def _move(self, source: Path, target: Path, replaced: tuple[bytes | None, int, bool]) -> None:
        if self._disk_of(target) is None or target.name == POINTER:
            return
        if source in self._bytes:
            self._bytes[target] = self._bytes.pop(source)
        self._renames.setdefault(target.parent, []).append(Rename(source.name, target.name, *replaced))

    def _disk_of(self, path: Path) -> Path | None:
        if not path.is_relative_to(self._world) or path == self._world:
            return None
        return self._world / path.relative_to(self._world).parts[0]

    def _note(self, path: Path) -> None:
        if self._disk_of(path) is None:
            return
        if not path.is_dir():
            self._bytes[path] = path.stat().st_ino, path.stat().st_size
            return
        self._renames.pop(path, None)
        self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        if POINTER in self._names[path]:
            self._pointers[path] = (path / POINTER).read_bytes()
