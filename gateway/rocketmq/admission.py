"""Admission: how many calls, polls, streams and bytes of what is sent there are at once."""

from __future__ import annotations

from functools import partial
from typing import Final

from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Limits
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.slots import Slots

SYSTEM_BYTES_MAX: Final = 524_288
"""Of a message's own fields beside body and properties, tag and keys above all; one message always fits."""

PAUSES_MAX: Final = 500
"""Half of what is refused by the gateway and not by gRPC; beyond these a refusal has no pause."""


class Admission:
    """The gateway's limits, and how much of each is in use."""

    def __init__(self, limits: Limits) -> None:
        busy = partial(Refusal, Code.TOO_MANY_REQUESTS)
        self.calls = Slots("calls", limits.calls_max, busy)
        self.polls = Slots("calls of ReceiveMessage", limits.polls_max, busy)
        self.streams = Slots("streams of Telemetry", limits.streams_max, busy)
        self.pauses = Slots("calls that are refused after a pause", PAUSES_MAX, busy)
        one = limits.body_bytes_max + limits.properties_bytes_max + SYSTEM_BYTES_MAX
        self.sent = Slots("bytes of SendMessage", max(limits.sent_bytes_max, one), busy)
