"""The format of a checkpoint, and the store that keeps the last one.

    Checkpoint = wheel's part + one part for each queue, its checksums, each group, each few blocked lanes

A part is a Checkpoint with that queue, group or lanes alone, serialized and kept until something of it
changes.
Laid end to end, parts are one Checkpoint. The store is one synced LMDB transaction, because a checkpoint is
replaced whole or not at all, also when the power goes in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import google_crc32c

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.lmdb_environment import DAMAGE, open_environment
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queue_checksums import QueueProof
from tarry.replication.state_machine.ready_queue import QueueDamaged, ReadyQueue
from tarry.wheel.state import Cut, FarState, HourState, SegmentState, WheelState

S = TypeVar("S", HourState, SegmentState)

CHECKPOINT_KEY: Final = b"checkpoint"


class CheckpointDamaged(Exception):
    """The stored checkpoint does not match its checksum: restore the node from a peer."""


class CheckpointRefused(Exception):
    """The state in memory must not be made durable: restart the process, and the log is replayed."""


class CheckpointStore:
    """Holds one checkpoint. ``save`` may be called from a thread, one call at a time."""

    def __init__(self, folder: Path, map_bytes: int = 4 << 30) -> None:
        """Open the environment. Raises CheckpointDamaged."""
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


def queue_parts(queue: ReadyQueue) -> tuple[bytes, bytes]:
    """Return the queue's part, and its checksums'."""
    return _queue_part(queue), _checksums_part(queue)


def _queue_part(queue: ReadyQueue) -> bytes:
    checkpoint = log_pb.QueueCheckpoint(
        queue=queue.queue,
        topic=queue.topic,
        group=queue.group,
        first=queue.first,
        units=queue.units,
        crc=queue.proof.crc,
        deleted=queue.deleted,
        settings=queue.settings,
        misfires_dropped=queue.misfires_dropped,
        pace_anchor=queue.pace.anchor,
        pace_at_us=queue.pace.at_us,
        pace_catch_up_end=queue.pace.catch_up_end,
        policy=queue.policy,
        letters=queue.letters,
    )
    return log_pb.Checkpoint(queues=[checkpoint]).SerializeToString()


def _checksums_part(queue: ReadyQueue) -> bytes:
    """Return the checksums' part: replicas that began to note them at different times differ in it."""
    if queue.deleted or not queue.units:
        return b""
    proof = log_pb.QueueProof(queue=queue.queue, base=queue.proof.base, crcs=queue.proof.serialize())
    return log_pb.Checkpoint(queue_proofs=[proof]).SerializeToString()


def queue_proofs(checkpoint: log_pb.Checkpoint) -> dict[int, QueueProof]:
    """Return the checksums of each queue in a checkpoint, up to its units, by number. Raises QueueDamaged."""
    noted = {proof.queue: proof for proof in checkpoint.queue_proofs}
    return {queue.queue: _queue_proof(queue, noted.get(queue.queue)) for queue in checkpoint.queues}


def _queue_proof(queue: log_pb.QueueCheckpoint, noted: log_pb.QueueProof | None) -> QueueProof:
    try:
        if noted is None:  # of an earlier version: from here on
            return QueueProof(queue.units, queue.crc)
        return QueueProof(queue.units, queue.crc, noted.base, noted.crcs)
    except ValueError as error:
        raise QueueDamaged(f"ready queue {queue.queue}: {error}") from error


def group_part(group: str, queue: int, acknowledged: Acknowledgements) -> bytes:
    """Return the part of a group in a queue."""
    checkpoint = log_pb.GroupCheckpoint(
        group=group, queue=queue, floor=acknowledged.floor, acked=acknowledged.serialize()
    )
    return log_pb.Checkpoint(groups=[checkpoint]).SerializeToString()


