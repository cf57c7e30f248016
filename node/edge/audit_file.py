"""A file of lines, each durable once it is written, that is followed by another when it is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from tarry.proto.files import sync_path

OWN_MODE: Final = 0o600


class AuditFile:
    """Holds nothing open between two writes: a file that was moved or removed is made anew."""

    def __init__(self, path: Path, file_bytes_max: int, files_max: int) -> None:
        """Take `files_max`, this one and the older ones, `<name>.1` and so on; the oldest goes."""
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max

    def append(self, lines: bytes) -> None:
        """Append whole lines, and sync them. Raises OSError: then none of them is there."""
        with contextlib.suppress(FileNotFoundError):
            size = self._path.stat().st_size
            if size and size + len(lines) > self._file_bytes_max:
                self._rotate()
        at = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, OWN_MODE)
        try:
            size = os.fstat(at).st_size
            if size and os.pread(at, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # the end of a line that a crash has cut
            try:
                while lines:
                    lines = lines[os.write(at, lines) :]
                os.fsync(at)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(at, size)
                raise
        finally:
            os.close(at)
        if not size:
            sync_path(self._path.parent)

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._named(number - 1).replace(self._named(number))

    def _named(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
