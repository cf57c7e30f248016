"""Folders on the console's own disk that ``tarry console`` was given: what lies in them is not trusted.

Only sub-folders with plain names count, no link is followed, and a file is read up to a bound, so that
neither an address nor what somebody has put there leads anywhere else or holds the console.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""A sub-folder's name."""
LOOKED_MAX: Final = 10_000
"""Entries of a folder that are looked at."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders that the console was given; None: it was not."""

    backups: Path | None = None
    reports: Path | None = None


NONE: Final = Folders()


class Unreadable(Exception):
    """A file is not there, is none, or is too large; the text says so."""


class Missing(Unreadable):
    """A file, or its folder, is not there."""


def is_name(name: str) -> bool:
    """Return whether a sub-folder may be called so."""
    return NAME.fullmatch(name) is not None


def newest(folder: Path, most: int) -> tuple[list[str], int]:
    """Return the names of the sub-folders that were changed last, and how many there are. Raises OSError."""
    found = list[tuple[float, str]]()
    with os.scandir(folder) as entries:
        for entry in islice(entries, LOOKED_MAX):
            if is_name(entry.name) and entry.is_dir(follow_symlinks=False):
                found.append((-entry.stat(follow_symlinks=False).st_mtime, entry.name))
    return [name for _, name in sorted(found)[:most]], len(found)


def newest_with(
    folder: Path, most: int, file: str, bytes_max: int
) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return `newest` with this file of each; None: it cannot be read. Raises OSError."""
    names, count = newest(folder, most)
    found = list[tuple[str, bytes | None]]()
    for name in names:
        try:
            found.append((name, read(folder, name, file, bytes_max)))
        except Unreadable:
            found.append((name, None))
    return found, count


def is_plain(folder: Path, name: str) -> bool:
    """Return whether a sub-folder has only folders and files in it, or is not there yet.

    What writes to it follows links, and removes what it does not know: a link would have it do so elsewhere.
    """
    there = folder / name
    try:
        if not stat.S_ISDIR(there.lstat().st_mode):
            return False
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return all(map(_is_plain, _paths_in(there)))


def _paths_in(folder: Path) -> Iterator[Path]:
    for here, inside, files in os.walk(folder):
        yield from (Path(here, name) for name in (*inside, *files))


def _is_plain(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def read(folder: Path, name: str, file: str, bytes_max: int) -> bytes:
    """Return a file of a sub-folder. Raises Unreadable."""
    if not is_name(name):
        raise Unreadable(f"{name[:64]!r} is no name of a folder here")
    try:
        inside = os.open(folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # not blocking: a pipe that nobody writes to would hold the thread
            at = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
        finally:
            os.close(inside)
    except FileNotFoundError:
        raise Missing(f"there is no {name}/{file}") from None
    except OSError as error:
        raise Unreadable(f"{name}/{file}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(at).st_mode):
            raise Unreadable(f"{name}/{file} is no file")
        with os.fdopen(at, "rb", closefd=False) as opened:
            text = opened.read(bytes_max + 1)
    finally:
        os.close(at)
    if len(text) > bytes_max:
        raise Unreadable(f"{name}/{file} has more than {bytes_max:,} bytes")
    return text
