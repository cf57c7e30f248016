"""A command's cost is estimated by what it touches."""

from __future__ import annotations

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.replication.state_machine.command_costs import (
    BLOCK_NS,
    COMMAND_NS,
    COPY_NS,
    DROP_NS,
    HOUR_NS,
    MESSAGE_NS,
    MOVE_NS,
    OFFSET_NS,
    RECORD_BYTE_NS,
    RESCHEDULE_NS,
    RETRY_NS,
    SEARCH_NS,
    SWEEP_NS,
    TOPIC_NS,
    TRIM_NS,
    UNREAD_NS,
    cost_us,
)
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.wheel.state import HOUR_MS

COUNT = 4_096


def schedule(hours: int, *, now_ms: int = 0) -> log_pb.ScheduleCommand:
    due_ms = (np.arange(COUNT) % hours * HOUR_MS).astype("<i8").tobytes()
    request = log_pb.ScheduleColumns(topics=["t"], due_ms=due_ms, records=[b""] * COUNT)
    return log_pb.ScheduleCommand(now_ms=now_ms, request=request, keys_noted=True)


@pytest.mark.parametrize("hours", [1, 100, COUNT])
def test_a_schedule_costs_by_messages_and_hours(hours: int) -> None:
    expected = COMMAND_NS + COUNT * MESSAGE_NS + TOPIC_NS + hours * HOUR_NS
    assert cost_us(schedule(hours)) == expected // 1_000


def test_a_fire_costs_by_the_records_that_it_takes_from_the_state() -> None:
    """So many triggers of large schedules as fit into an entry would else copy 50 MiB in one turn."""
    command = log_pb.FireCommand(plans=[log_pb.SchedulePlan(fires=[log_pb.PlannedFire()])])
    large = cost_us(command, record_bytes=1 << 20) - cost_us(command)
    assert RECORD_BYTE_NS << 20 <= 1_000 * (large + 1) <= (RECORD_BYTE_NS << 20) + 2_000


def test_a_schedule_without_hashes_of_keys_costs_what_looking_for_them_takes() -> None:
    command = schedule(1)
    command.keys_noted = False
    assert cost_us(command) - cost_us(schedule(1)) == COUNT * UNREAD_NS // 1_000


def test_a_schedule_costs_by_the_topics_that_it_names() -> None:
    command = schedule(1)
    command.request.topics.extend(f"t{number}" for number in range(100))
    assert cost_us(command) - cost_us(schedule(1)) == 100 * TOPIC_NS // 1_000


def test_the_due_times_that_the_leader_worked_out_count() -> None:
    command = schedule(1)
    command.due_ms = (np.arange(COUNT) * HOUR_MS).astype("<i8").tobytes()
    assert cost_us(command) == cost_us(schedule(COUNT))


def test_a_reschedule_costs_by_messages_and_much_also_where_it_names_one() -> None:
    for count in (1, 65):
        command = log_pb.RescheduleCommand(records=[b""] * count)
        expected_ns = COMMAND_NS + RESCHEDULE_NS + count * (MOVE_NS + HOUR_NS)
        assert cost_us(command) == expected_ns // 1_000


def test_a_trim_costs_by_the_hours_that_it_drops() -> None:
    queues = log_pb.TrimCommand(queue=bytes(4 * 100), offset=bytes(8 * 100))
    assert cost_us(queues) == (COMMAND_NS + 100 * TRIM_NS) // 1_000
    hours = log_pb.TrimCommand(hour=bytes(4 * 100), units=bytes(8 * 100))
    assert cost_us(hours) == (COMMAND_NS + SWEEP_NS + 100 * DROP_NS) // 1_000


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
        (
            log_pb.RetryCommand(offset=bytes(8), dropped=True),
            log_pb.RetryCommand(offset=bytes(8 * COUNT), dropped=True),
        ),
        (log_pb.ReleaseCommand(count=1), log_pb.ReleaseCommand(count=COUNT)),
        (log_pb.ReleaseCommand(hour=bytes(4)), log_pb.ReleaseCommand(hour=bytes(4 * COUNT))),
        (log_pb.TrimCommand(hour=bytes(4)), log_pb.TrimCommand(hour=bytes(4 * COUNT))),
        (log_pb.TrimCommand(queue=bytes(4)), log_pb.TrimCommand(queue=bytes(4 * COUNT))),
    ],
)
def test_whatever_names_more_costs_more(small: log_pb.AckCommand, large: log_pb.AckCommand) -> None:
    assert cost_us(large) > 5 * cost_us(small)


@pytest.mark.parametrize("blocks", [1, 100, COUNT])
def test_what_settles_costs_by_blocks_of_the_queue_and_by_copies(blocks: int) -> None:
    offset = (np.arange(COUNT) * blocks // COUNT * BLOCK_UNITS).astype("<u8").tobytes()
    ack, retry = log_pb.AckCommand(offset=offset), log_pb.RetryCommand(offset=offset, records=[b"x"] * COUNT)
    read_ns = COMMAND_NS + blocks * BLOCK_NS
    assert cost_us(ack) == (read_ns + COUNT * OFFSET_NS) // 1_000
    assert cost_us(retry) == (read_ns + COUNT * (RETRY_NS + HOUR_NS)) // 1_000
    twice_ns = read_ns + blocks * BLOCK_NS + COUNT * COPY_NS
    assert cost_us(ack, copies=True) == twice_ns // 1_000
    assert cost_us(retry, copies=True) == (twice_ns + COUNT * (RETRY_NS + HOUR_NS)) // 1_000


def test_a_group_that_begins_at_a_time_costs_a_search() -> None:
    at_time, latest = (
        log_pb.SubscribeCommand(topic="t", group="g", start=GroupStart(at=at))
        for at in (StartAt.START_AT_TIME, StartAt.START_AT_LATEST)
    )
    assert cost_us(at_time) - SEARCH_NS // 1_000 == cost_us(latest) == COMMAND_NS // 1_000


def test_a_command_that_names_nothing_costs_little() -> None:
    assert cost_us(log_pb.SeekCommand(topic="t", group="g", offset=1 << 63)) == COMMAND_NS // 1_000
