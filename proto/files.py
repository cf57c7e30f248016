"""Folders and files that survive a power loss: fsync of a path, durable folders, atomic replacement."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that none of their names goes with the power."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Force a file or folder to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Give a file new content, atomically also under a power loss.

    Raises OSError: the file has its old content, or the new one, which may go with the power.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(content)
        sync_path(fresh)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync_path(path.parent)
