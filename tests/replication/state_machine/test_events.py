"""What the state machine tells of an entry: complete, in order, and the same on every replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.delivery import retries
from tarry.node.delivery.retries import Delay
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import GroupMove, Kind
from tarry.proto.tarry_message_pb2 import Record, Retried, RetryReason
from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.policies import policy
from tests.replication.commands import NOW_MS, ack, admin, cancel, release, schedule, subscribe, trim

HOUR = NOW_MS // 3_600_000
NACKED = RetryReason.RETRY_REASON_NACKED


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    opened.events.wanted = True
    yield opened
    opened.close()


def events(machine: Machine, *commands: bytes) -> list[Event]:
    machine.apply(machine.applied_index + 1, 1, commands)
    return machine.take_events()


def ids(event: Event) -> list[tuple[int, int]]:
    assert event.hour is not None
    assert event.global_index is not None
    return list(zip(event.hour.tolist(), event.global_index.tolist(), strict=True))


def listed(column: np.ndarray[Any, Any] | None) -> list[int] | None:
    return None if column is None else column.tolist()


def given_up(machine: Machine, queue: int, offset: int, attempts_max: int) -> bytes:
    """The leader's command after a nack of one delivery."""
    of = machine.queues[queue]
    units = of.at(np.array([offset], dtype=np.uint64))
    record = machine.wheel.read(units["hour"], units["global_index"])[0]
    assert record is not None
    (command,) = retries.commands(
        0,
        of,
        "g",
        np.array([offset], dtype=np.uint64),
        units,
        [record],
        NACKED,
        Delay(0),
        NOW_MS + 2_000,
        policy(attempts_max=attempts_max),
    )
    return encode(command)


def test_an_entry_that_nobody_asks_about_gathers_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    assert events(machine, schedule([NOW_MS + 500])) == []
    machine.close()


def test_a_life_is_told_in_order_with_places_offsets_and_times(machine: Machine) -> None:
    (created,) = events(machine, subscribe())
    assert (created.kind, created.detail, listed(created.offset)) == (
        Kind.GROUP_MOVED,
        GroupMove.CREATED,
        [0],
    )
    (scheduled,) = events(machine, schedule([NOW_MS + 500, NOW_MS + 700]), schedule([NOW_MS - 9]))
    assert scheduled.kind is Kind.SCHEDULED
    assert ids(scheduled) == [(HOUR, 0), (HOUR, 1), (HOUR, 2)]
    (released,) = events(machine, release(NOW_MS + 500, now_ms=NOW_MS + 450))
    assert (released.kind, released.at_ms, ids(released)) == (
        Kind.RELEASED,
        NOW_MS + 450,
        [(HOUR, 2), (HOUR, 0)],
    )
    assert listed(released.offset) == [0, 1]
    (acked,) = events(machine, ack([1, 0]))
    assert (acked.kind, ids(acked), listed(acked.attempt)) == (Kind.ACKED, [(HOUR, 0), (HOUR, 2)], [1, 1])
    assert listed(acked.due_ms) == [NOW_MS + 500, NOW_MS]
    assert events(machine, ack([1])) == []  # done before


def test_what_is_overdue_on_arrival_is_scheduled_then_released(machine: Machine) -> None:
    events(machine, schedule([NOW_MS]), release(NOW_MS + 5_000))
    told = events(machine, schedule([NOW_MS + 100]))
    assert [event.kind for event in told] == [Kind.SCHEDULED, Kind.RELEASED]
    assert ids(told[0]) == ids(told[1])


def test_retries_and_the_dead_letter_name_the_message_that_was_scheduled(machine: Machine) -> None:
    events(machine, subscribe(), schedule([NOW_MS]), release(NOW_MS))
    (retried,) = events(machine, given_up(machine, 0, 0, attempts_max=2))
    assert (retried.kind, retried.detail, retried.group) == (Kind.RETRIED, "NACKED", "g")
    assert (ids(retried), listed(retried.attempt)) == ([(HOUR, 0)], [1])
    assert listed(retried.due_ms) == [NOW_MS + 2_000]
    (again,) = events(machine, release(NOW_MS + 2_000))
    assert (again.kind, again.queue) == (Kind.RELEASED, 1)
    assert (ids(again), listed(again.attempt)) == ([(HOUR, 0)], [2])
    dead, letter, *rest = events(machine, given_up(machine, 1, 0, attempts_max=2))
    assert (dead.kind, dead.detail, ids(dead), listed(dead.attempt)) == (
        Kind.DEAD,
        "NACKED",
        [(HOUR, 0)],
        [2],
    )
    assert (letter.kind, letter.detail) == (Kind.SCHEDULED, "DEAD_LETTER")
    assert [event.kind for event in rest] == [Kind.RELEASED]
    assert ids(letter) == ids(rest[0]) != [(HOUR, 0)]


