"""What a replica starts from: its last checkpoint, or nothing, if its log tells everything anew."""

from __future__ import annotations

from pathlib import Path

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.command import APPLY_VERSION, FAR_LOG_VERSION, AnotherVersion
from tarry.replication.state_store import CheckpointDamaged, StateStore


def checkpoint_in(folder: Path, store: StateStore, *, from_start: bool) -> log_pb.Checkpoint:
    """Return the checkpoint of a state folder; an empty one where there has never been one.

    ``from_start``: the log that is replayed on it is there from its first entry.
    Raises CheckpointDamaged, AnotherVersion.
    """
    stored = store.load()
    if stored is None:
        if not from_start and _holds_something(folder):
            raise CheckpointDamaged(
                f"{folder}: there are messages, but no checkpoint, nor a log from its start"
            )
        return log_pb.Checkpoint(apply_version=APPLY_VERSION)
    checkpoint = log_pb.Checkpoint.FromString(stored)
    if checkpoint.apply_version not in (APPLY_VERSION, FAR_LOG_VERSION):
        raise AnotherVersion(
            f"{folder} was written by a tarry of apply version {checkpoint.apply_version}, this one reads "
            f"{APPLY_VERSION} and {FAR_LOG_VERSION}: start that one, or, where the other nodes run this one, "
            "use --rejoin"
        )
    return checkpoint


def _holds_something(folder: Path) -> bool:
    return any(True for name in ("hours", "ready") for _ in (folder / name).glob("*"))
