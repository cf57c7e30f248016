"""Comparison of a state's files with its checkpoint, before the state is given and before it is used.

Indices and ready queues are compared with the checksums that the checkpoint has of them. Records are not
read: each is proven by its index unit whenever it is, so a damaged one is known as such wherever it comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.checkpoint import queue_proofs
from tarry.replication.state_machine.ready_queue import UnitsDamaged, scan
from tarry.wheel.delay_log import UNIT_BYTES
from tarry.wheel.far_segment import FAR_UNIT_BYTES, segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.index_checksum import checksum


@dataclass(slots=True)
class StateDamage:
    """Damaged parts of a state."""

    hours: list[int] = field(default_factory=list)  # by their indices
    segments: list[int] = field(default_factory=list)  # of the far log, likewise
    queues: list[UnitsDamaged] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.hours or self.segments or self.queues)

    def __str__(self) -> str:
        folders = [*map(folder_name, self.hours), *map(segment_name, self.segments)]
        return "; ".join([*(f"hours/{name}/delay.index" for name in folders), *map(str, self.queues)])


def damage_in(root: Path, written: bytes) -> StateDamage:
    """Read the indices and ready queues of a state folder, of a Checkpoint that was written.

    Blocks; raises OSError, and DecodeError, QueueDamaged where the checkpoint is none.
    """
    damage, checkpoint = StateDamage(), log_pb.Checkpoint.FromString(written)
    wheel = log_pb.WheelCheckpoint.FromString(checkpoint.wheel)
    for hour in wheel.hours:
        path = root / "hours" / folder_name(hour.hour) / "delay.index"
        if checksum(path, hour.units * UNIT_BYTES) != hour.index_crc:
            damage.hours.append(hour.hour)
    for segment in wheel.far.segments:
        path = root / "hours" / segment_name(segment.number) / "delay.index"
        if checksum(path, segment.units * FAR_UNIT_BYTES) != segment.index_crc:
            damage.segments.append(segment.number)
    proofs = queue_proofs(checkpoint)
    for queue in checkpoint.queues:
        if queue.deleted:
            continue
        folder, proof = root / "ready" / str(queue.queue), proofs[queue.queue]
        found = [stretch for _, some in scan(folder, queue.first, proof) for stretch in some]
        if found:
            damage.queues.append(UnitsDamaged(queue.queue, queue.topic, found))
    return damage
