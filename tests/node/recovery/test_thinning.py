"""A topic pays for its own bytes on disk, also where a group of another has been forgotten."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from structlog.testing import capture_logs

from tarry.node.config import Dispatch
from tarry.node.recovery import thinning
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.node.recovery.queue_hours import QueueHours
from tarry.node.recovery.thinning import Thinning, is_worthwhile
from tarry.node.repair.peer_records import index_units, whole
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.records import Damage
from tarry.node.repair.scrubber import Scrub
from tarry.proto.files import PAGE_BYTES
from tarry.replication.loop_holds import Holds
from tarry.replication.snapshot.state_files import StateSource
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.lone_leader import until
from tests.node.repair.test_queues import lose_unit
from tests.replication.commands import NOW_MS, ack, cancel, record, release, schedule, subscribe, trim
from tests.replication.state_machine.test_cluster_settings import change
from tests.replication.state_machine.test_levels import RAISE
from tests.turns import Steps, too_long

HOUR_MS = 3_600_000
HOUR = NOW_MS // HOUR_MS
BODY = bytes(range(200)) * 5


@pytest.mark.parametrize(
    ("allocated", "kept", "worth"),
    [(20_000, 3_616, True), (20_000, 3_617, False), (1_000_000, 750_000, True), (1_000_000, 750_001, False)],
)
def test_what_is_worth_the_work(allocated: int, kept: int, worth: bool) -> None:
    assert is_worthwhile(allocated, kept) is worth


class Replica:
    """A machine with its checkpoints, and what thins it."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder, MachineSettings())
        self.damage = Damage(self.machine, 0)
        self.checkpoints = Checkpoints(self.machine, Dispatch(), lambda _: None)
        self.thinning = Thinning(self.machine, self.checkpoints, self.damage, Dispatch())

    def apply(self, *commands: bytes) -> None:
        self.machine.apply(self.machine.applied_index + 1, 1, commands)

    def space(self) -> int:
        folder = self.machine.folder / "hours"
        return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))

    def read(self, topic: str) -> list[bytes | None]:
        queue = self.machine.queues.of(topic)
        units = queue.read(queue.first, queue.units)
        return self.machine.wheel.read(units["hour"], units["global_index"])


HOURS_PLAYED, BESIDE = 4, 1_000


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    """One message an hour of `rare`, whose group is forgotten, beside a thousand that `busy` is done with."""
    replica = Replica(tmp_path)
    replica.apply(subscribe("rare"), subscribe("busy"))
    for hour in range(HOURS_PLAYED):
        due = NOW_MS + hour * HOUR_MS
        replica.apply(
            schedule([due + at for at in range(500)], topic="busy", bodies=[BODY] * 500),
            schedule([due + 600], topic="rare", bodies=[b"rare %d" % hour]),
            schedule([due + 700 + at for at in range(500)], topic="busy", bodies=[BODY] * 500),
        )
    replica.apply(release(NOW_MS + 10 * HOUR_MS))
    done = HOURS_PLAYED * BESIDE
    replica.apply(ack(range(done), queue=replica.machine.queues.of("busy").queue))
    yield replica
    replica.machine.close()


RARE = [record(b"rare %d" % hour) for hour in range(HOURS_PLAYED)]


def trimmed(replica: Replica) -> bytes:
    return trim([replica.machine.queues.of("busy").queue], [HOURS_PLAYED * BESIDE])


async def test_a_forgotten_group_keeps_its_own_messages_and_no_others(replica: Replica) -> None:
    await replica.checkpoints.write()
    before, digest = replica.space(), replica.machine.digest()
    assert before > HOURS_PLAYED * BESIDE * len(BODY)
    await replica.thinning.look()
    await replica.checkpoints.write()
    assert replica.space() == before  # what is kept for its retention is not thinned out
    replica.apply(trimmed(replica))
    digest = replica.machine.digest()
    await replica.thinning.look()
    await replica.checkpoints.write()
    assert replica.space() < before / 50
    assert replica.read("rare") == RARE
    assert replica.machine.digest() == digest
    assert replica.damage.left == 0


async def test_an_hour_is_whole_while_idempotency_keys_of_its_messages_count(replica: Replica) -> None:
    replica.apply(trimmed(replica), RAISE, change(seed=True))
    first_end_ms = (HOUR + 1) * HOUR_MS
    window_ms = replica.machine.frontier_ms - HOUR_MS - first_end_ms  # that of the first hour is just over
    replica.apply(change(idempotency_window_ms=window_ms + 1))
    await replica.thinning.look()
    assert list(replica.thinning._done) == []
    replica.apply(change(idempotency_window_ms=window_ms))
    await replica.thinning.look()
    assert list(replica.thinning._done) == [HOUR]


