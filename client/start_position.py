"""Position at which a group begins, or to which it is moved."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tarry.client.errors import InvalidSetting
from tarry.client.integers import INT64_MAX, whole
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.reasons import Reason

Start: TypeAlias = Literal["earliest", "latest"] | int
"""All that the topic still holds, only what is released from now on, or from a time (ms) on."""


def group_start(start: Start) -> consumer_pb.GroupStart:
    """Return the start as it is sent. Raises InvalidSetting for anything else."""
    if start == "earliest":
        return consumer_pb.GroupStart(at=consumer_pb.START_AT_EARLIEST)
    if start == "latest":
        return consumer_pb.GroupStart(at=consumer_pb.START_AT_LATEST)
    if isinstance(start, int):
        time_ms = whole("the time", start, InvalidSetting, Reason.SEEK_INVALID, INT64_MAX, -INT64_MAX)
        return consumer_pb.GroupStart(at=consumer_pb.START_AT_TIME, time_ms=time_ms)
    raise InvalidSetting(
        Reason.SEEK_INVALID, f"a start is 'earliest', 'latest' or a time in ms, not {start!r}"
    )
