"""State store: the last checkpoint, in one synced LMDB transaction.

LMDB because a checkpoint is replaced whole or not at all, whatever is pulled
out of the wall in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import google_crc32c

from tarry.replication.lmdb_environment import DAMAGE, open_environment

CHECKPOINT_KEY: Final = b"checkpoint"


class CheckpointDamaged(Exception):
    """The stored checkpoint does not match its checksum: restore the node from a peer."""


class CheckpointRefused(Exception):
    """What this process holds in memory must not be made durable: restart it, and the log is replayed."""


class StateStore:
    """Holds one checkpoint. ``save`` may be called from a thread, one call at a time."""

    def __init__(self, folder: Path, map_bytes: int = 4 << 30) -> None:
        """Raises CheckpointDamaged."""
        try:
            self._env = open_environment(folder, map_size=map_bytes)
        except DAMAGE as error:
            raise CheckpointDamaged(f"{folder}: {error}") from error

    def save(self, checkpoint: bytes) -> None:
        """Replace the checkpoint and sync."""
        with self._env.begin(write=True) as txn:
            txn.put(CHECKPOINT_KEY, google_crc32c.value(checkpoint).to_bytes(4, "little") + checkpoint)

    def load(self) -> bytes | None:
        """Return the checkpoint, None where there has never been one.

        Raises:
            CheckpointDamaged: it is there, and wrong.
        """
        try:
            with self._env.begin() as txn:
                stored = txn.get(CHECKPOINT_KEY)
        except DAMAGE as error:
            raise CheckpointDamaged(f"{self._env.path()}: {error}") from error
        if stored is None:
            return None
        if google_crc32c.value(stored[4:]).to_bytes(4, "little") != stored[:4]:
            raise CheckpointDamaged(f"{self._env.path()}: checkpoint does not match its checksum")
        return bytes(stored[4:])

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
