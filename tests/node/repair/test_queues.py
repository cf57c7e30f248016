"""A damaged ready queue is found, delivered to nobody, and mended from a peer that has the same units."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tarry.node.delivery.batch import belongs
from tarry.node.leader.group_moves import GroupMoves
from tarry.node.leader.retention import Retention
from tarry.node.repair.peer_records import ready_units
from tarry.node.repair.queues import QueueDamage
from tarry.node.repair.records import Damage
from tarry.node.repair.scrubber import Scrub
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS, QueueProof
from tarry.replication.state_machine.ready_queue import UNIT, UNIT_BYTES, UnitsDamaged
from tarry.wheel.delay_log import UNIT as INDEX_UNIT
from tarry.wheel.delay_log import UNIT_BYTES as INDEX_UNIT_BYTES
from tarry.wheel.hour_partition import folder_name
from tests.node.decay import lose_index, turn_bit
from tests.node.group_in_process import START_MS, Group
from tests.node.repair.test_records import asking, serving
from tests.node.repair.test_scrubber import EVERY_MS, scrub_until
from tests.replication.commands import NOW_MS, admin, release, schedule, subscribe, trim
from tests.simulation import virtual_loop

HOUR = START_MS // 3_600_000


pytestmark = pytest.mark.usefixtures("index_read_from_its_file")


def replica(folder: Path, messages: int = 3_000) -> Machine:
    machine = Machine(folder, MachineSettings())
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS] * messages), release(NOW_MS)])
    return machine


def lose_unit(machine: Machine, offset: int, queue: int = 0, field: str = "due_ms") -> None:
    machine.queues[queue].flush()
    path = machine.folder / "ready" / str(queue) / f"{0:016x}.ready"
    turn_bit(path, offset * UNIT_BYTES + (UNIT.fields or {})[field][1])


def damage_of(machine: Machine, queue: int = 0) -> UnitsDamaged:
    with pytest.raises(UnitsDamaged) as caught:
        machine.queues[queue].read(0, machine.queues[queue].units)
    return caught.value


async def mend(machine: Machine, *peers: Machine, meanwhile: Callable[[], object] = lambda: None) -> Damage:
    """Let a machine whose queue was found damaged ask its peers, once."""
    damage = Damage(machine, 0)
    damage.queues.report(damage_of(machine))
    meanwhile()
    async with asking() as asked, serving(peers[0]) as first, serving(peers[-1]) as last:
        task = asyncio.create_task(damage.queues.run(lambda: (first, last), asked.fetch_ready))
        async with asyncio.timeout(10):
            while damage.queues.left and not damage.queues.missed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    return damage


async def test_units_are_taken_from_the_peer_that_has_them_whole(tmp_path: Path) -> None:
    own, bad, good = (replica(tmp_path / name) for name in ("own", "bad", "good"))
    for offset in (5, 2_999):
        lose_unit(own, offset)
        lose_unit(bad, offset + (-1 if offset else 1))
    damage = await mend(own, bad, good)
    assert (damage.found, damage.repaired, damage.left) == (2, 2, 0)
    assert own.queues[0].read(0, 3_000).tobytes() == good.queues[0].read(0, 3_000).tobytes()


async def test_units_of_another_history_are_not_taken_and_stay_counted(tmp_path: Path) -> None:
    own, other = replica(tmp_path / "own"), Machine(tmp_path / "other", MachineSettings())
    other.apply(1, 1, [subscribe(), schedule([NOW_MS + 1] * 3_000), release(NOW_MS + 1)])
    lose_unit(own, 5)
    damage = await mend(own, other)
    assert (damage.found, damage.repaired, damage.left) == (1, 0, 1)
    assert damage_of(own).stretches[0].first == 0


async def test_what_was_trimmed_or_deleted_meanwhile_is_not_mended(tmp_path: Path) -> None:
    own, good = replica(tmp_path / "own"), replica(tmp_path / "good")
    lose_unit(own, 5)
    damage = await mend(own, good, meanwhile=lambda: own.apply(2, 1, [trim([0], [2_000])]))
    assert (damage.repaired, damage.left) == (0, 0)
    lose_unit(own, 2_999)
    deleted = admin(log_pb.DeleteTopicCommand(topic="t"))
    damage = await mend(own, good, meanwhile=lambda: own.apply(3, 1, [deleted]))
    assert (damage.repaired, damage.left) == (0, 0)


async def test_what_was_trimmed_is_mended_as_long_as_its_block_goes_on(tmp_path: Path) -> None:
    own, good = replica(tmp_path / "own"), replica(tmp_path / "good")
    lose_unit(own, 2_500)
    damage = await mend(own, good, meanwhile=lambda: own.apply(2, 1, [trim([0], [3_000])]))
    assert (damage.repaired, damage.left) == (1, 0)
    for index, machine in enumerate((good, own)):
        machine.apply(3 - index, 1, [schedule([NOW_MS]), release(NOW_MS)])
    assert own.queues[0].read(3_000, 1) == good.queues[0].read(3_000, 1)


async def test_what_another_state_has_replaced_is_not_mended(tmp_path: Path) -> None:
    own, good = replica(tmp_path / "own"), replica(tmp_path / "good")
    lose_unit(own, 5)
    good.write(good.capture())
    good.close()

    def replace() -> None:
        own.become(own.opened(tmp_path / "good"))

    damage = await mend(own, replica(tmp_path / "peer"), meanwhile=replace)
    assert (damage.repaired, damage.left) == (0, 0)


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_stretch_known_to_be_damaged_is_asked_for_again_at_once_when_it_is_reported_again(
    tmp_path: Path,
) -> None:
    own, asked = replica(tmp_path), []
    lose_unit(own, 5)
    damage = QueueDamage(own)
    damage.report(damage_of(own))

    async def fetch(peer: str, *_: object) -> bytes:
        asked.append(peer)
        return b""

    task = asyncio.create_task(damage.run(lambda: ["peer"], fetch))
    await some_turns()
    assert (asked, damage.missed) == (["peer"], 1)
    damage.report(damage_of(own))
    await some_turns()
    assert (asked, damage.found) == (["peer"] * 2, 1)
    task.cancel()
    await asyncio.wait([task])


async def test_who_waits_for_a_queue_goes_on_when_another_state_has_replaced_it(tmp_path: Path) -> None:
    own, other = replica(tmp_path / "own"), replica(tmp_path / "other")
    lose_unit(own, 5)
    damage = QueueDamage(own)
    damage.report(damage_of(own))
    waiting = asyncio.create_task(damage.mended(0))
    await some_turns()
    own.become(other)
    lose_unit(own, 5, queue=0)
    elsewhere = damage_of(own)
    damage.report(UnitsDamaged(1, "t", elsewhere.stretches))
    await some_turns()
    assert waiting.done()


def test_a_peer_gives_only_units_that_are_proven_and_all_there(tmp_path: Path) -> None:
    machine = replica(tmp_path)
    queues = machine.queues
    assert len(ready_units(queues, 0, 0, BLOCK_UNITS)) == BLOCK_UNITS * UNIT_BYTES
    for number, first, count in (
        (9, 0, 1),
        (0, 2_999, 2),
        (0, 0, 0),
        (0, 0, BLOCK_UNITS + 1),
        (0, 1 << 63, 1),
    ):
        assert ready_units(queues, number, first, count) == b""
    lose_unit(machine, 5)
    assert ready_units(queues, 0, 9, 1) == b""
    machine.queues[0].proof = QueueProof(3_000, machine.queues[0].proof.crc)
    assert ready_units(queues, 0, 9, 1) == b""


async def test_the_scrub_finds_a_damaged_queue_beside_damaged_hours(tmp_path: Path) -> None:
    machine = replica(tmp_path)
    lose_unit(machine, 5)
    lose_unit(machine, 2_999)
    lose_index(machine, NOW_MS // 3_600_000)
    damage = Damage(machine, 0)
    await scrub_until(Scrub(machine, damage, EVERY_MS), damage, 3)
    assert (damage.queues.left, len(damage.indices.left)) == (2, 1)


async def test_nothing_is_trimmed_by_what_a_damaged_queue_says(tmp_path: Path) -> None:
    machine, reported = replica(tmp_path), []
    lose_unit(machine, 5, field="hour")

    class Time:
        def now_ms(self) -> int:
            return NOW_MS + 10 * 24 * 3_600_000

    async def propose(command: log_pb.TrimCommand) -> None:
        raise AssertionError(command)

    def report(damage: UnitsDamaged) -> None:
        reported.append(damage)
        task.cancel()

    settings = EVERY_MS.model_copy(update={"retention_check_ms": 1})
    moves = GroupMoves(SimpleNamespace(propose=propose))  # type: ignore[arg-type]
    retention = Retention(machine, Time(), settings, propose, report, moves)  # type: ignore[arg-type]
    task = asyncio.create_task(retention.run())
    async with asyncio.timeout(10):
        await asyncio.wait([task])
    assert [damage.queue for damage in reported] == [0]


async def given_after(group: Group, wait_s: float) -> list[str]:
    await asyncio.sleep(wait_s)
    await group.settle()
    return [given.label for given in group.given]


def test_a_damaged_block_is_delivered_to_nobody_until_it_is_mended(tmp_path: Path) -> None:
    async def play() -> None:
        group = Group(tmp_path)
        labels = [group.schedule("", 10) for _ in range(BLOCK_UNITS + 3)]
        await asyncio.sleep(0.02)
        group.release()
        group.release()
        queue = group.machine.queues[group.queue]
        whole = queue.read(0, queue.units).tobytes()
        lose_unit(group.machine, BLOCK_UNITS + 1, group.queue)
        await group.fail_over(0, [])
        group.join("c", credit=5_000)
        assert sorted(await given_after(group, 0.1)) == sorted(labels[:BLOCK_UNITS])
        assert group.damage.queues.left == 1

        async def fetch(_peer: str, _queue: int, first: int, count: int) -> bytes:
            return whole[first * UNIT_BYTES : (first + count) * UNIT_BYTES]

        mending = asyncio.create_task(group.damage.queues.run(lambda: ["peer"], fetch))
        assert sorted(await given_after(group, 0.1)) == sorted(labels)
        assert group.damage.queues.left == 0
        mending.cancel()
        await group.end()

    virtual_loop.run(play())


def lose_index_unit(machine: Machine, number: int, field: str) -> bytes:
    """Turn a bit of an index unit; return the index as it was."""
    path = machine.folder / "hours" / folder_name(HOUR) / "delay.index"
    whole = path.read_bytes()
    turn_bit(path, number * INDEX_UNIT_BYTES + (INDEX_UNIT.fields or {})[field][1])
    return whole


@pytest.mark.parametrize("field", ["topic", "due_in_hour_ms"])
def test_a_message_of_which_index_and_queue_differ_waits_until_the_index_is_mended(
    tmp_path: Path, field: str
) -> None:
    async def play() -> None:
        group = Group(tmp_path)
        labels = [group.schedule("", 10) for _ in range(5)]
        await asyncio.sleep(0.02)
        group.release()
        whole = lose_index_unit(group.machine, 2, field)
        group.join("c")
        assert await given_after(group, 0.1) == [labels[number] for number in (0, 1, 3, 4)]
        assert group.damage.left == 1

        async def fetch(_peer: str, _hour: int, _units: int) -> bytes:
            return whole

        mending = asyncio.create_task(group.damage.indices.run(lambda: ["peer"], fetch))
        while group.damage.left:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # a thread writes it
        assert await given_after(group, 0.1) == [labels[number] for number in (0, 1, 3, 4, 2)]
        mending.cancel()
        await group.end()

    virtual_loop.run(play())


def test_a_unit_without_a_checksum_that_names_anothers_message_is_delivered_to_nobody(tmp_path: Path) -> None:
    async def play() -> None:
        group = Group(tmp_path)
        labels = [group.schedule("", 10) for _ in range(5)]
        await asyncio.sleep(0.02)
        group.release()
        queue = group.machine.queues[group.queue]
        queue.proof = QueueProof(queue.units, queue.proof.crc)  # as after an upgrade
        lose_unit(group.machine, 2, group.queue)
        await group.fail_over(0, [])
        group.join("c")
        await given_after(group, 0.1)
        group.damage.indices.sound(HOUR)  # as the scrub finds
        assert await given_after(group, 0.1) == [labels[number] for number in (0, 1, 3, 4)]
        assert (group.damage.queues.left, group.damage.queues.repaired) == (1, 0)
        await group.end()

    virtual_loop.run(play())


def test_what_is_trimmed_while_its_index_is_mended_is_delivered_to_nobody(tmp_path: Path) -> None:
    async def play() -> None:
        group = Group(tmp_path)
        group.schedule("", 10)
        await asyncio.sleep(0.02)
        group.release()
        lose_index_unit(group.machine, 0, "topic")
        group.join("c")
        assert await given_after(group, 0.1) == []
        (waits,) = group._tasks
        later = group.time.now_ms() + 3 * 3_600_000
        group.apply(log_pb.SeekCommand(topic="t", group="g", offset=1))
        group.machine.apply(9, 1, [schedule([later], now_ms=START_MS), release(later, now_ms=later)])
        group.machine.apply(10, 1, [trim([group.queue], [1], [HOUR])])
        assert HOUR not in group.machine.wheel.hours()
        group.damage.indices.sound(HOUR)  # as the mending finds
        await waits
        assert (group.given, group.damage.queues.left) == ([], 0)
        await group.end()

    virtual_loop.run(play())


def test_what_has_misfired_belongs_to_its_dead_letter_topic(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    settings = TopicSettings(misfire_after_ms=1, misfire=MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER)
    machine.apply(1, 1, [subscribe(), admin(log_pb.TopicCommand(topic="t", settings=settings))])
    machine.apply(2, 1, [schedule([NOW_MS + 10]), release(NOW_MS + 1_000, now_ms=NOW_MS + 1_000)])
    dead = machine.queues.find("dlq.misfired.t")
    assert dead is not None
    units = dead.read(0, 1)
    index = machine.wheel.units(units["hour"], units["global_index"])
    assert belongs(machine.queues, dead, units, index).tolist() == [True]
    assert belongs(machine.queues, machine.queues[1], units, index).tolist() == [False]
    index = index.copy()
    index["topic"] = np.uint32(4_000)
    assert belongs(machine.queues, dead, units, index).tolist() == [False]
