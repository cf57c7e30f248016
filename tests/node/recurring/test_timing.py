"""Tests of fires: intervals, cron expressions, and both changes of daylight saving in several zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.recurring import timing as timing_module
from tarry.node.recurring.timing import Timing, TimingInvalid, timing_of
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.schedule import DUE_MS_MAX

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def cron(expression: str, zone: str = "", start_ms: int = 0, end_ms: int = 0) -> Timing:
    spec = pb.RecurringSpec(cron=expression, zone=zone, start_ms=start_ms, end_ms=end_ms)
    return timing_of(spec, 0)


def told(timing: Timing, after: str, count: int) -> list[str]:
    return [timing.local(fire_ms) for fire_ms in islice(timing.fires(ms(after)), count)]


def test_an_interval_counts_from_its_start() -> None:
    timing = timing_of(pb.RecurringSpec(interval_ms=1000, start_ms=5500), 0)
    assert list(islice(timing.fires(0), 2)) == [5500, 6500]
    assert timing.after(5500) == 6500
    assert timing.after(7499) == 7500


def test_an_interval_without_a_start_fires_first_one_interval_after_its_creation() -> None:
    timing = timing_of(pb.RecurringSpec(interval_ms=1000), 300)
    assert list(islice(timing.fires(0), 2)) == [1300, 2300]


def test_nothing_fires_at_the_end_or_later() -> None:
    timing = timing_of(pb.RecurringSpec(interval_ms=1000, end_ms=3000), 0)
    assert list(timing.fires(0)) == [1000, 2000]
    assert list(cron("* * * * *", end_ms=120_000).fires(0)) == [60_000]


def test_a_start_is_a_fire_where_the_expression_names_it() -> None:
    start_ms = ms("2026-05-01T08:00+00:00")
    assert cron("0 8 * * *", start_ms=start_ms).after(0) == start_ms


def test_a_fixed_time_in_the_gap_fires_at_its_end() -> None:
    nightly = cron("30 2 * * *", "Europe/Berlin")
    assert told(nightly, "2026-03-28T00:00+01:00", 3) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_two_fixed_times_in_the_gap_fire_once() -> None:
    assert told(cron("15,45 2 * * *", "Europe/Berlin"), "2026-03-29T00:00+01:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:15:00+02:00",
    ]


def test_a_fixed_time_that_comes_twice_fires_the_first_time() -> None:
    assert told(cron("30 2 * * *", "Europe/Berlin"), "2026-10-25T00:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    # asked for between the two
    assert told(cron("30 2 * * *", "Europe/Berlin"), "2026-10-25T02:10+01:00", 1) == [
        "2026-10-26T02:30:00+01:00"
    ]


def test_a_job_of_every_hour_goes_by_the_wall_clock() -> None:
    hourly = cron("30 * * * *", "America/New_York")
    assert told(hourly, "2026-11-01T00:45-04:00", 3) == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-01T01:30:00-05:00",
        "2026-11-01T02:30:00-05:00",
    ]
    assert told(hourly, "2026-03-08T01:00-05:00", 2) == [
        "2026-03-08T01:30:00-05:00",
        "2026-03-08T03:30:00-04:00",
    ]


def test_a_change_between_two_fires_by_the_wall_clock_counts() -> None:
    every_sixth = cron("0 */6 * * *", "America/New_York")
    assert told(every_sixth, "2026-03-08T00:30-05:00", 2) == [
        "2026-03-08T06:00:00-04:00",
        "2026-03-08T12:00:00-04:00",
    ]
    assert told(every_sixth, "2026-11-01T00:30-04:00", 1) == ["2026-11-01T06:00:00-05:00"]


def test_half_an_hour_comes_twice_at_lord_howe() -> None:
    quarters = cron("*/15 * * * *", "Australia/Lord_Howe")
    # 02:00+11:00 becomes 01:30+10:30
    assert told(quarters, "2026-04-05T01:20+11:00", 5) == [
        "2026-04-05T01:30:00+11:00",
        "2026-04-05T01:45:00+11:00",
        "2026-04-05T01:30:00+10:30",
        "2026-04-05T01:45:00+10:30",
        "2026-04-05T02:00:00+10:30",
    ]
    assert told(cron("45 1 * * *", "Australia/Lord_Howe"), "2026-04-05T00:00+11:00", 2) == [
        "2026-04-05T01:45:00+11:00",
        "2026-04-06T01:45:00+10:30",
    ]
    # 02:00+10:30 becomes 02:30+11:00
    assert told(cron("15 2 * * *", "Australia/Lord_Howe"), "2026-10-04T00:00+10:30", 2) == [
        "2026-10-04T02:30:00+11:00",
        "2026-10-05T02:15:00+11:00",
    ]


def test_a_day_that_apia_left_out_fires_as_it_ends() -> None:
    assert told(cron("0 9 * * *", "Pacific/Apia"), "2011-12-29T00:00-10:00", 3) == [
        "2011-12-29T09:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T09:00:00+14:00",
    ]


def test_casablanca_leaves_summer_time_for_ramadan() -> None:
    # 2026-02-15 03:00+01:00 becomes 02:00+00:00, 2026-03-22 02:00+00:00 becomes 03:00+01:00
    assert told(cron("30 2 * * *", "Africa/Casablanca"), "2026-02-15T00:00+01:00", 1) == [
        "2026-02-15T02:30:00+01:00"
    ]
    assert told(cron("30 2 * * *", "Africa/Casablanca"), "2026-03-21T12:00+00:00", 1) == [
        "2026-03-22T03:00:00+01:00"
    ]


def test_a_zone_without_daylight_saving_has_half_an_hour() -> None:
    assert told(cron("0 9 * * *", "Asia/Kolkata"), "2026-03-29T00:00+00:00", 1) == [
        "2026-03-29T09:00:00+05:30"
    ]


def test_seconds_come_first_where_there_are_six_fields() -> None:
    assert list(islice(cron("*/20 * * * * *").fires(0), 3)) == [20_000, 40_000, 60_000]


def test_names_stand_for_expressions() -> None:
    assert cron("@Daily").after(0) == 86_400_000


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "61 * * * *", "1" * 300, "a b c d e", "0 0 30 2 *", "*/0 * * * *", "٣ * * * *"],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(TimingInvalid):
        cron(expression)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "localtime", "right/UTC", "x" * 65, "Zürich"],
)
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(TimingInvalid):
        cron("* * * * *", zone)


def test_what_names_no_time_is_refused() -> None:
    for spec in (
        pb.RecurringSpec(),
        pb.RecurringSpec(interval_ms=0),
        pb.RecurringSpec(interval_ms=10**17),
        pb.RecurringSpec(interval_ms=5, start_ms=-1),
        pb.RecurringSpec(interval_ms=5, start_ms=7, end_ms=7),
    ):
        with pytest.raises(TimingInvalid):
            timing_of(spec, 0)


def test_a_schedule_that_is_created_behind_its_end_has_no_fire() -> None:
    """Its leader would else look at it each minute, and tell of a time zone that it does not know."""
    for spec in (pb.RecurringSpec(interval_ms=5, end_ms=7), pb.RecurringSpec(cron="* * * * *", end_ms=7)):
        assert timing_of(spec, 7).after(7) is None


def test_a_search_over_years_looks_at_the_zone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each fire of such a schedule holds the leader's event loop for milliseconds."""
    looks: list[int] = []
    offset_s = timing_module._offset_s

    def looked(zone: ZoneInfo, at_s: int) -> int:
        looks.append(at_s)
        return offset_s(zone, at_s)

    monkeypatch.setattr(timing_module, "_offset_s", looked)
    timing_module._changes.cache_clear()
    leap_days = cron("* * 29 2 *", "Europe/Berlin")
    first = told(leap_days, "2028-02-29T23:58+01:00", 2)
    assert first == ["2028-02-29T23:59:00+01:00", "2032-02-29T00:00:00+01:00"]
    assert len(looks) > 1_000
    looks.clear()
    assert told(leap_days, "2028-02-29T23:58+01:00", 2) == first
    assert len(looks) < 30  # at each change


