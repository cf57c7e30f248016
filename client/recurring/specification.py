"""Specifications of schedules that recur: when they fire, and the message of each fire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypedDict, TypeVar

from tarry.client.errors import InvalidSchedule
from tarry.client.integers import INT64_MAX, UINT32_MAX, whole
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record

UTC: Final = "UTC"

PolicyT = TypeVar("PolicyT", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Interval:
    """A fire every so many milliseconds: at the schedule's ``start_ms``, one interval later, and so on.

    Without a ``start_ms`` the first is one interval after the schedule's creation.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Cron:
    """Fires as a cron expression names them, in a time zone."""

    expression: str
    """Five fields, or six of which the first is seconds, as Debian's cron has them."""
    zone: str = UTC
    """IANA name of the zone in which the expression is read."""


Timing: TypeAlias = Interval | Cron


class Overlap(StrEnum):
    """Policy for a fire that comes while the last one's message is not settled by all groups of its topic."""

    ALLOW = "allow"
    """It fires."""
    SKIP = "skip"
    """It does not fire, and is counted."""
    QUEUE = "queue"
    """It waits until the last one is settled, then fires; of those that wait already, one."""

    @classmethod
    def of(cls, number: int) -> Overlap:
        """Return the policy of a number in the protocol; what this client does not know counts as allow."""
        return _OVERLAPS.get(number, cls.ALLOW)


class Missed(StrEnum):
    """Policy for fires that came while the cluster was down."""

    LAST = "last"
    """The last of them fires, the others are counted."""
    ALL = "all"
    """Each of them fires."""
    NONE = "none"
    """None fires; they are counted."""

    @classmethod
    def of(cls, number: int) -> Missed:
        """Return the policy of a number in the protocol; what this client does not know counts as last."""
        return _MISSED.get(number, cls.LAST)


_OVERLAPS: Final = {pb.OverlapPolicy.Value(f"OVERLAP_POLICY_{one.name}"): one for one in Overlap}
_MISSED: Final = {pb.MissedPolicy.Value(f"MISSED_POLICY_{one.name}"): one for one in Missed}


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule, and of the message of each of its fires."""

    start_ms: int
    """No fire before; 0: the schedule's creation."""
    end_ms: int
    """No fire then or later; 0: it never ends."""
    jitter_ms: int
    """Each message is due up to so much later than its fire, by chance, and before the next fire."""
    overlap: Overlap
    missed: Missed
    missed_after_ms: int
    """A fire that the cluster comes to later than this is missed; earlier, it fires late; 0: a minute."""
    tags: Sequence[str]
    keys: Sequence[str]
    properties: Mapping[str, str]
    ordering_key: str


@dataclass(frozen=True, slots=True)
class Specification:
    """Specification of a schedule; times are milliseconds since the epoch, UTC."""

    topic: str
    timing: Timing
    body: bytes = b""
    """Empty in a listing."""
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    ordering_key: str = ""
    start_ms: int = 0
    """0: the schedule's creation."""
    end_ms: int = 0
    """0: it never ends."""
    jitter_ms: int = 0
    overlap: Overlap = Overlap.ALLOW
    missed: Missed = Missed.LAST
    missed_after_ms: int = 0
    """0: a minute."""

    @classmethod
    def of(cls, told: pb.RecurringSpec) -> Specification:
        """Return a specification of an answer."""
        record = told.record
        by_interval = told.WhichOneof("timing") == "interval_ms"
        return cls(
            told.topic,
            Interval(told.interval_ms) if by_interval else Cron(told.cron, told.zone or UTC),
            record.body,
            tuple(record.tags),
            tuple(record.keys),
            dict(record.properties),
            record.ordering_key,
            told.start_ms,
            told.end_ms,
            told.jitter_ms,
            Overlap.of(told.overlap),
            Missed.of(told.missed),
            told.missed_after_ms,
        )


def packed(topic: str, body: bytes, timing: Timing, options: ScheduleOptions) -> pb.RecurringSpec:
    """Return a specification as it is sent.

    Raises InvalidSchedule for a value that no schedule can have, TypeError for an option that none has.
    """
    for name in options.keys() - ScheduleOptions.__optional_keys__:
        raise TypeError(f"a schedule has no option {name!r}")
    for name in ("tags", "keys"):
        if isinstance(options.get(name), str):
            raise TypeError(f"{name} is a sequence of str")
    spec = pb.RecurringSpec(
        topic=topic,
        record=Record(
            body=body,
            tags=options.get("tags", ()),
            keys=options.get("keys", ()),
            properties=options.get("properties") or {},
            ordering_key=options.get("ordering_key", ""),
        ),
        start_ms=_time("start_ms", options.get("start_ms", 0)),
        end_ms=_time("end_ms", options.get("end_ms", 0)),
        jitter_ms=whole("jitter_ms", options.get("jitter_ms", 0), InvalidSchedule, _REASON, UINT32_MAX),
        overlap=f"OVERLAP_POLICY_{_policy(Overlap, options.get('overlap', Overlap.ALLOW)).name}",
        missed=f"MISSED_POLICY_{_policy(Missed, options.get('missed', Missed.LAST)).name}",
        missed_after_ms=_time("missed_after_ms", options.get("missed_after_ms", 0)),
    )
    put_timing(spec, timing)
    return spec


def put_timing(spec: pb.RecurringSpec, timing: Timing) -> None:
    """Write when a schedule fires into its specification. Raises InvalidSchedule."""
    match timing:
        case Interval(ms):
            spec.interval_ms = whole("interval", ms, InvalidSchedule, _REASON, INT64_MAX, 1)
        case Cron(expression, zone):
            spec.cron, spec.zone = expression, zone
        case _:
            raise InvalidSchedule(_REASON, f"timing must be an Interval or a Cron, not {timing!r}")


def _time(name: str, value: int) -> int:
    return whole(name, value, InvalidSchedule, _REASON, INT64_MAX)


def _policy(policies: type[PolicyT], value: PolicyT | str) -> PolicyT:
    try:
        return policies(value)
    except ValueError:
        text = f"{value!r} is no policy: give one of {', '.join(policies)}"
        raise InvalidSchedule(_REASON, text) from None


_REASON: Final = Reason.RECURRING_INVALID
