"""The wheel's part of a checkpoint, to and from what the wheel gives."""

from __future__ import annotations

from collections.abc import Iterable

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.wheel.state import Cut, FarState, HourState, SegmentState, WheelState


def wheel_state(checkpoint: log_pb.Checkpoint) -> WheelState:
    """Return the wheel's state in a checkpoint; of an empty one, the empty wheel's."""
    if not checkpoint.wheel:
        return WheelState()
    wheel = log_pb.WheelCheckpoint.FromString(checkpoint.wheel)
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
            message_sum=h.message_sum if h.HasField("message_sum") else None,
        )
        for h in wheel.hours
    )
    cut = Cut(wheel.cut_due_ms, wheel.cut_global_index)
    far = _far(wheel.far)
    return WheelState(tuple(hours), cut, wheel.local_index, wheel.floor_hour, tuple(wheel.topics), far)


def _far(far: log_pb.FarCheckpoint) -> FarState:
    segments = (SegmentState(s.number, s.log_bytes, s.units, s.index_crc, s.cancelled) for s in far.segments)
    return FarState(far.first, tuple(segments), far.dropped_hours)


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
        )
        # messages laid end to end are one message: the fields of all
        return b"".join((wheel.SerializeToString(), *self._hours(state.hours)))

    def _hours(self, states: Iterable[HourState]) -> list[bytes]:
        before, self._written = self._written, {}
        for state in states:
            known = before.get(state.hour)
            if known is None or known[0] is not state:
                known = state, _serialized(state)
            self._written[state.hour] = known
        return [hour for _, hour in self._written.values()]


def _far_serialized(far: FarState) -> log_pb.FarCheckpoint:
    segments = [
        log_pb.FarSegmentCheckpoint(
            number=segment.number,
            log_bytes=segment.log_bytes,
            units=segment.units,
            index_crc=segment.index_crc,
            cancelled=segment.cancelled,
        )
        for segment in far.segments
    ]
    return log_pb.FarCheckpoint(first=far.first, segments=segments, dropped_hours=far.dropped_hours)


def _serialized(state: HourState) -> bytes:
    hour = log_pb.HourCheckpoint(
        hour=state.hour,
        log_bytes=state.log_bytes,
        units=state.units,
        index_crc=state.index_crc,
        slots_crc=state.slots_crc,
        pending=state.pending,
        cancelled=state.cancelled,
        overtaken=state.overtaken,
        message_sum=state.message_sum,
    )
    return log_pb.WheelCheckpoint(hours=[hour]).SerializeToString()
