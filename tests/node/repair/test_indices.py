"""A damaged index comes back from a peer whose is whole, byte for byte, and so does what was made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.node.repair.indices import IndexDamage
from tarry.node.repair.peer_records import INDEX_UNITS_MAX
from tarry.node.repair.records import Damage
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.hour_partition import folder_name
from tests.node.decay import lose_index
from tests.node.repair.test_records import asking, replica, serving
from tests.wheel.sorted_list import START_MS, append, rows

HOUR = START_MS // 3_600_000
LATE_MS = START_MS + 3_599_999


pytestmark = pytest.mark.usefixtures("index_read_from_its_file")


async def mend(machine: Machine, *peers: Machine) -> Damage:
    """Let a machine whose hour was found damaged ask its peers, once."""
    damage = Damage(machine, 0)
    damage.indices.report(HOUR, "as the scrub found")
    async with asking() as asked, serving(peers[0]) as first, serving(peers[-1]) as last:
        task = asyncio.create_task(damage.indices.run(lambda: (first, last), asked.fetch_index))
        async with asyncio.timeout(10):
            while damage.indices.left and not damage.indices.missed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    return damage


async def test_an_index_is_taken_from_the_peer_that_has_it_whole(tmp_path: Path) -> None:
    own, bad, good = (replica(tmp_path / name) for name in ("own", "bad", "good"))
    own.wheel.take(START_MS - 5_000, 1)  # the near queue has been filled from the index
    good.wheel.take(START_MS - 5_000, 1)
    lose_index(own, HOUR)
    lose_index(bad, HOUR)
    damage = await mend(own, bad, good)
    assert (damage.found, damage.repaired, damage.left) == (1, 1, 0)
    state = own.wheel.upkeep.hour_state(HOUR)
    assert state is not None
    assert not any(len(damaged) for _, damaged in own.wheel.upkeep.walk(state))
    append(own.wheel, [START_MS + 500])
    append(good.wheel, [START_MS + 500])
    assert rows(own.wheel.take(LATE_MS, 1_000)) == rows(good.wheel.take(LATE_MS, 1_000))
    assert own.digest() == good.digest()


async def test_what_was_appended_meanwhile_stays(tmp_path: Path) -> None:
    own, good = replica(tmp_path / "own"), replica(tmp_path / "good")
    state = own.wheel.upkeep.hour_state(HOUR)
    assert state is not None
    units = (good.folder / "hours" / folder_name(HOUR) / "delay.index").read_bytes()
    lose_index(own, HOUR)
    append(own.wheel, [START_MS + 900])
    append(good.wheel, [START_MS + 900])
    assert own.wheel.upkeep.mend_index(state, units)
    own.wheel.reread(HOUR)
    assert rows(own.wheel.take(LATE_MS, 1_000)) == rows(good.wheel.take(LATE_MS, 1_000))


async def test_an_index_larger_than_one_answer_comes_in_parts(tmp_path: Path) -> None:
    due = [START_MS + i % 3_600 * 1_000 for i in range(INDEX_UNITS_MAX + 10)]
    own, good = (replica(tmp_path / name, due, [b""] * len(due)) for name in ("own", "good"))
    lose_index(own, HOUR)
    damage = await mend(own, good)
    assert (damage.repaired, damage.left) == (1, 0)


async def test_where_no_peer_has_it_the_index_stays_counted(tmp_path: Path) -> None:
    own, bad = replica(tmp_path / "own"), replica(tmp_path / "bad")
    lose_index(own, HOUR)
    lose_index(bad, HOUR)
    damage = await mend(own, bad)
    assert (damage.found, damage.repaired, damage.left) == (1, 0, 1)


async def test_a_state_that_takes_another_s_place_while_an_index_is_written_is_not_called_mended(
    tmp_path: Path,
) -> None:
    own, other = replica(tmp_path / "own"), replica(tmp_path / "other")
    index = (other.folder / "hours" / folder_name(HOUR) / "delay.index").read_bytes()
    lose_index(own, HOUR)
    lose_index(other, HOUR)
    replaced = asyncio.Event()

    async def write(job: Callable[[], Any]) -> Any:
        done = job()
        assert done
        own.wheel = other.wheel
        replaced.set()
        return done

    async def fetch(*_: object) -> bytes:
        return index

    damage = IndexDamage(own, write)
    damage.report(HOUR, "as the scrub found")
    task = asyncio.create_task(damage.run(lambda: ["peer"], fetch))
    await replaced.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (damage.left, damage.repaired, damage.missed) == ({HOUR}, 0, 0)
    task.cancel()
    await asyncio.wait([task])
