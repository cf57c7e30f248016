"""A replica that recovers now and then is as one that runs on, whatever is rescheduled and dropped."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.state import HOUR_MS
from tests.replication.commands import NOW_MS, cancel, release, schedule, subscribe
from tests.replication.state_machine.test_machine import ids
from tests.replication.state_machine.test_reschedules import RAISE, Id, command, places

STEPS = 80


class Replicas:
    """One that runs on, and one that recovers now and then; ``known``: ids, and places that were moved to."""

    def __init__(self, chance: random.Random, folders: Sequence[Path]) -> None:
        self.chance, self.folders = chance, folders
        self.one, self.other = (self.opened(folder) for folder in folders)
        self.known: list[Id] = []
        self.now_ms = NOW_MS

    @staticmethod
    def opened(folder: Path) -> Machine:
        machine = Machine(folder, MachineSettings())
        machine.events.wanted = True
        return machine

    def do(self, *commands: bytes) -> list[Any]:
        outcomes, same = (
            machine.apply(machine.applied_index + 1, 1, commands) for machine in (self.one, self.other)
        )
        assert repr(outcomes) == repr(same)
        assert [*map(columns, self.one.take_events())] == [*map(columns, self.other.take_events())]
        if self.chance.random() < 0.3:
            self.other.write(self.other.capture())
            self.other.close()
            self.other = self.opened(self.folders[1])
        assert self.one.digest() == self.other.digest()
        return outcomes

    def schedule(self) -> None:
        due_ms = [
            self.now_ms + self.chance.randrange(12 * HOUR_MS) for _ in range(self.chance.randrange(1, 9))
        ]
        (outcome,) = self.do(schedule(due_ms, now_ms=self.now_ms))
        self.known += zip(*ids(outcome), strict=True)

    def some(self, most: int) -> list[Id]:
        return self.chance.sample(self.known, min(len(self.known), self.chance.randrange(1, most)))

    def move(self) -> None:
        names = self.some(7)
        due_ms = [self.now_ms + self.chance.randrange(-10, 12 * HOUR_MS) for _ in names]
        before = set(places(self.one, names))
        self.do(encode(command(self.one, names, due_ms, now_ms=self.now_ms)))
        self.known += {*places(self.one, names)} - before

    def cancel(self) -> None:
        self.do(cancel(self.some(3)))

    def release(self) -> None:
        self.now_ms += self.chance.randrange(2 * HOUR_MS)
        self.do(release(self.now_ms, now_ms=self.now_ms))

    def drop(self) -> None:
        wheel = self.one.wheel
        hours = [
            hour
            for hour in wheel.hours()
            if (hour + 1) * HOUR_MS <= wheel.cut.due_ms and self.chance.random() < 0.7
        ]
        trim = log_pb.TrimCommand(
            queue=np.array([0], "<u4").tobytes(),
            offset=np.array([self.one.queues[0].units], "<u8").tobytes(),
            hour=np.array(hours, "<u4").tobytes(),
            units=np.array([wheel.units_in_hour(hour) for hour in hours], "<u8").tobytes(),
            now_ms=self.now_ms,
        )
        self.do(encode(trim))

    def check(self) -> None:
        names = [np.array(column, np.uint32) for column in zip(*self.known, strict=True)]
        told = [
            machine.wheel.states(*machine.wheel.places_of(*names)).tolist()
            for machine in (self.one, self.other)
        ]
        assert told[0] == told[1]


def columns(event: Event) -> list[Any]:
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in event]


@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_replica_that_recovers_is_as_one_that_runs_on(chance: random.Random) -> None:
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr("tarry.wheel.sorted_pairs.BLOCK_PAIRS", 4)
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        replicas = Replicas(chance, folders)
        replicas.do(RAISE, subscribe())
        replicas.schedule()
        steps = [replicas.schedule, replicas.move, replicas.cancel, replicas.release, replicas.drop]
        for step in chance.choices(steps, [30, 40, 5, 15, 10], k=STEPS):
            step()
            replicas.check()
        replicas.one.close()
        replicas.other.close()
