"""The wheel's part of a checkpoint, to and from what the wheel gives."""

from __future__ import annotations

from dataclasses import asdict

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.state import Cut, HourState, WheelState


def wheel_state(checkpoint: log_pb.Checkpoint) -> WheelState:
    """Return the wheel's state in a checkpoint; of an empty one, the empty wheel's."""
    if not checkpoint.HasField("wheel"):
        return WheelState()
    wheel = checkpoint.wheel
    hours = (
        HourState(
            hour=h.hour,
            log_bytes=h.log_bytes,
            units=h.units,
            index_crc=h.index_crc,
            slots_crc=h.slots_crc if h.HasField("slots_crc") else None,
            pending=h.pending,
            cancelled=h.cancelled,
            overtaken=h.overtaken,
        )
        for h in wheel.hours
    )
    cut = Cut(wheel.cut_due_ms, wheel.cut_global_index)
    return WheelState(tuple(hours), cut, wheel.local_index, wheel.floor_hour, tuple(wheel.topics))


def wheel_checkpoint(state: WheelState) -> log_pb.WheelCheckpoint:
    """Return what a checkpoint holds of the wheel."""
    return log_pb.WheelCheckpoint(
        hours=(log_pb.HourCheckpoint(**asdict(hour)) for hour in state.hours),
        cut_due_ms=state.cut.due_ms,
        cut_global_index=state.cut.global_index,
        local_index=state.local_index,
        floor_hour=state.floor_hour,
        topics=state.topics,
    )
