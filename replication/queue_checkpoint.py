"""The queues' and groups' parts of a checkpoint.

A part is a Checkpoint with that queue or group alone, serialized: laid end to end, parts are one Checkpoint.
"""

from __future__ import annotations

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.groups import Acknowledged
from tarry.replication.queue_proof import QueueProof
from tarry.replication.ready_queue import QueueDamaged, QueueState, ReadyQueue


def queue_parts(queue: ReadyQueue) -> tuple[bytes, bytes]:
    """Return the queue's part, and its checksums'."""
    return _serialized(queue), _proof(queue)


def _serialized(queue: ReadyQueue) -> bytes:
    state = queue.capture()
    checkpoint = log_pb.QueueCheckpoint(
        queue=queue.queue,
        topic=queue.topic,
        group=queue.group,
        first=state.first,
        units=state.units,
        crc=state.proof.crc,
        deleted=queue.deleted,
        settings=queue.settings,
        misfires_dropped=queue.misfires_dropped,
        pace_anchor=queue.pace.anchor,
        pace_at_us=queue.pace.at_us,
        pace_catch_up_end=queue.pace.catch_up_end,
    )
    return log_pb.Checkpoint(queues=[checkpoint]).SerializeToString()


def _proof(queue: ReadyQueue) -> bytes:
    """Return the checksums' part: replicas that began to note them at different times differ in it."""
    if queue.deleted or not queue.units:
        return b""
    proof = log_pb.QueueProof(queue=queue.queue, base=queue.proof.base, crcs=queue.proof.serialize())
    return log_pb.Checkpoint(queue_proofs=[proof]).SerializeToString()


def queue_states(checkpoint: log_pb.Checkpoint) -> dict[int, QueueState]:
    """Return what a checkpoint holds of each queue, by number. Raises QueueDamaged."""
    proofs = {proof.queue: proof for proof in checkpoint.queue_proofs}
    return {queue.queue: _state(queue, proofs.get(queue.queue)) for queue in checkpoint.queues}


def _state(queue: log_pb.QueueCheckpoint, noted: log_pb.QueueProof | None) -> QueueState:
    try:
        proof = (
            QueueProof(queue.units, queue.crc)  # of an earlier version: from here on
            if noted is None
            else QueueProof(queue.units, queue.crc, noted.base, noted.crcs)
        )
    except ValueError as error:
        raise QueueDamaged(f"ready queue {queue.queue}: {error}") from error
    return QueueState(queue.first, queue.units, proof)


def group_part(group: str, queue: int, acknowledged: Acknowledged) -> bytes:
    """Return the part of a group in a queue."""
    checkpoint = log_pb.GroupCheckpoint(
        group=group, queue=queue, floor=acknowledged.floor, acked=acknowledged.serialize()
    )
    return log_pb.Checkpoint(groups=[checkpoint]).SerializeToString()
