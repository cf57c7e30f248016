"""What a power loss leaves of a node's state: what was synced, and anything of the rest.

What one has left is on the disk: the next takes nothing of it that was not written anew.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Final

from tarry.replication.snapshot.state_folder import POINTER
from tests.simulation.synced_files import SyncedFiles

OWN_SYNCS: Final = "checkpoint"
"""Of LMDB, which syncs its file itself (see test_synced)."""


def tear(data: Path, synced: SyncedFiles, rng: random.Random) -> None:
    """Of a closed machine in a node's data folder, lose or damage whatever was not synced."""
    _tear_pointer(data, synced, rng)
    for state in sorted(data.glob("state-*")):
        _tear_folder(state, synced, rng)
    synced.note_left(data, *data.glob("state-*"), *data.glob("state-*/**/*"))


def tear_all(folder: Path, synced: SyncedFiles, rng: random.Random) -> None:
    """Of all files below a folder, whose own name stays, lose or damage whatever was not synced."""
    _tear_pointer(folder, synced, rng)
    _tear_folder(folder, synced, rng, kept=True)
    synced.note_left(folder, *folder.rglob("*"))


def _tear_pointer(data: Path, synced: SyncedFiles, rng: random.Random) -> None:
    """Let the pointer be again what it was when its folder was last synced, or not."""
    pointer = data / POINTER
    if not pointer.exists() or pointer.read_bytes() == synced.kept_pointer(data) or rng.random() < 0.5:
        return
    kept = synced.kept_pointer(data)
    if kept is None:
        pointer.unlink()
    else:
        pointer.write_bytes(kept)


def _tear_folder(folder: Path, synced: SyncedFiles, rng: random.Random, *, kept: bool = False) -> None:
    if not kept and not synced.keeps_name(folder) and rng.random() < 0.3:
        shutil.rmtree(folder)
        return
    renamed = synced.undo_renames(folder, rng)
    for path in sorted(folder.iterdir()):
        if path.name == POINTER:  # see _tear_pointer
            continue
        if path.name == OWN_SYNCS and synced.keeps_name(path):
            continue
        if path.is_dir():
            _tear_folder(path, synced, rng)
        elif path.name == "slots":
            _tear_slots(path, rng)
        elif path.name not in renamed and not synced.keeps_name(path) and rng.random() < 0.3:
            path.unlink()
        else:
            _tear_tail(path, synced.kept_bytes(path), rng)


def _tear_tail(path: Path, kept: int, rng: random.Random) -> None:
    size = path.stat().st_size
    if size <= kept:
        return
    end = rng.choice((kept, size, rng.randint(kept, size)))
    os.truncate(path, end)
    with path.open("r+b") as file:
        if end > kept and rng.random() < 0.5:
            at = rng.randrange(kept, end)
            file.seek(at)
            file.write(rng.randbytes(end - at) if rng.random() < 0.5 else bytes(end - at))
        if rng.random() < 0.2:
            file.seek(end)
            file.write(rng.randbytes(rng.randrange(1, 200)))


def _tear_slots(path: Path, rng: random.Random) -> None:
    """Never synced: a checksum in the checkpoint says whether they may be used."""
    kind = rng.random()
    if kind < 0.1:
        path.unlink()
    elif kind < 0.2:
        os.truncate(path, rng.randrange(path.stat().st_size + 1))
    elif kind < 0.5:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(rng.randrange(max(1, size // 4096 + 1)) * 4096)
            file.write(rng.choice((bytes, rng.randbytes))(min(4096, max(0, size - file.tell()))))
