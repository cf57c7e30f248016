"""What a forgotten group costs on disk: its own messages, beside 48,000 that another group is done with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.node.config import Dispatch
from tarry.node.leader.retention import Kept
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.node.recovery.thinning import Thinning
from tarry.node.repair.records import Damage
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, ack, record, release, schedule, subscribe

HOUR_MS = 3_600_000
HOURS, AN_HOUR = 48, 1_000
BODY = b"x" * 1_000
AIM_BYTES = 516_000
"""A hundredth of what they took as long as hours went whole."""


def space(machine: Machine) -> int:
    """Return the disk space of messages: of hours and ready queues."""
    files = [path for name in ("hours", "ready") for path in (machine.folder / name).rglob("*")]
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    yield opened
    opened.close()


def apply(machine: Machine, *commands: bytes) -> None:
    machine.apply(machine.applied_index + 1, 1, commands)


async def pass_by(machine: Machine) -> tuple[int, int]:
    """Play 48 hours, then retention, thinning and their checkpoints; the space before and after."""
    checkpoints = Checkpoints(machine, Dispatch(), lambda _: None)
    thinning = Thinning(machine, checkpoints, Damage(machine, 0), Dispatch())
    apply(machine, subscribe("rare", "forgotten"), subscribe("busy"))
    for hour in range(HOURS):
        due = [NOW_MS + hour * HOUR_MS + 3 * at for at in range(AN_HOUR)]
        among = 20 * hour + 7
        apply(
            machine,
            schedule(due[:among], topic="busy", bodies=[BODY] * among),
            schedule([due[among]], topic="rare", bodies=[BODY]),
            schedule(due[among:], topic="busy", bodies=[BODY] * (AN_HOUR - among)),
        )
        apply(machine, release(due[-1] + 1, now_ms=due[-1] + 1))
        await checkpoints.write()
    busy, now_ms = machine.queues.of("busy"), NOW_MS + (HOURS + 3) * HOUR_MS
    apply(machine, ack(range(HOURS * AN_HOUR), queue=busy.queue), release(now_ms, now_ms=now_ms))
    await checkpoints.write()
    before = space(machine)
    for command in await Kept(machine, HOUR_MS).plan(now_ms):
        apply(machine, encode(command))
    for _ in range(2):  # the last page of a log goes with the second look
        await thinning.look()
        await checkpoints.write()
    return before, space(machine)


def test_a_forgotten_group_keeps_a_hundredth_of_what_lies_beside_its_messages(machine: Machine) -> None:
    before, after = asyncio.run(pass_by(machine))
    assert before > HOURS * AN_HOUR * len(BODY)
    assert after <= AIM_BYTES, f"{after} of {before} bytes"
    rare = machine.queues.of("rare")
    units = rare.read(rare.first, rare.units)
    assert machine.wheel.read(units["hour"], units["global_index"]) == [record(BODY)] * HOURS
