"""A forecast: how many pending messages are due when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

from tarry.client.errors import InvalidQuery
from tarry.client.integers import INT64_MAX, whole
from tarry.client.queries.names import named
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason

Resolution: TypeAlias = Literal["second", "minute", "hour"]
BUCKET_MS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000}


@dataclass(frozen=True, slots=True)
class Forecast:
    """Pending messages by their due times, exact as of one entry of the log, and what follows from them."""

    first_ms: int
    """Time at which the first bucket begins: a whole second, minute or hour, UTC."""
    bucket_ms: int
    counts: tuple[int, ...]
    """Messages due in each bucket; in the present one also what of it is overdue."""
    pending: int
    """Messages of the topic, or of all topics, whenever they are due and whatever their tags."""
    overdue: int
    """Of those asked for, due by ``now_ms``, also before the first bucket."""
    oldest_overdue_ms: int
    """Duration since the first of these was due; without a topic at most an hour too long."""
    now_ms: int
    """Cluster time."""
    applied_index: int
    """The entry."""
    released_per_s: float
    """Messages that the cluster releases a second while there is more to release, as the answering node has
    seen it."""
    released_measured: bool
    """False: that node has seen no full release since its start, and the rate is assumed."""
    lateness_ms: tuple[int, ...]
    """Predicted lateness of each bucket's last message, or of one due at its end, all topics together; empty
    where the first bucket is not the present one."""
    upper_bound: bool
    """Too many messages may have the tags to read them all: fewer may have them."""
    node: str
    """That answered."""
    heard_ms_ago: int
    """Duration since that node heard the leader, so that its state may be that old; 0: it leads, or knows of
    no leader."""
    leads: bool
    """That node leads."""

    @property
    def end_ms(self) -> int:
        """The time behind the last bucket."""
        return self.first_ms + self.bucket_ms * len(self.counts)


class ForecastOptions(TypedDict, total=False):
    """Options of a forecast."""

    topic: str
    """Of all topics, with the retries of groups, where none is given; then the right to operate is needed."""
    tags: Iterable[str]
    """Any of these; only with a topic."""
    by: Resolution
    """Length of a bucket, a second if not said otherwise."""
    from_ms: int
    """A time in the first bucket; now if it is not given, or past."""
    buckets: int
    """Number of buckets: up to 3,600 seconds, 1,440 minutes or 87,672 hours. So many if not said otherwise;
    of hours up to the last that has messages."""
    linearizable: bool
    """As of after the call began: the leader answers."""


def request_of(options: ForecastOptions) -> pb.ForecastRequest:
    """Return the request. Raises InvalidQuery."""
    by = options.get("by", "second")
    if by not in BUCKET_MS:
        raise InvalidQuery(Reason.QUERY_INVALID, f"by is one of {', '.join(BUCKET_MS)}, not {by!r}")
    from_ms = whole("from_ms", options.get("from_ms", 0), InvalidQuery, Reason.QUERY_INVALID, INT64_MAX)
    buckets = whole("buckets", options.get("buckets", 0), InvalidQuery, Reason.QUERY_INVALID)
    return pb.ForecastRequest(
        topic=options.get("topic", ""),
        tags=named("tags", options.get("tags", ()), InvalidQuery),
        resolution=f"FORECAST_RESOLUTION_{by.upper()}",
        from_ms=from_ms,
        buckets=buckets,
        linearizable=options.get("linearizable", False),
    )


def forecast_of(response: pb.ForecastResponse) -> Forecast:
    """Return the answer as a value."""
    return Forecast(
        first_ms=response.first_ms,
        bucket_ms=response.bucket_ms,
        counts=tuple(response.counts),
        pending=response.pending,
        overdue=response.overdue,
        oldest_overdue_ms=response.oldest_overdue_ms,
        now_ms=response.now_ms,
        applied_index=response.applied_index,
        released_per_s=response.released_per_s,
        released_measured=response.released_measured,
        lateness_ms=tuple(response.lateness_ms),
        upper_bound=response.upper_bound,
        node=response.node,
        heard_ms_ago=response.heard_ms_ago,
        leads=response.leads,
    )
