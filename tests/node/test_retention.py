"""What may be forgotten, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.node.retention import plan
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication import command
from tarry.replication.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, ack, admin, release, schedule, subscribe

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RETENTION_MS = 3 * DAY_MS


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    opened.apply(1, 1, [subscribe(), schedule([NOW_MS + i for i in range(4)]), release(NOW_MS + 10)])
    yield opened
    opened.close()


def cuts(planned: log_pb.TrimCommand | None) -> dict[int, int]:
    if planned is None:
        return {}
    numbers = np.frombuffer(planned.queue, "<u4").tolist()
    return dict(zip(numbers, np.frombuffer(planned.offset, "<u8").tolist(), strict=True))


def test_what_a_group_is_not_past_is_kept_for_ever(machine: Machine) -> None:
    assert plan(machine, NOW_MS + 100 * DAY_MS, RETENTION_MS) is None


def test_what_every_group_is_past_goes_when_its_time_is_over(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 3])])
    assert plan(machine, NOW_MS + RETENTION_MS - 1, RETENTION_MS) is None
    assert cuts(plan(machine, NOW_MS + RETENTION_MS + 1, RETENTION_MS)) == {0: 2}


def test_a_topic_may_say_how_long(machine: Machine) -> None:
    settings = TopicSettings(retention_ms=5_000)
    machine.apply(2, 1, [ack([0, 1]), admin(log_pb.TopicCommand(topic="t", settings=settings))])
    assert cuts(plan(machine, NOW_MS + 5_001, RETENTION_MS)) == {0: 2}


def test_an_hour_goes_whole_once_nothing_points_into_it(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2]), release(NOW_MS + 5 * DAY_MS)])
    late = NOW_MS + 5 * DAY_MS
    planned = plan(machine, late, RETENTION_MS)
    assert planned is not None
    assert planned.hour == b""
    machine.apply(3, 1, [ack([3])])
    planned = plan(machine, late, RETENTION_MS)
    assert planned is not None
    assert np.frombuffer(planned.hour, "<u4").tolist() == [NOW_MS // HOUR_MS]
    machine.apply(4, 1, [command.encode(planned)])
    assert machine.wheel.hours() == ()
    assert plan(machine, late, RETENTION_MS) is None


def test_an_hour_with_a_pending_message_stays(machine: Machine) -> None:
    machine.apply(2, 1, [schedule([NOW_MS + 9 * DAY_MS]), ack([0, 1, 2, 3]), release(NOW_MS + 5 * DAY_MS)])
    planned = plan(machine, NOW_MS + 5 * DAY_MS, RETENTION_MS)
    assert planned is not None
    assert np.frombuffer(planned.hour, "<u4").tolist() == [NOW_MS // HOUR_MS]
