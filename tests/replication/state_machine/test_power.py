"""A replica whose power is lost at any write of its files: after a replay its state is that of all others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.power import Power, losses
from tests.replication.commands import NOW_MS, ack, record, release, schedule, subscribe, trim

HOUR_MS = 3_600_000
HOUR = NOW_MS // HOUR_MS
COUNT = 3_000
KEPT = 2_500
"""Trimmed below this, so that blocks of 1,024 units become holes, and their hour is thinned."""
BODY = bytes(200)


@cache
def entries() -> tuple[tuple[bytes, ...], ...]:
    """Return the commands of each entry, from 1: among them the raise of the level."""
    due = [NOW_MS + at for at in range(COUNT)]
    return (
        (subscribe(),),
        (schedule(due, bodies=[BODY] * COUNT),),
        (release(NOW_MS + 4 * HOUR_MS), ack(range(KEPT))),
        (encode(log_pb.RaiseLevelCommand(level=levels.HIGHEST)),),
        (trim([0], [KEPT]),),
        (schedule([NOW_MS + 5 * HOUR_MS], bodies=[b"later"]), release(NOW_MS + 6 * HOUR_MS)),
    )


def apply_to(machine: Machine, last: int) -> None:
    for index in range(machine.applied_index + 1, last + 1):
        machine.apply(index, 1, entries()[index - 1])


def checkpoint(machine: Machine) -> None:
    machine.write(machine.capture())


def play(data: Path, power: Power) -> None:
    """Raise the level, trim, thin, and go on, with a checkpoint after each step."""
    machine = Machine(data / "state-1", MachineSettings())
    try:
        for last in (4, 5):
            apply_to(machine, last)
            power.use()
            checkpoint(machine)
        state = machine.wheel.upkeep.hour_state(HOUR)
        assert state is not None
        assert machine.wheel.upkeep.thin(
            machine.wheel.upkeep.write_thin(state, np.arange(KEPT, COUNT, dtype=np.uint32))
        )
        checkpoint(machine)
        machine.wheel.punch_tails()
        apply_to(machine, 6)
        checkpoint(machine)
    finally:
        machine.close()


def begin(data: Path) -> None:
    machine = Machine(data / "state-1", MachineSettings())
    apply_to(machine, 3)
    checkpoint(machine)
    machine.close()


def test_power_lost_at_any_write_costs_nothing_that_a_replay_does_not_bring_back(tmp_path: Path) -> None:
    whole = Machine(tmp_path / "whole", MachineSettings())
    apply_to(whole, 6)
    digest = whole.digest()
    whole.close()
    starts = set()
    for data, was_lost in losses(tmp_path / "lost", begin, play):
        again = Machine(data / "state-1", MachineSettings())
        starts.add((again.applied_index, again.level))
        assert was_lost or again.applied_index == 6
        apply_to(again, 6)
        assert (again.digest(), again.level) == (digest, levels.HIGHEST)
        queue = again.queues[0]
        units = queue.read(queue.first, queue.units)
        assert (queue.first, len(units)) == (KEPT, COUNT - KEPT + 1)
        records = again.wheel.read(units["hour"], units["global_index"])
        assert records == [record(BODY)] * (COUNT - KEPT) + [record(b"later")]
        checkpoint(again)
        again.close()
    assert {index for index, _ in starts} == {3, 4, 5, 6}
    assert all(level == (levels.HIGHEST if index > 3 else levels.FIRST) for index, level in starts)
