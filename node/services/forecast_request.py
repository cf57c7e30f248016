"""Requests of a forecast, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.node.config import Limits
from tarry.node.services import message_filter
from tarry.node.services.message_filter import Filter, invalid_query
from tarry.proto import tarry_query_pb2 as pb
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS, SECOND_MS

MINUTE_MS: Final = 60_000
BUCKETS_MAX: Final = {SECOND_MS: 3_600, MINUTE_MS: 1_440, HOUR_MS: 87_672}
"""By the length of a bucket: an hour of seconds, a day of minutes, ten years of hours."""
_BUCKET_MS: Final = {
    pb.FORECAST_RESOLUTION_UNSPECIFIED: SECOND_MS,
    pb.FORECAST_RESOLUTION_SECOND: SECOND_MS,
    pb.FORECAST_RESOLUTION_MINUTE: MINUTE_MS,
    pb.FORECAST_RESOLUTION_HOUR: HOUR_MS,
}


class Buckets(NamedTuple):
    """Consecutive times of one length."""

    first_ms: int
    bucket_ms: int
    length: int

    @property
    def end_ms(self) -> int:
        """The time behind the last."""
        return self.first_ms + self.bucket_ms * self.length

    def counts(self, due_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many due times, shape (n,), lie in each bucket, shape (length,)."""
        within = due_ms[(due_ms >= self.first_ms) & (due_ms < self.end_ms)]
        return np.bincount((within - self.first_ms) // self.bucket_ms, minlength=self.length)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that has been checked."""

    messages: Filter | None
    """None: all topics."""
    from_ms: int
    bucket_ms: int
    buckets: int
    """0: as many as there may be, of hours as many as have messages."""

    def beginning(self, now_ms: int) -> Buckets:
        """Return the buckets of a forecast that is made now, of hours as many as there may be."""
        first_ms = max(now_ms, self.from_ms) // self.bucket_ms * self.bucket_ms
        return Buckets(first_ms, self.bucket_ms, self.buckets or BUCKETS_MAX[self.bucket_ms])


def checked(request: pb.ForecastRequest, queues: Queues, limits: Limits) -> Asked | Refusal:
    """Return what is asked for, or why it will not do."""
    bucket_ms = _BUCKET_MS.get(request.resolution)
    if bucket_ms is None:
        return invalid_query(
            f"resolution {request.resolution} is not known: ask for seconds, minutes or hours"
        )
    if request.buckets > BUCKETS_MAX[bucket_ms]:
        text = f"{request.buckets} buckets of {bucket_ms} ms, at most {BUCKETS_MAX[bucket_ms]}"
        return invalid_query(f"{text}: ask for fewer, or for longer ones")
    if not 0 <= request.from_ms < message_filter.DUE_MS_MAX - BUCKETS_MAX[HOUR_MS] * HOUR_MS:
        return invalid_query(f"from_ms is {request.from_ms}: give ms since the epoch, or 0 for now")
    if request.tags and not request.topic:
        return invalid_query("tags are counted in one topic only: name it")
    messages: Any = None
    if request.topic:
        of_topic = pb.MessageFilter(topic=request.topic, tags=request.tags)
        messages = message_filter.checked(of_topic, queues, limits)
        if isinstance(messages, Refusal):
            return messages
    return Asked(messages, request.from_ms, bucket_ms, request.buckets)
