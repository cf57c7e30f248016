"""The plan of a whole run, and what becomes of it on a machine that is slower than foreseen."""

import asyncio

import pytest

from tarry.bench.side_by_side import turns
from tarry.bench.side_by_side.__main__ import MINUTES, QUICK_MINUTES, QUICK_SHARE, TURNS, planned
from tarry.bench.side_by_side.figures import KEYS, RATIOS
from tarry.bench.side_by_side.pace import FIXED, SHARE_MIN, TRUST, Pace, planned_s
from tarry.bench.side_by_side.peers import chosen
from tarry.bench.side_by_side.peers.tarry import Tarry
from tarry.bench.side_by_side.rows import ROWS, Row
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.workloads import Turn

STARTING_S = 45


class Other(Tarry):
    name = "other"


async def nothing(system: System, share: float) -> Turn:
    return Turn({"per_s": share})


def row(name: str, seconds: float = 10.0) -> Row:
    return Row(name, name, "per_s", "/s", nothing, seconds=seconds)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


FIRST, SECOND = row("first"), row("second")
OURS, OTHER = Tarry(), Other()


def pace(end_s: float, clock: Clock | None = None, share: float = 1.0) -> Pace:
    """Two rows of two systems, three turns of 10 s each: 120 s."""
    plan = [(FIRST, [OURS, OTHER]), (SECOND, [OURS, OTHER])]
    return Pace(plan, 3, share, end_s, clock or Clock())


def slowness(took_s: float, foreseen_s: float) -> float:
    """Of what has not been measured yet; the plan itself counts for a part."""
    return (took_s + TRUST * 120) / (foreseen_s + TRUST * 120)


def test_turns_are_whole_while_there_is_time_for_all_of_them() -> None:
    assert pace(120.0).left_s() == 120.0
    assert pace(120.0).share() == 1.0


def test_a_quick_run_takes_its_share_of_turns_however_much_time_there_is() -> None:
    assert pace(1_000.0, share=0.3).share() == 0.3
    assert pace(0.0, share=0.1).share() == 0.1


def test_a_run_that_is_slower_than_foreseen_shortens_all_that_is_left() -> None:
    clock = Clock()
    late = pace(120.0, clock)
    clock.now_s = 20.0
    late.took(FIRST, OURS, 20.0, 1.0)
    whole_s = 2 * 20 + 9 * 10 * slowness(took_s=20, foreseen_s=10)
    clock.now_s = 120 - whole_s * (1 + FIXED) / 2
    assert late.share() == pytest.approx(0.5)
    assert late.left_s() == pytest.approx(late.time_left_s())


def test_a_slow_system_is_reckoned_by_its_own_turns() -> None:
    uneven = pace(1_000.0)
    uneven.took(FIRST, OURS, 10.0, 1.0)
    uneven.took(FIRST, OTHER, 40.0, 1.0)
    assert uneven.left_s() == 2 * 10 + 2 * 40 + 6 * 10 * slowness(took_s=50, foreseen_s=20)


def test_a_turn_that_was_shortened_counts_as_the_whole_one_it_stands_for() -> None:
    shortened = pace(1_000.0)
    shortened.took(FIRST, OURS, 10.0 * (1 + FIXED) / 2, 0.5)
    assert shortened.left_s() == 110.0


def test_a_system_that_is_given_up_needs_no_more_time() -> None:
    one_less = pace(1_000.0)
    one_less.give_up(FIRST, OTHER)
    assert one_less.left_s() == 90.0


def test_no_turn_is_shorter_than_the_least_and_beyond_that_there_are_fewer() -> None:
    least_s = 120.0 * (FIXED + (1 - FIXED) * SHARE_MIN)
    assert pace(least_s).turns(FIRST) == 3
    hurried = pace(least_s * 0.7)
    assert hurried.share() == SHARE_MIN
    assert hurried.turns(FIRST) == 2
    assert hurried.left_s() == pytest.approx(least_s * 100 / 120)


@pytest.mark.parametrize("end_s", [0.0, -100.0])
def test_a_run_that_is_out_of_time_still_takes_one_turn_of_every_row_and_system(end_s: float) -> None:
    results, plan = turns.Results(), [(FIRST, [OURS, OTHER]), (SECOND, [OURS, OTHER])]
    asyncio.run(turns.run(plan, Pace(plan, 3, 1.0, end_s, Clock()), results, lambda *_: None))
    assert {cell: len(each.turns) for cell, each in results.cells.items()} == dict.fromkeys(
        [(name, system) for name in ("first", "second") for system in ("tarry", "other")], 1
    )
    assert {each.share for each in results.cells.values()} == {SHARE_MIN}


def test_a_row_that_takes_long_gets_fewer_turns_but_always_one() -> None:
    short = Row("short", "short", "per_s", "/s", nothing, seconds=10.0, turns_fewer=1)
    plan = [(short, [OURS])]
    assert planned_s(plan, 3) == Pace(plan, 3, 1.0, 100.0, Clock()).left_s() == 20.0
    assert Pace(plan, 3, 1.0, 100.0, Clock()).turns(short) == 2
    assert Pace(plan, 1, 1.0, 100.0, Clock()).turns(short) == 1


def test_a_row_that_no_system_can_do_takes_no_time() -> None:
    assert Pace([(FIRST, [])], 3, 1.0, 100.0, Clock()).turns(FIRST) == 3


def test_a_whole_run_has_the_row_of_every_key_at_least_three_times() -> None:
    plan = planned([each for each in ROWS if each.in_full], [OURS], everywhere=True)
    with_us = {each.name for each, systems in plan if systems}
    assert {name for name, _ in KEYS.values()} - {"mass_1m"} <= with_us
    assert {name for name, _ in RATIOS.values()} <= with_us
    assert TURNS >= 3


def usual(*, quick: bool) -> list[System]:
    """The systems of a run; their clients are only there once `make bench` has installed them."""
    for client in ("aetcd", "nats", "pika", "psycopg", "redis"):
        pytest.importorskip(client, reason="make bench installs it")
    return chosen("", quick)


def test_a_whole_run_is_planned_to_end_in_time() -> None:
    plan = planned([each for each in ROWS if each.in_full], usual(quick=False), everywhere=True)
    systems = {each.name: {system.name for system in on} for each, on in plan}
    assert all(peer in systems[name] for name, peer in RATIOS.values())
    assert planned_s(plan, TURNS) + STARTING_S <= MINUTES * 60 < 15 * 60


def test_a_quick_run_is_planned_to_end_in_time() -> None:
    plan = planned([each for each in ROWS if each.quick], usual(quick=True), everywhere=False)
    assert planned_s(plan, TURNS, QUICK_SHARE) + STARTING_S <= QUICK_MINUTES * 60