def wheel_state(checkpoint: log_pb.Checkpoint) -> WheelState:
    """Return the wheel's state in a checkpoint; of an empty one, the empty wheel's."""
    if not checkpoint.wheel:
        return WheelState()
    wheel = log_pb.WheelCheckpoint.FromString(checkpoint.wheel)
    hours = tuple(_state(HourState, hour) for hour in wheel.hours)
    segments = tuple(_state(SegmentState, segment) for segment in wheel.far.segments)
    cut = Cut(wheel.cut_due_ms, wheel.cut_global_index)
    far = FarState(wheel.far.first, segments, wheel.far.dropped_hours)
    moved = tuple((some.ids, some.places) for some in wheel.moved)
    gaps = tuple((gap.size, gap.hours, gap.units, gap.floor_hour) for gap in wheel.id_gaps)
    topics = tuple(wheel.topics)
    return WheelState(hours, cut, wheel.local_index, wheel.floor_hour, topics, far, moved=moved, id_gaps=gaps)


def _state(kind: type[S], part: log_pb.HourCheckpoint | log_pb.FarSegmentCheckpoint) -> S:
    """Return the value of a part, whose fields have the same names; None: an optional one that is not set."""
    described = part.DESCRIPTOR.fields_by_name
    values: dict[str, Any] = {
        name: None if described[name].has_presence and not part.HasField(name) else getattr(part, name)
        for name in (field.name for field in fields(kind))
    }
    return kind(**values)


def _values(state: HourState | SegmentState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


class WheelCheckpoints:
    """Writes the wheel's part; an hour that is as it was the last time is not built anew."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[HourState, bytes]] = {}

    def serialized(self, state: WheelState) -> bytes:
        """Return a WheelCheckpoint, serialized. For any thread, one call at a time."""
        wheel = log_pb.WheelCheckpoint(
            cut_due_ms=state.cut.due_ms,
            cut_global_index=state.cut.global_index,
            local_index=state.local_index,
            floor_hour=state.floor_hour,
            topics=state.topics,
            far=_far_serialized(state.far),
            id_gaps=[_gap_part(*gap) for gap in state.id_gaps],
        )
        moved = [_moved_part(bytes(ids), bytes(places)) for ids, places in state.moved]
        # messages laid end to end are one message: the fields of all
        return b"".join((wheel.SerializeToString(), *self._hours(state.hours), *moved))

    def _hours(self, states: Iterable[HourState]) -> list[bytes]:
        before, self._written = self._written, {}
        for state in states:
            known = before.get(state.hour)
            if known is None or known[0] is not state:
                known = state, _hour_part(state)
            self._written[state.hour] = known
        return [hour for _, hour in self._written.values()]


def _far_serialized(far: FarState) -> log_pb.FarCheckpoint:
    segments = [log_pb.FarSegmentCheckpoint(**_values(segment)) for segment in far.segments]
    return log_pb.FarCheckpoint(first=far.first, segments=segments, dropped_hours=far.dropped_hours)


def _gap_part(size: int, hours: bytes, units: bytes, floor_hour: int) -> log_pb.IdGap:
    return log_pb.IdGap(size=size, hours=hours, units=units, floor_hour=floor_hour)


def _moved_part(ids: bytes, places: bytes) -> bytes:
    moved = log_pb.MovedMessages(ids=ids, places=places)
    return log_pb.WheelCheckpoint(moved=[moved]).SerializeToString()


def _hour_part(state: HourState) -> bytes:
    return log_pb.WheelCheckpoint(hours=[log_pb.HourCheckpoint(**_values(state))]).SerializeToString()


def checkpoint_in(
    folder: Path, store: CheckpointStore, *, from_start: bool, applies: int
) -> log_pb.Checkpoint:
    """Return the checkpoint of a state folder; an empty one where there has never been one.

    ``from_start``: the log that is replayed on it is there from its first entry.
    ``applies``: the highest level that this node can apply.
    Raises CheckpointDamaged, AnotherVersion.
    """
    stored = store.load()
    if stored is None:
        if not from_start and _holds_something(folder):
            raise CheckpointDamaged(
                f"{folder}: there are messages, but no checkpoint, nor a log from its start"
            )
        return log_pb.Checkpoint(apply_version=levels.checkpoint_version(levels.FIRST, far=False))
    checkpoint = log_pb.Checkpoint.FromString(stored)
    levels.demand(f"the state in {folder}", levels.of_checkpoint(checkpoint.apply_version), applies)
    return checkpoint


def _holds_something(folder: Path) -> bool:
    return any(True for name in ("hours", "ready") for _ in (folder / name).glob("*"))