async def test_hours_are_thinned_from_the_level_on_at_which_all_nodes_know_such_hours(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    async def look() -> None:
        looked.append(replica.machine.level)

    monkeypatch.setattr(replica.thinning, "look", look)
    monkeypatch.setattr(replica.thinning, "_settings", Dispatch(retention_check_ms=1))
    running = asyncio.ensure_future(replica.thinning.run())
    await asyncio.sleep(0.05)
    assert looked == []
    replica.machine.level = 2
    await until(lambda: bool(looked))
    running.cancel()


async def test_a_queue_that_is_cut_to_its_end_points_into_no_hour(replica: Replica) -> None:
    hours, busy = QueueHours(RecordReads(replica.machine)), replica.machine.queues.of("busy")
    assert [None async for _ in hours.read(busy, 0)]
    assert hours.of(busy.queue) == {HOUR + at: BESIDE for at in range(HOURS_PLAYED)}
    assert not [None async for _ in hours.read(busy, busy.units)]
    assert hours.of(busy.queue) == {}


async def test_nothing_is_given_back_before_a_checkpoint_knows_that_it_was_trimmed(replica: Replica) -> None:
    await replica.checkpoints.write()
    before = replica.space()
    replica.apply(trimmed(replica))
    await replica.thinning.look()
    assert replica.space() >= before
    replica.machine.close()
    crashed = Machine(replica.machine.folder, MachineSettings())
    busy = crashed.queues.of("busy")
    units = busy.read(busy.first, busy.units)
    assert crashed.wheel.read(units["hour"], units["global_index"]) == [record(BODY)] * len(units)
    crashed.close()
    replica.machine = Machine(replica.machine.folder, MachineSettings())


async def test_an_hour_is_thinned_again_once_less_is_needed(replica: Replica) -> None:
    busy = replica.machine.queues.of("busy").queue
    replica.apply(trim([busy], [600]))
    await replica.thinning.look()
    await replica.checkpoints.write()
    state = replica.machine.wheel.upkeep.hour_state(HOUR)
    replica.apply(trim([busy], [650]))
    await replica.thinning.look()
    assert replica.machine.wheel.upkeep.hour_state(HOUR) is state  # little has come free
    replica.apply(trim([busy], [999]))
    await replica.thinning.look()
    await replica.checkpoints.write()
    assert replica.machine.wheel.upkeep.allocated_bytes(HOUR) < 30_000
    assert replica.read("busy")[0] == record(BODY)


@pytest.mark.parametrize("when", ["_passed", "_counts", "_chosen", "_kept"])
async def test_what_comes_or_is_released_meanwhile_stays(
    replica: Replica, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = NOW_MS + 20 * HOUR_MS
    replica.apply(trimmed(replica), subscribe("late"))
    due = [later + at for at in range(300)]
    replica.apply(schedule(due, topic="late", bodies=[BODY] * 300))
    replica.apply(cancel([(later // HOUR_MS, at) for at in range(250)]))
    step = getattr(replica.thinning, when)

    async def meanwhile(*arguments: Any) -> Any:
        found = await step(*arguments)
        monkeypatch.undo()
        replica.apply(schedule([NOW_MS + 1], topic="late", bodies=[b"overdue"], now_ms=NOW_MS))
        replica.apply(release(later + 10 * HOUR_MS))
        return found

    monkeypatch.setattr(replica.thinning, when, meanwhile)
    await replica.thinning.look()
    await replica.checkpoints.write()
    late = [record(b"overdue"), *[record(BODY)] * 50]
    assert replica.read("late") == late
    await replica.thinning.look()
    await replica.checkpoints.write()
    assert (replica.read("late"), replica.read("rare")) == (late, RARE)


async def test_nothing_is_thinned_while_a_snapshot_is_given_away(replica: Replica) -> None:
    replica.apply(trimmed(replica))
    states = [replica.machine.wheel.upkeep.hour_state(HOUR + at) for at in range(HOURS_PLAYED)]
    replica.machine.snapshots += 1
    await replica.thinning.look()
    replica.machine.snapshots -= 1
    async with replica.checkpoints.writing:
        await replica.thinning.look()
    assert [replica.machine.wheel.upkeep.hour_state(HOUR + at) for at in range(HOURS_PLAYED)] == states


async def test_a_snapshot_gives_what_it_has_told_also_of_hours_that_were_thinned_just_before(
    replica: Replica,
) -> None:
    replica.apply(trimmed(replica))
    await replica.thinning.look()
    opened = await StateSource(replica.machine, replica.checkpoints.write).open_snapshot()
    before = replica.space()
    await replica.thinning.look()
    for place, file in enumerate(opened.manifest.files):
        assert google_crc32c.value(opened.read(place, 0, file.size_bytes)) == file.crc32c, file.name
    opened.close()
    await replica.thinning.look()
    assert replica.space() == before - HOURS_PLAYED * PAGE_BYTES  # the last page of each log


async def test_a_full_disk_leaves_hours_as_they_are_and_the_node_goes_on(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.apply(trimmed(replica))
    states = [replica.machine.wheel.upkeep.hour_state(HOUR + at) for at in range(HOURS_PLAYED)]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with capture_logs() as logged:
        await replica.thinning.look()
    assert [one["event"] for one in logged] == ["hour not thinned"] * HOURS_PLAYED
    monkeypatch.undo()
    assert [replica.machine.wheel.upkeep.hour_state(HOUR + at) for at in range(HOURS_PLAYED)] == states
    await replica.thinning.look()
    assert replica.thinning._done.keys() == {HOUR + at for at in range(HOURS_PLAYED)}


async def test_an_hour_that_is_thinned_while_the_scrub_looks_at_it_is_no_damage(replica: Replica) -> None:
    replica.apply(trimmed(replica))

    async def thinned_before(work: Callable[[], Any]) -> Any:
        await replica.thinning.look()
        return work()

    scrub = Scrub(replica.machine, replica.damage, Dispatch(), thinned_before)
    await scrub._look_at(HOUR)
    assert replica.thinning._done.keys() == {HOUR + at for at in range(HOURS_PLAYED)}
    assert replica.damage.found == 0


async def test_a_peer_is_given_what_is_kept_and_the_index_as_it_is(replica: Replica) -> None:
    replica.apply(trimmed(replica))
    await replica.thinning.look()
    await replica.checkpoints.write()
    wheel, state = replica.machine.wheel, replica.machine.wheel.upkeep.hour_state(HOUR)
    assert state is not None
    assert whole(wheel, HOUR, np.array([3, 500], np.uint32)) == ([500], [RARE[0]])
    assert whole(wheel, HOUR, np.array([3], np.uint32)) == ([], [])
    assert wheel.upkeep.mend_index(state, index_units(wheel, HOUR, 0, state.units))


async def test_nothing_is_thinned_by_what_a_damaged_queue_says(replica: Replica) -> None:
    replica.apply(trimmed(replica))
    rare = replica.machine.queues.of("rare")
    rare.flush()
    lose_unit(replica.machine, 0, rare.queue)
    await replica.thinning.look()
    assert replica.damage.queues.left
    state = replica.machine.wheel.upkeep.hour_state(HOUR)
    assert state is not None
    assert replica.machine.wheel.readable(np.array([HOUR]), np.array([0], np.uint32)).all()


async def test_a_cancelled_message_is_thinned_out_and_a_pending_one_keeps_its_hour(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    due = [NOW_MS + at for at in range(200)]
    replica.apply(subscribe(), schedule(due, bodies=[BODY] * 200), cancel([(HOUR, at) for at in range(150)]))
    replica.apply(release(NOW_MS + 100))
    await replica.thinning.look()
    assert replica.machine.wheel.readable(*ids(200)).all()
    replica.apply(release(NOW_MS + 10 * HOUR_MS))
    await replica.thinning.look()
    assert np.flatnonzero(replica.machine.wheel.readable(*ids(200))).tolist() == [*range(150, 200)]
    replica.machine.close()


def ids(count: int) -> tuple[Any, Any]:
    return np.full(count, HOUR, np.uint32), np.arange(count, dtype=np.uint32)


def test_many_hours_are_looked_at_over_many_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "GAIN_BYTES_MIN", 0)
    many = 600

    async def play(steps: Steps, holds: Holds) -> None:
        replica = Replica(tmp_path / str(id(steps)))
        replica.apply(subscribe(), subscribe(group="h"))
        due = [NOW_MS + hour * HOUR_MS for hour in range(many) for _ in range(2)]
        replica.apply(schedule(due, bodies=[BODY * 9] * len(due)))
        for week in range(many // 168 + 2):
            replica.apply(release(NOW_MS + week * 168 * HOUR_MS))
        async with steps.step("look"):
            await replica.thinning.look()
        replica.machine.close()

    assert too_long(play) == {}
