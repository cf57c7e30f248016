"""What of a world's files has been synced: the bytes of each, and which names are in each folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tarry.replication.snapshot.state_folder import POINTER
from tarry.wheel import durability


class SyncedFiles:
    """Listens to this process's syncs, from ``watch`` to ``unwatch``."""

    def __init__(self, world: Path) -> None:
        """``world``: a folder that has one for each node, each on a disk of its own."""
        self._world = world.resolve()
        self._bytes: dict[Path, tuple[int, int]] = {}  # inode, and how many from the beginning
        self._names: dict[Path, dict[str, int]] = {}  # inode by name
        self._pointers: dict[Path, bytes] = {}  # of the folder that it is in
        self._before: tuple[Any, ...] = ()

    def watch(self) -> None:
        """Listen."""
        fsync, truncate, syncfs = self._before = os.fsync, os.truncate, durability._syncfs

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

        os.fsync, os.truncate = heard_fsync, heard_truncate  # type: ignore[assignment]
        durability._syncfs = None if syncfs is None else heard_syncfs  # type: ignore[misc]

    def unwatch(self) -> None:
        """Listen no more."""
        if self._before:
            os.fsync, os.truncate, durability._syncfs = self._before  # type: ignore[misc]
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
        self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        if POINTER in self._names[path]:
            self._pointers[path] = (path / POINTER).read_bytes()
