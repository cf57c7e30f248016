"""State store: the last checkpoint, in one synced LMDB transaction.

LMDB because a checkpoint is replaced whole or not at all, whatever is pulled
out of the wall in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import google_crc32c
import lmdb

CHECKPOINT_KEY: Final = b"checkpoint"


class CheckpointDamaged(Exception):
    """The stored checkpoint does not match its checksum: restore the node from a peer."""


class StateStore:
    """Holds one checkpoint. ``save`` may be called from a thread, one call at a time."""

    def __init__(self, folder: Path, map_bytes: int = 4 << 30) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(str(folder), map_size=map_bytes, subdir=True, metasync=True, sync=True)

    def save(self, checkpoint: bytes) -> None:
        """Replace the checkpoint and sync."""
        with self._env.begin(write=True) as txn:
            txn.put(CHECKPOINT_KEY, google_crc32c.value(checkpoint).to_bytes(4, "little") + checkpoint)

    def load(self) -> bytes | None:
        """Return the checkpoint, None where there has never been one.

        Raises:
            CheckpointDamaged: it is there, and wrong.
        """
        with self._env.begin() as txn:
            stored = txn.get(CHECKPOINT_KEY)
        if stored is None:
            return None
        if google_crc32c.value(stored[4:]).to_bytes(4, "little") != stored[:4]:
            raise CheckpointDamaged(f"{self._env.path()}: checkpoint does not match its checksum")
        return bytes(stored[4:])

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
