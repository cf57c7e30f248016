"""Fires of schedules: a fire that is doubled, left out, lost or early is found, and nothing else."""

from __future__ import annotations

import pytest

from tarry.chaos.checks import fires as checks
from tarry.chaos.checks.fires import Fire
from tarry.chaos.history import FireAcknowledged, FireMessage, Fires, FireSeen, PlannedFires

CHECKS = (
    checks.doubled,
    checks.left_out,
    checks.miscounted,
    checks.of_no_fire,
    checks.lost,
    checks.early,
    checks.overlapping,
)


def sound() -> Fires:
    """A schedule that fires at 1,000, 2,000 and so on, before 5,000, and one that is triggered once."""
    fires = Fires(planned=[PlannedFires("s", 1_000, 1_000, 5_000), PlannedFires("t", 1_500, 1_000, 2_500)])
    for fire_ms in (1_000, 2_000, 3_000, 4_000):
        fires.seen.append(FireSeen("s", "fired", fire_ms, f"s{fire_ms}"))
        fires.messages.append(FireMessage("s", f"s{fire_ms}", fire_ms, fire_ms + 2))
    fires.messages.append(FireMessage("t", "unseen", 1_500, 1_502))  # no look was in time
    fires.seen.append(FireSeen("t", "triggered", 1_700, "asked"))
    fires.messages.append(FireMessage("t", "asked", 1_700, 1_702))
    fires.messages.append(FireMessage("s", "s2000", 2_000, 2_600))  # repeated after a failover
    fires.seen.append(FireSeen("s", "fired", 3_000, "withdrawn"))
    fires.seen.append(FireSeen("s", "cancelled", 3_000, ""))  # by a change, and it fired anew
    return fires


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_wrong_with_sound_fires(check: object) -> None:
    assert check(sound()) == ()  # type: ignore[operator]


def test_a_fire_with_two_messages_is_found_whether_a_look_or_a_consumer_saw_the_second() -> None:
    seen = sound()
    seen.seen.append(FireSeen("s", "fired", 2_000, "again"))
    assert checks.doubled(seen) == (Fire("s", 2_000, ("again", "s2000")),)
    came = sound()
    came.messages.append(FireMessage("s", "again", 2_000, 2_003))
    assert checks.doubled(came) == (Fire("s", 2_000, ("again", "s2000")),)


def test_a_message_that_was_withdrawn_and_came_all_the_same_is_one_of_two() -> None:
    fires = sound()
    fires.messages.append(FireMessage("s", "withdrawn", 3_000, 3_002))
    assert checks.doubled(fires) == (Fire("s", 3_000, ("s3000", "withdrawn")),)


def test_a_fire_that_was_withdrawn_and_did_not_come_again_is_left_out() -> None:
    fires = sound()
    fires.messages = [one for one in fires.messages if one.id != "s3000"]
    fires.seen = [one for one in fires.seen if one.id != "s3000"]
    assert checks.left_out(fires) == (Fire("s", 3_000),)


@pytest.mark.parametrize("outcome", ["missed", "skipped", "queued"])
def test_a_fire_without_a_message_is_left_out_whatever_the_reason(outcome: str) -> None:
    fires = sound()
    fires.seen.remove(FireSeen("s", "fired", 4_000, "s4000"))
    fires.messages = [one for one in fires.messages if one.id != "s4000"]
    fires.seen.append(FireSeen("s", outcome, 4_000, ""))
    assert checks.left_out(fires) == (Fire("s", 4_000),)


def test_a_fire_of_which_nothing_is_known_is_left_out() -> None:
    fires = sound()
    fires.planned.append(PlannedFires("u", 9_000, 1_000, 9_001))
    assert checks.left_out(fires) == (Fire("u", 9_000),)


def test_late_messages_that_no_look_has_seen_are_of_the_fires_that_have_none() -> None:
    fires = sound()
    fires.planned.append(PlannedFires("u", 9_000, 1_000, 12_000))
    fires.messages += [FireMessage("u", f"late{number}", 15_500, 15_502) for number in range(3)]
    assert [check(fires) for check in CHECKS] == [()] * len(CHECKS)
    fires.messages.append(FireMessage("u", "more", 15_500, 15_502))
    assert checks.of_no_fire(fires) == (Fire("u", 15_500, ("more",)),)
    del fires.messages[-3:]
    assert checks.left_out(fires) == (Fire("u", 10_000), Fire("u", 11_000))


def test_a_fire_at_or_after_the_end_or_between_is_of_no_fire() -> None:
    fires = sound()
    fires.seen.append(FireSeen("s", "fired", 5_000, "late"))
    fires.messages.append(FireMessage("s", "between", 2_500, 2_503))
    assert checks.of_no_fire(fires) == (Fire("s", 2_500, ("between",)), Fire("s", 5_000, ("late",)))


def test_a_fire_whose_message_never_came_is_lost() -> None:
    fires = sound()
    fires.messages = [one for one in fires.messages if one.id != "s4000"]
    assert checks.lost(fires) == (FireSeen("s", "fired", 4_000, "s4000"),)


def test_a_message_before_its_fire_is_early_though_it_says_that_it_was_due() -> None:
    fires = sound()
    fires.messages.append(FireMessage("s", "s4000", 3_900, 3_950))
    fires.messages.append(FireMessage("t", "unseen", 1_500, 1_499))
    assert checks.early(fires) == (Fire("s", 4_000, ("s4000",)), Fire("t", 1_500, ("unseen",)))
    assert checks.early(fires, tolerance_ms=50) == ()


@pytest.mark.parametrize(("missed", "found"), [(1, True), (2, False), (3, True)])
def test_a_schedule_that_counts_other_missed_fires_than_are_left_out_is_found(
    missed: int, found: bool
) -> None:
    fires = sound()
    plan = PlannedFires("u", 9_000, 1_000, 12_000, missed)
    fires.planned.append(plan)
    fires.messages.append(FireMessage("u", "late", 11_000, 17_000))
    assert checks.miscounted(fires) == ((plan,) if found else ())
    assert checks.left_out(fires) == ()


def test_a_message_that_came_before_the_one_before_was_acknowledged_is_found() -> None:
    fires = Fires(planned=[PlannedFires("s", 1_000, 1_000, 4_000, apart=True)])
    for fire_ms in (1_000, 2_000, 3_000):
        fires.messages.append(FireMessage("s", f"s{fire_ms}", fire_ms, fire_ms + 2))
        fires.acknowledged.append(FireAcknowledged(f"s{fire_ms}", fire_ms + 900))
    fires.messages.append(FireMessage("s", "s1000", 1_000, 2_500))  # repeated after a failover
    fires.acknowledged.append(FireAcknowledged("s1000", 3_400))
    assert checks.overlapping(fires) == ()
    del fires.acknowledged[1]
    assert checks.overlapping(fires) == (Fire("s", 3_000, ("s2000", "s3000")),)
    fires.acknowledged.append(FireAcknowledged("s2000", 3_003))
    assert checks.overlapping(fires) == (Fire("s", 3_000, ("s2000", "s3000")),)
    fires.planned = [PlannedFires("s", 1_000, 1_000, 4_000)]
    assert checks.overlapping(fires) == ()
