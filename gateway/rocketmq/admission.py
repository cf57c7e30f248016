"""Admission: how many calls, polls, streams and bytes of bodies there are at once."""

from __future__ import annotations

from functools import partial

from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Limits
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.slots import Slots


class Admission:
    """The gateway's limits, and how much of each is in use."""

    def __init__(self, limits: Limits) -> None:
        busy = partial(Refusal, Code.TOO_MANY_REQUESTS)
        self.calls = Slots("calls", limits.calls_max, busy)
        self.polls = Slots("calls of ReceiveMessage", limits.polls_max, busy)
        self.streams = Slots("streams of Telemetry", limits.streams_max, busy)
        self.bodies = Slots("bytes of bodies", max(limits.bodies_bytes_max, limits.body_bytes_max), busy)
