"""Admission: how many calls, polls, streams and bytes of bodies there are at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Limits
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code


class Slots:
    """So many at once; more are refused."""

    def __init__(self, what: str, most: int) -> None:
        self.used = 0
        self._what, self._most = what, most

    @contextmanager
    def taken(self, count: int = 1) -> Iterator[None]:
        """Hold some of them meanwhile. Raises Refusal."""
        if self.used + count > self._most:
            raise Refusal(
                Code.TOO_MANY_REQUESTS, f"the gateway has {self._what}: {self._most:,}, its maximum"
            )
        self.used += count
        try:
            yield
        finally:
            self.used -= count


class Admission:
    """The gateway's limits, and how much of each is in use."""

    def __init__(self, limits: Limits) -> None:
        self.calls = Slots("calls", limits.calls_max)
        self.polls = Slots("calls of ReceiveMessage", limits.polls_max)
        self.streams = Slots("streams of Telemetry", limits.streams_max)
        self.bodies = Slots("bytes of bodies", max(limits.bodies_bytes_max, limits.body_bytes_max))
