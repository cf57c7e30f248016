"""A checkpoint costs the event loop no more than a look at each hour, producer and queue."""

from pathlib import Path

import pytest

from tarry.replication import wheel_checkpoint
from tarry.replication.machine import Machine, MachineSettings
from tarry.wheel.state import HourState
from tests.replication.commands import NOW_MS, schedule

HOUR_MS = 3_600_000
HOURS = 50


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The hours of which a message was built."""
    hours, serialized = [], wheel_checkpoint._serialized

    def noted(state: HourState) -> bytes:
        hours.append(state.hour)
        return serialized(state)

    monkeypatch.setattr(wheel_checkpoint, "_serialized", noted)
    return hours


def test_an_hour_is_built_once_in_the_thread_that_writes_and_anew_only_when_it_changes(
    tmp_path: Path, built: list[int]
) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS + hour * HOUR_MS for hour in range(HOURS)])])
    first = machine.capture()
    assert built == []
    machine.write(first)
    assert len(built) == HOURS
    machine.apply(2, 1, [schedule([NOW_MS + 7 * HOUR_MS])])
    machine.write(machine.capture())
    assert built[HOURS:] == [NOW_MS // HOUR_MS + 7]
    expected = machine.digest()
    machine.close()
    again = Machine(tmp_path, MachineSettings())
    assert again.digest() == expected
    assert again.wheel.pending == HOURS + 1
    again.close()


def test_the_first_checkpoint_after_a_start_takes_the_hours_as_the_last_one_had_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [schedule([NOW_MS + hour * HOUR_MS for hour in range(HOURS)])])
    machine.write(machine.capture())
    machine.close()
    again = Machine(tmp_path, MachineSettings())
    hours = {partition.hour: partition._recovered for partition in again.wheel._hours}
    assert all(hours[state.hour] is state for state in again.capture().wheel.hours)
    again.close()