def test_a_redriven_letter_is_done_with_and_its_message_retried(machine: Machine) -> None:
    events(machine, subscribe("dlq", "~redrive"), schedule([NOW_MS], topic="dlq"), release(NOW_MS))
    copy = Retried(record=Record().SerializeToString(), hour=HOUR, global_index=77, attempt=1)
    command = log_pb.RetryCommand(
        group="~redrive",
        queue=0,
        offset=np.array([0], "<u8").tobytes(),
        due_ms=np.array([NOW_MS], "<i8").tobytes(),
        tag_mask=np.zeros(1, "<u8").tobytes(),
        records=[copy.SerializeToString()],
        target_topic="t",
        target_group="g",
        now_ms=NOW_MS,
    )
    acked, again, released = events(machine, encode(command))
    assert (acked.kind, acked.group, ids(acked)) == (Kind.ACKED, "~redrive", [(HOUR, 0)])
    assert (again.kind, again.detail, again.topic, again.group) == (Kind.RETRIED, "REDRIVEN", "t", "g")
    assert ids(again) == ids(released) == [(HOUR, 77)]


def test_a_letter_that_names_no_message_that_can_be_is_told_of_without_one(machine: Machine) -> None:
    events(machine, subscribe("dlq", "~redrive"), schedule([NOW_MS], topic="dlq"), release(NOW_MS))
    copy = Retried(hour=2**31, global_index=2**32 - 1, attempt=2**32 - 1)
    command = log_pb.RetryCommand(
        group="~redrive",
        queue=0,
        offset=np.array([0], "<u8").tobytes(),
        due_ms=np.array([NOW_MS], "<i8").tobytes(),
        tag_mask=np.zeros(1, "<u8").tobytes(),
        records=[copy.SerializeToString()],
        target_topic="t",
        target_group="g",
        now_ms=NOW_MS,
    )
    _, again, released = events(machine, encode(command))
    assert listed(again.hour) == listed(released.hour) == [-1]
    assert listed(released.attempt) == [2**31 - 1]


def test_only_what_was_pending_is_told_as_cancelled_and_once(machine: Machine) -> None:
    events(machine, schedule([NOW_MS + 500, NOW_MS + 600, NOW_MS]), release(NOW_MS))
    (told,) = events(machine, cancel([(HOUR, 1), (HOUR, 2), (HOUR, 1), (HOUR, 99)]))
    assert (told.kind, ids(told), listed(told.due_ms)) == (Kind.CANCELLED, [(HOUR, 1)], [NOW_MS + 600])
    assert events(machine, cancel([(HOUR, 1)])) == []


def test_a_retry_that_is_cancelled_or_deleted_is_told_of_the_message_that_it_stands_for(
    machine: Machine,
) -> None:
    events(machine, subscribe(), schedule([NOW_MS] * 2 + [NOW_MS + 500]), release(NOW_MS))
    for offset in range(2):
        events(machine, given_up(machine, 0, offset, attempts_max=9))
    first_copy = 3
    own, copy = events(machine, cancel([(HOUR, first_copy), (HOUR, 2)]))
    assert (own.kind, own.queue, ids(own)) == (Kind.CANCELLED, 0, [(HOUR, 2)])
    assert (copy.kind, copy.queue, ids(copy)) == (Kind.CANCELLED, 1, [(HOUR, 0)])
    assert listed(copy.attempt) == [2]
    events(machine, admin(log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS)))
    (expired,) = events(machine, release(NOW_MS + 2_000))
    assert (expired.kind, expired.queue, ids(expired)) == (Kind.EXPIRED, 1, [(HOUR, 1)])


def test_what_is_trimmed_before_a_group_has_acknowledged_it_has_expired_for_that_group(
    machine: Machine,
) -> None:
    events(machine, subscribe(), subscribe(group="h"), schedule([NOW_MS] * 5), release(NOW_MS))
    events(machine, ack([0, 2]), ack([0, 1, 2, 3], group="h"))
    told = events(machine, trim([0], [3]))
    expired, moved = told
    assert (expired.kind, expired.detail, expired.queue, expired.group) == (Kind.EXPIRED, "RETENTION", 0, "g")
    assert (ids(expired), listed(expired.offset)) == ([(HOUR, 1)], [1])
    assert (moved.kind, moved.detail, moved.group) == (Kind.GROUP_MOVED, GroupMove.TRIMMED, "g")
    assert [machine.queues.uses.of("t", group).expired for group in ("g", "h")] == [1, 0]
    assert events(machine, trim([0], [3])) == []
    assert machine.queues.uses.of("t", "g").expired == 1
    machine.write(machine.capture())
    machine.close()
    again = Machine(machine.folder, MachineSettings())
    assert again.queues.uses.of("t", "g").expired == 1
    again.close()


def test_a_retry_that_expires_is_told_of_the_message_that_it_stands_for_though_its_hour_goes_too(
    machine: Machine,
) -> None:
    events(machine, subscribe(), schedule([NOW_MS] * 2), release(NOW_MS))
    events(machine, given_up(machine, 0, 1, attempts_max=9))
    events(machine, release(NOW_MS + 10_000_000))
    told = events(machine, trim([0, 1], [2, 1], [HOUR]))
    assert machine.wheel.hours() == ()
    of_topic, of_retries = (one for one in told if one.kind is Kind.EXPIRED)
    assert (of_topic.queue, ids(of_topic), listed(of_topic.attempt)) == (0, [(HOUR, 0)], [1])
    assert (of_retries.queue, ids(of_retries), listed(of_retries.attempt)) == (1, [(HOUR, 1)], [2])


