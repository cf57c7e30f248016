"""A command's cost is estimated by what it touches."""

from __future__ import annotations

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.command_costs import (
    COMMAND_NS,
    COPY_NS,
    HOUR_NS,
    MESSAGE_NS,
    TOPIC_NS,
    cost_us,
)
from tarry.wheel.state import HOUR_MS

COUNT = 4_096


def schedule(hours: int, *, now_ms: int = 0) -> log_pb.ScheduleCommand:
    due_ms = (np.arange(COUNT) % hours * HOUR_MS).astype("<i8").tobytes()
    request = log_pb.ScheduleColumns(topics=["t"], due_ms=due_ms, records=[b""] * COUNT)
    return log_pb.ScheduleCommand(now_ms=now_ms, request=request)


@pytest.mark.parametrize("hours", [1, 100, COUNT])
def test_a_schedule_costs_by_messages_and_hours(hours: int) -> None:
    expected = COMMAND_NS + COUNT * MESSAGE_NS + TOPIC_NS + hours * HOUR_NS
    assert cost_us(schedule(hours)) == expected // 1_000


def test_a_schedule_costs_by_the_topics_that_it_names() -> None:
    command = schedule(1)
    command.request.topics.extend(f"t{number}" for number in range(100))
    assert cost_us(command) - cost_us(schedule(1)) == 100 * TOPIC_NS // 1_000


def test_the_due_times_that_the_leader_worked_out_count() -> None:
    command = schedule(1)
    command.due_ms = (np.arange(COUNT) * HOUR_MS).astype("<i8").tobytes()
    assert cost_us(command) == cost_us(schedule(COUNT))


@pytest.mark.parametrize("hours", [1, 100, COUNT])
def test_a_cancel_costs_by_hours_too(hours: int) -> None:
    hour = (np.arange(COUNT) % hours).astype("<u4").tobytes()
    command = log_pb.CancelCommand(hour=hour, global_index=bytes(4 * COUNT))
    assert cost_us(command) == (COMMAND_NS + COUNT * MESSAGE_NS + hours * HOUR_NS) // 1_000


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (log_pb.AckCommand(offset=bytes(8)), log_pb.AckCommand(offset=bytes(8 * COUNT))),
        (log_pb.RetryCommand(records=[b"x"]), log_pb.RetryCommand(records=[b"x"] * COUNT)),
        (log_pb.ReleaseCommand(count=1), log_pb.ReleaseCommand(count=COUNT)),
        (log_pb.ReleaseCommand(hour=bytes(4)), log_pb.ReleaseCommand(hour=bytes(4 * COUNT))),
        (log_pb.TrimCommand(hour=bytes(4)), log_pb.TrimCommand(hour=bytes(4 * COUNT))),
        (log_pb.TrimCommand(queue=bytes(4)), log_pb.TrimCommand(queue=bytes(4 * COUNT))),
    ],
)
def test_whatever_names_more_costs_more(small: log_pb.AckCommand, large: log_pb.AckCommand) -> None:
    assert cost_us(large) > 5 * cost_us(small)


def test_an_ack_of_copies_costs_what_reading_each_does() -> None:
    ack = log_pb.AckCommand(offset=bytes(8 * COUNT))
    assert cost_us(ack, copies=True) == (COMMAND_NS + COUNT * COPY_NS) // 1_000 > 10 * cost_us(ack)


def test_a_command_that_names_nothing_costs_little() -> None:
    assert cost_us(log_pb.SeekCommand(topic="t", group="g", offset=1 << 63)) == COMMAND_NS // 1_000
