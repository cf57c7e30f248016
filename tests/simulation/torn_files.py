"""What a power loss leaves of a machine's files: all that its checkpoint counts, and anything of the rest."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.ready_queue import SEGMENT_UNITS
from tarry.replication.ready_queue import UNIT_BYTES as READY_UNIT_BYTES
from tarry.replication.state_folder import StateFolder
from tarry.replication.state_store import StateStore
from tarry.replication.wheel_checkpoint import wheel_state
from tarry.wheel.delay_log import UNIT_BYTES as INDEX_UNIT_BYTES
from tarry.wheel.hour_partition import folder_name


def tear(data: Path, rng: random.Random) -> None:
    """Of a closed machine in a node's data folder, lose or damage whatever was not synced."""
    folder = StateFolder(data).path
    checkpoint = durable(folder)
    lengths = _lengths(folder, checkpoint)
    for name in ("hours", "ready"):
        for inner in sorted((folder / name).iterdir()) if (folder / name).exists() else ():
            _tear_folder(inner, lengths, rng)


def durable(folder: Path) -> log_pb.Checkpoint:
    """Return the checkpoint in a state folder that no machine has open; an empty one where there is none."""
    store = StateStore(folder / "checkpoint")
    stored = store.load()
    store.close()
    return log_pb.Checkpoint.FromString(stored) if stored else log_pb.Checkpoint()


def _lengths(folder: Path, checkpoint: log_pb.Checkpoint) -> dict[Path, int]:
    lengths: dict[Path, int] = {}
    for hour in wheel_state(checkpoint).hours:
        path = folder / "hours" / folder_name(hour.hour)
        lengths[path / "delay.log"] = hour.log_bytes
        lengths[path / "delay.index"] = hour.units * INDEX_UNIT_BYTES
    for queue in checkpoint.queues:
        for segment in () if queue.deleted else range(-(-queue.units // SEGMENT_UNITS)):
            units = min(SEGMENT_UNITS, queue.units - segment * SEGMENT_UNITS)
            path = folder / "ready" / str(queue.queue) / f"{segment * SEGMENT_UNITS:016x}.ready"
            lengths[path] = units * READY_UNIT_BYTES
    return lengths


def _tear_folder(folder: Path, lengths: dict[Path, int], rng: random.Random) -> None:
    known = any(path in lengths for path in folder.iterdir())
    if not known and rng.random() < 0.3:
        shutil.rmtree(folder)
        return
    for path in sorted(folder.iterdir()):
        if path.name == "slots":
            _tear_slots(path, rng)
        else:
            _tear_tail(path, lengths.get(path, 0), rng)


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