@pytest.mark.parametrize("zone", ["", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 20 31 12 *", "0 3 * * *"])
def test_time_ends_with_the_year_9999_in_every_zone(expression: str, zone: str) -> None:
    for back_ms in (1, 1_500, 3_600_000, 86_400_000):
        timing = cron(expression, zone, start_ms=DUE_MS_MAX - back_ms)
        assert all(fire_ms <= DUE_MS_MAX for fire_ms in timing.fires(DUE_MS_MAX - back_ms))


def test_a_time_that_its_zone_does_not_have_is_told_in_utc() -> None:
    spec = pb.RecurringSpec(interval_ms=1_000, zone="Asia/Tokyo")
    assert timing_of(spec, 0).local(DUE_MS_MAX) == "9999-12-31T23:59:59+00:00"


def test_a_day_that_never_comes_has_no_fire() -> None:
    assert cron("0 0 31 2,4 1").after(0) is not None  # or a Monday
    assert cron("0 0 31 2 1").after(0) is not None


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["*/15 * * * *", "7 * * * *", "*/10 1-3 * * *", "0,30 */2 * * *", "* 2 * * 0"]),
    st.integers(ms("2005-01-01T00:00+00:00"), ms("2030-01-01T00:00+00:00")),
)
def test_by_the_wall_clock_every_minute_that_it_shows_counts(
    zone: str, expression: str, after_ms: int
) -> None:
    """Against the definition: minutes whose local time matches, one after another."""
    timing = cron(expression, zone)
    found = timing.after(after_ms)
    assert found is not None
    assert found > after_ms
    minute_ms = after_ms // 60_000 * 60_000 + 60_000
    while not _matches(expression, zone, minute_ms):
        minute_ms += 60_000
    assert found == minute_ms


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["30 2 * * *", "15,45 1,2 * * *", "0 0 * * *", "59 23 * * 6", "0 3 29 * *"]),
    st.integers(ms("2005-01-01T00:00+00:00"), ms("2030-01-01T00:00+00:00")),
)
def test_fixed_times_fire_for_each_local_time_once(zone: str, expression: str, after_ms: int) -> None:
    """However often one asks from within: fires from one time on are those from an earlier time on."""
    timing = cron(expression, zone)
    fires = list(islice(timing.fires(after_ms), 8))
    assert fires == sorted(set(fires))
    for before_ms, fire_ms in zip([after_ms, *fires], fires, strict=False):
        for asked_ms in (before_ms, (before_ms + fire_ms) // 2, fire_ms - 1):
            assert timing.after(asked_ms) == fire_ms
    assert fires == _by_definition(expression, ZoneInfo(zone), after_ms)[: len(fires)]


def _by_definition(expression: str, zone: ZoneInfo, after_ms: int) -> list[int]:
    """Return the first fires behind an instant, each local time by itself: left out is none."""
    from cronsim import CronSim

    local = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone).replace(tzinfo=None)
    times = islice(CronSim(expression, local - timedelta(days=60)), 60 * 4 + 16)
    instants = {_first_instant(one, zone) for one in times}
    return sorted(one for one in instants if one > after_ms)


def _first_instant(local: datetime, zone: ZoneInfo) -> int:
    """Return when clocks first show a time or, where they go over it, one behind it."""
    at = min(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    while at.astimezone(zone).replace(tzinfo=None) < local:
        at += timedelta(minutes=1)
    return int(at.timestamp() * 1000)


def _matches(expression: str, zone: str, at_ms: int) -> bool:
    from cronsim import CronSim

    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return next(CronSim(expression, local - timedelta(seconds=1))) == local