def test_redrives_lose_nothing_that_is_trimmed(machine: Machine) -> None:
    events(machine, subscribe(group="~redrive"), schedule([NOW_MS] * 2), release(NOW_MS))
    (moved,) = events(machine, trim([0], [1]))
    assert moved.kind is Kind.GROUP_MOVED
    assert machine.queues.uses.of("t", "~redrive").expired == 0


LARGE = Record(body=bytes(200_000)).SerializeToString()


def retry_large(machine: Machine, count: int) -> list[tuple[int, int]]:
    """Have large messages delivered and nacked; the ids of the copies, due at NOW_MS + 2_000."""
    due_ms = np.full(count, NOW_MS, "<i8").tobytes()
    columns = log_pb.ScheduleColumns(topics=["t"], due_ms=due_ms, records=[LARGE] * count)
    scheduled = encode(log_pb.ScheduleCommand(now_ms=NOW_MS, request=columns))
    events(machine, subscribe(), scheduled, release(NOW_MS))
    for offset in range(count):
        events(machine, given_up(machine, 0, offset, attempts_max=9))
    return [(HOUR, count + number) for number in range(count)]


def test_of_large_copies_little_is_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    count, bytes_read, pread = 12, 0, os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal bytes_read
        bytes_read += size
        return pread(fd, size, offset)

    retry_large(machine, count)
    monkeypatch.setattr(os, "pread", counted)
    (released,) = events(machine, release(NOW_MS + 2_000))
    assert (ids(released), listed(released.attempt)) == ([(HOUR, n) for n in range(count)], [2] * count)
    (acked,) = events(machine, ack(list(range(count)), queue=1))
    assert (ids(acked), listed(acked.attempt)) == ([(HOUR, n) for n in range(count)], [2] * count)
    assert bytes_read < 2 * count * 200


@pytest.mark.parametrize("place", ["tag", "length", "behind"])
def test_of_a_damaged_copy_no_message_is_told(machine: Machine, place: str) -> None:
    copies = retry_large(machine, 6)
    (path,) = (machine.folder / "hours").glob("*/delay.log")
    hour, global_index = (np.array(ids, np.uint32) for ids in zip(*copies, strict=True))
    unit = machine.wheel.units(hour, global_index)[2]
    at = {"tag": 0, "length": 1, "behind": int(unit["size"]) - 20}[place]
    with path.open("r+b") as log:
        log.seek(int(unit["offset"]) + at)
        log.write(b"\xff" * 20)
    (released,) = events(machine, release(NOW_MS + 2_000))
    assert ids(released) == [(HOUR, 0), (HOUR, 1), (-1, 0), (HOUR, 3), (HOUR, 4), (HOUR, 5)]


def test_a_misfired_message_ends_in_its_topic_and_begins_in_that_of_the_dead_letters(
    machine: Machine,
) -> None:
    settings = TopicSettings(misfire=MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER, misfire_after_ms=1_000)
    events(machine, admin(log_pb.TopicCommand(topic="t", settings=settings)), schedule([NOW_MS]))
    expired, letter, released = events(machine, release(NOW_MS + 9_000, now_ms=NOW_MS + 9_000))
    assert (expired.kind, expired.detail, expired.queue) == (Kind.EXPIRED, "MISFIRED", 0)
    assert (letter.kind, letter.detail, letter.queue) == (Kind.SCHEDULED, "DEAD_LETTER", 1)
    assert (released.kind, released.queue) == (Kind.RELEASED, 1)
    assert ids(expired) == ids(letter) == ids(released) == [(HOUR, 0)]


def test_a_topic_that_is_deleted_ends_its_groups_and_what_comes_due_later(machine: Machine) -> None:
    events(machine, subscribe(), schedule([NOW_MS + 500]))
    (gone,) = events(machine, admin(log_pb.DeleteTopicCommand(topic="t", now_ms=NOW_MS)))
    assert (gone.kind, gone.topic, gone.group, gone.offset) == (Kind.GROUP_MOVED, "t", "g", None)
    assert (gone.detail, gone.at_ms) == (GroupMove.TOPIC_DELETED, NOW_MS)
    (expired,) = events(machine, release(NOW_MS + 500))
    assert (expired.kind, expired.detail, expired.offset) == (Kind.EXPIRED, "TOPIC_DELETED", None)
    assert ids(expired) == [(HOUR, 0)]


def test_a_seek_says_where_the_group_goes_on(machine: Machine) -> None:
    events(machine, subscribe(), schedule([NOW_MS] * 3), release(NOW_MS))
    (told,) = events(machine, admin(log_pb.SeekCommand(topic="t", group="g", offset=2, now_ms=NOW_MS)))
    assert (told.kind, told.detail, listed(told.offset)) == (Kind.GROUP_MOVED, GroupMove.SEEK, [2])
