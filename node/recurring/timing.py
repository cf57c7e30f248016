"""Fires of a schedule that recurs: the times that its interval or its cron expression names.

    an instant ─► local time ─► next local time that matches ─► instant
                      ▲                                           │
                      └──── the zone's offset changes before ─────┘

Cron expressions are matched without a zone (cronsim), and changes of daylight saving are worked out here,
as Debian's cron has them:

- A job of fixed times, whose minute and hour do not begin with ``*``, fires for each local time once: in the
  first of two equal hours, and at the end of a gap for what the gap leaves out.
- Any other fires by the wall clock: in both of two equal hours, and in a gap not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.schedule import DUE_MS_MAX

CRON_CHARS_MAX: Final = 256
ZONE_CHARS_MAX: Final = 64
NO_ZONES: Final = ("localtime", "posixrules", "factory")
"""Files beside the zones, which differ between machines or say nothing."""
NO_FOLDERS: Final = ("posix/", "right/")
"""The same zones by other names, and with leap seconds, which times here do not have."""
NAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
PROBE_S: Final = 43_200
"""No zone changes its offset and changes it back within so long."""
WINDOW_S: Final = 32 * PROBE_S
"""Changes of a zone's offset are looked for in so long at once, and kept: some 40 us, a window and zone."""
WINDOWS_MAX: Final = 16_384
"""Kept: of 700 years and zones, some 3 MiB."""
UTC_ZONE: Final = ZoneInfo("UTC")
_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimingInvalid(ValueError):
    """The timing names no times; the text says why."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of fires, ms since the epoch: after a start, before an end."""

    start_ms: int
    """Of an interval: a fire, or where ``counts_start`` is not set one interval before the first."""
    end_ms: int
    """No fire then or later; 0: there is no end."""
    interval_ms: int = 0
    """0: a cron expression names the times."""
    counts_start: bool = True
    cron: str = ""
    zone: ZoneInfo = UTC_ZONE

    def after(self, after_ms: int) -> int | None:
        """Return the first fire later than a time; None: there is none."""
        return next(self.fires(after_ms), None)

    def fires(self, after_ms: int) -> Iterator[int]:
        """Yield the fires later than a time, in order."""
        end_ms = self.end_ms or DUE_MS_MAX
        for fire_ms in self._interval(after_ms) if self.interval_ms else self._cron(after_ms):
            if fire_ms >= end_ms:
                return
            yield fire_ms

    def local(self, fire_ms: int) -> str:
        """Return a time in the schedule's zone, ISO 8601 with the offset; in UTC where it has none there."""
        at = _instant(fire_ms // 1000)
        try:
            return at.astimezone(self.zone).isoformat()
        except OverflowError:  # in the year 10000
            return at.isoformat()

    def _interval(self, after_ms: int) -> Iterator[int]:
        number = max((after_ms - self.start_ms) // self.interval_ms + 1, 0 if self.counts_start else 1)
        while True:
            yield self.start_ms + number * self.interval_ms
            number += 1

    def _cron(self, after_ms: int) -> Iterator[int]:
        after_s = max(after_ms, self.start_ms - 1) // 1000
        minute, hour = self.cron.split()[-5:-3]
        by_wall_clock = minute.startswith("*") or hour.startswith("*")
        try:
            for fire_s in (self._by_wall_clock if by_wall_clock else self._by_local_time)(after_s):
                if fire_s <= after_s:
                    continue
                after_s = fire_s
                yield 1000 * fire_s
        except (StopIteration, RuntimeError, OverflowError):  # none in 50 years, or beyond the year 9999
            return

    def _by_local_time(self, after_s: int) -> Iterator[int]:
        """Yield the instants of matching local times, some of which may not be later."""
        for local in CronSim(self.cron, self._local(after_s)):
            yield self._first_at(local)

    def _by_wall_clock(self, after_s: int) -> Iterator[int]:
        """Yield the instants at which the wall clock shows a matching local time."""
        while True:
            local = self._local(after_s)
            offset_s = self._offset_s(after_s)
            for match in CronSim(self.cron, local):
                fire_s = after_s + int((match - local).total_seconds())
                changes_s = self._change(after_s, fire_s)
                if changes_s is not None:  # the wall clock jumps before, or just then
                    after_s = changes_s - 1
                    break
                yield fire_s
                local, after_s = match, fire_s
            else:
                return
            # from the jump on it shows other times: the second of the jump may match, too
            shown = self._local(changes_s)
            if self._offset_s(changes_s) == offset_s:
                raise AssertionError("a change of offset changes it")
            if next(CronSim(self.cron, shown - _SECOND)) == shown:
                yield changes_s
            after_s = changes_s

    def _first_at(self, local: datetime) -> int:
        """Return the first instant at which it is a local time, or the end of the gap that leaves it out."""
        instant = local.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        at_s = int(instant.timestamp())
        if instant.astimezone(self.zone).replace(tzinfo=None) == local:
            return at_s
        before_s = int(local.replace(tzinfo=self.zone, fold=1).timestamp())
        return _bisected(self.zone, before_s, at_s)

    def _change(self, after_s: int, until_s: int) -> int | None:
        """Return when the offset first changes, later than one time and not later than another."""
        for window in range(after_s // WINDOW_S, until_s // WINDOW_S + 1):
            for changes_s in _changes(self.zone, window):
                if after_s < changes_s <= until_s:
                    return changes_s
        return None

    def _local(self, at_s: int) -> datetime:
        return _instant(at_s).astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _offset_s(self, at_s: int) -> int:
        return _offset_s(self.zone, at_s)


@lru_cache(maxsize=WINDOWS_MAX)
def _changes(zone: ZoneInfo, window: int) -> tuple[int, ...]:
    """Return when a zone's offset changes within a window, later than its beginning, s since the epoch.

    A search over years looks at each of them: thousands of offsets for one fire, once.
    """
    end_s = min((window + 1) * WINDOW_S, DUE_MS_MAX // 1000)
    probes = [*range(window * WINDOW_S, end_s, PROBE_S), end_s]
    offsets = [_offset_s(zone, at_s) for at_s in probes]
    return tuple(
        _bisected(zone, probes[place - 1], probes[place])
        for place in range(1, len(probes))
        if offsets[place] != offsets[place - 1]
    )


def _bisected(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """Return the first second of another offset; of the two the first has one, and the second another."""
    offset_s = _offset_s(zone, before_s)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset_s(zone, middle_s) == offset_s:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s


def _offset_s(zone: ZoneInfo, at_s: int) -> int:
    offset = _instant(at_s).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def timing_of(spec: pb.RecurringSpec, created_ms: int) -> Timing:
    """Return the timing of a specification; the first one of a zone reads a file.

    Raises TimingInvalid: by what the specification and this node say, whenever the schedule was created. One
    that was created behind its end has no fire.
    """
    if spec.WhichOneof("timing") is None:
        raise TimingInvalid("give an interval or a cron expression")
    start_ms, counts_start = spec.start_ms or created_ms, bool(spec.start_ms)
    if not 0 <= spec.start_ms <= DUE_MS_MAX or not 0 <= spec.end_ms <= DUE_MS_MAX:
        raise TimingInvalid(f"start_ms and end_ms lie between 0 and {DUE_MS_MAX}")
    if spec.end_ms and spec.end_ms <= spec.start_ms:
        raise TimingInvalid(f"it ends at {spec.end_ms}, which is not later than its start, {start_ms}")
    zone = zone_of(spec.zone)
    if spec.WhichOneof("timing") == "interval_ms":
        if not 0 < spec.interval_ms <= DUE_MS_MAX:
            raise TimingInvalid(f"an interval is 1 to {DUE_MS_MAX} ms")
        return Timing(start_ms, spec.end_ms, spec.interval_ms, counts_start, zone=zone)
    return Timing(start_ms, spec.end_ms, cron=checked_cron(spec.cron), zone=zone)


@lru_cache(maxsize=1024)
def checked_cron(text: str) -> str:
    """Return the expression's fields. Raises TimingInvalid."""
    if len(text) > CRON_CHARS_MAX or not text.isascii():
        raise TimingInvalid(f"a cron expression has at most {CRON_CHARS_MAX} characters, all ASCII")
    expression = NAMES.get(text.strip().lower(), text)
    try:
        CronSim(expression, datetime(2000, 1, 1))
    except (CronSimError, ValueError, AssertionError) as error:
        raise TimingInvalid(f"{text!r} is no cron expression: {error}") from error
    return expression.upper()


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return the zone of an IANA name; empty: UTC. Raises TimingInvalid."""
    lower = name.lower()
    if len(name) > ZONE_CHARS_MAX or not name.isascii() or lower in NO_ZONES or lower.startswith(NO_FOLDERS):
        raise TimingInvalid(f"{name!r} is no name of an IANA time zone, such as Europe/Berlin")
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"this node knows no time zone {name!r}: give an IANA name, such as Europe/Berlin"
        raise TimingInvalid(text) from error


def _instant(at_s: int) -> datetime:
    """Return a time in UTC. Raises OverflowError beyond the year 9999, as arithmetic with it does."""
    return _EPOCH + timedelta(seconds=at_s)
