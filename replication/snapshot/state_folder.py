"""Folder of a replica's state, and its replacement by another in a single step.

data/current         names the folder in use; replaced by rename, so always one or the other
data/state-3/        hours/  ready/  checkpoint/
data/state-4/        arriving from a peer; in use once `current` names it
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from tarry.proto.files import make_folder, replace_file, sync_path

POINTER: Final = "current"
NAME: Final = re.compile(r"state-(\d+)")
REMOVALS: Final = 3
"""Attempts to remove a folder: a thread that still writes into it may make a file between two."""


class PointerDamaged(Exception):
    """`current` names no state folder: the replica's data cannot be trusted."""


class StateFolder:
    """The folder in use, and the side folder that may follow it."""

    def __init__(self, root: Path) -> None:
        """Find the folder in use; what an interrupted arrival left over is removed. Raises PointerDamaged."""
        self._root = root
        make_folder(root)
        pointer = root / POINTER
        others = {path.name for path in root.iterdir() if NAME.fullmatch(path.name)} - {"state-1"}
        if others and not pointer.exists():
            raise PointerDamaged(
                f"{pointer} is missing, and there is more than the first state: {sorted(others)}"
            )
        self._number = _named_in(pointer) if pointer.exists() else 1
        if not self.path.exists() and any(NAME.fullmatch(path.name) for path in root.iterdir()):
            raise PointerDamaged(f"{pointer} names {self.path.name}, which is not there, and others are")
        self.path.mkdir(exist_ok=True)
        if not pointer.exists():
            self._point()
        self.remove_others()

    @property
    def path(self) -> Path:
        """The folder in use."""
        return self._root / f"state-{self._number}"

    @property
    def side(self) -> Path:
        """Side folder, into which a state arrives."""
        return self._root / f"state-{self._number + 1}"

    def promote(self) -> None:
        """Sync the side folder and put it to use, atomically also under a power loss."""
        for path in sorted(self.side.rglob("*")):
            sync_path(path)
        sync_path(self.side)
        sync_path(self._root)  # its name, before `current` has it
        self._number += 1
        self._point()

    def _point(self) -> None:
        replace_file(self._root / POINTER, self.path.name.encode())

    def remove_others(self) -> None:
        """Remove all folders but the one in use; no file in them may be mapped. Raises OSError."""
        for path in list(self._root.iterdir()):
            if NAME.fullmatch(path.name) and path != self.path:
                _remove(path)


def _remove(path: Path) -> None:
    for _ in range(REMOVALS - 1):
        with suppress(OSError):
            return shutil.rmtree(path)
    return shutil.rmtree(path)


def _named_in(pointer: Path) -> int:
    name = NAME.fullmatch(pointer.read_bytes().decode(errors="replace"))
    if name is None:
        raise PointerDamaged(f"{pointer} names no state folder")
    return int(name[1])
