"""The scrub's plan: every hour in its turn, all within a pass, and the thread ends with the task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tarry.node.config import Dispatch
from tarry.node.repair.records import Damage
from tarry.node.repair.scrubber import Scrub, following, step_ms
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.far_segment import FAR_UNIT_BYTES, segment_name
from tests.node.decay import decay, lose_index, turn_bit
from tests.wheel.sorted_list import START_MS, append, ids

EVERY_MS = Dispatch(scrub_step_ms_max=1)


@pytest.mark.parametrize(("hours", "ms"), [(0, 60_000), (1, 60_000), (1_440, 60_000), (14_400, 6_000)])
def test_all_hours_are_looked_at_in_a_day_and_one_at_least_each_minute(hours: int, ms: int) -> None:
    assert step_ms(hours, Dispatch()) == ms


def test_hours_are_looked_at_in_turn_whatever_comes_and_goes_meanwhile() -> None:
    assert following([3, 5, 9], -1) == 3
    assert following([3, 5, 9], 5) == 9
    assert following([3, 9, 12], 5) == 9
    assert following([3, 5, 9], 9) == 3
    assert following([], 9) is None


async def scrub_until(scrub: Scrub, damage: Damage, found: int) -> None:
    task = asyncio.create_task(scrub.run())
    async with asyncio.timeout(10):
        while damage.found < found:  # noqa: ASYNC110  the scrub itself is what is waited for
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_damage_in_any_hour_is_reported_once_with_its_place(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    names = append(machine.wheel, [START_MS + 3_600_000 * hour for hour in (0, 0, 1, 2, 2, 2)])
    damage = Damage(machine, 0)
    decay(machine, names[1], names[5])
    scrub = Scrub(machine, damage, EVERY_MS)
    await scrub_until(scrub, damage, 2)
    assert (damage.found, damage.left) == (2, 2)
    decay(machine, names[2])
    await scrub_until(Scrub(machine, damage, EVERY_MS), damage, 3)  # by then it saw the others again
    assert (damage.found, damage.left) == (3, 3)


async def test_damage_in_the_far_log_is_reported(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    names = append(machine.wheel, [START_MS + 3_600_000 * hour for hour in range(20)])
    first = ids(names[:1])
    (record,) = machine.wheel.read(*first)
    assert record is not None
    far = machine.folder / "hours" / segment_name(0)
    assert machine.wheel.partitions() == ()
    damage = Damage(machine, 0)
    turn_bit(far / "delay.log", FAR_UNIT_BYTES)
    await scrub_until(Scrub(machine, damage, EVERY_MS), damage, 1)
    assert (damage.found, damage.left) == (1, 1)
    assert machine.wheel.read(*first) == [None]
    assert machine.wheel.repair(*names[0], record)
    assert machine.wheel.read(*first) == [record]
    whole = {name: (far / name).read_bytes() for name in ("delay.index", "delay.log")}
    for found, name in enumerate(whole, 2):
        turn_bit(far / name, 30)
        await scrub_until(Scrub(machine, damage, EVERY_MS), damage, found)
        assert damage.far.left == 1
        await mend_far(damage)
        assert (damage.found, damage.repaired, damage.far.left) == (found, found - 1, 0)
        assert (far / name).read_bytes() == whole[name]


async def test_what_reading_found_damaged_in_the_far_log_is_counted_and_what_is_lost_stays(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, MachineSettings())
    names = append(machine.wheel, [START_MS + 3_600_000 * hour for hour in range(20)])
    damage = Damage(machine, 0)
    far = machine.folder / "hours" / segment_name(0)
    turn_bit(far / "delay.index", 30)
    assert machine.wheel.read(*ids(names[:1])) != [None]
    assert (damage.found, damage.repaired, damage.left) == (1, 1, 0)
    turn_bit(far / "delay.index", 30)
    turn_bit(far / "delay.log", 30)
    await scrub_until(Scrub(machine, damage, EVERY_MS), damage, 2)
    await mend_far(damage)
    assert (damage.repaired, damage.left, damage.far.missed) == (1, 1, 1)


async def mend_far(damage: Damage) -> None:
    """Let what was found damaged in the far log be mended, once."""
    task = asyncio.create_task(damage.far.run())
    async with asyncio.timeout(10):
        while damage.far.left and not damage.far.missed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def test_a_damaged_index_is_counted_and_the_other_hours_are_still_looked_at(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    names = append(machine.wheel, [START_MS, START_MS + 3_600_000])
    damage = Damage(machine, 0)
    lose_index(machine, names[0][0])
    decay(machine, names[1])
    await scrub_until(Scrub(machine, damage, EVERY_MS), damage, 2)
    assert damage.left == 2
