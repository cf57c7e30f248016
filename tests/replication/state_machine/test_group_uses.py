"""When groups were last used: known to every replica from the log, and of no digest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.group_uses import UNKNOWN, Use
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, admin, release, retry, schedule

EXPIRES, TEMPORARY, KEPT = (
    log_pb.GROUP_LIFE_EXPIRES,
    log_pb.GROUP_LIFE_TEMPORARY,
    log_pb.GROUP_LIFE_UNSPECIFIED,
)


def made(life: log_pb.GroupLife, at_ms: int, expiry_ms: int = 0) -> bytes:
    return admin(log_pb.SubscribeCommand(topic="t", group="g", now_ms=at_ms, life=life, expiry_ms=expiry_ms))


def acked(offsets: list[int], at_ms: int, queue: int = 0) -> bytes:
    column = np.array(offsets, "<u8").tobytes()
    return admin(log_pb.AckCommand(group="g", queue=queue, offset=column, now_ms=at_ms))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path / "state", MachineSettings())
    opened.apply(1, 1, [made(EXPIRES, NOW_MS), schedule([NOW_MS + 1, NOW_MS + 2]), release(NOW_MS + 10)])
    yield opened
    opened.close()


def test_every_command_of_a_group_is_a_use_of_it(machine: Machine) -> None:
    uses, retries = machine.queues.uses, machine.queues.of("t", "g").queue
    seen = []
    commands = [
        acked([0], NOW_MS + 10),
        acked([], NOW_MS + 20),  # what a leader notes
        retry([1], NOW_MS + 40, now_ms=NOW_MS + 30),
        release(NOW_MS + 50),  # none of the group
        acked([0], NOW_MS + 60, retries),
        admin(log_pb.SeekCommand(topic="t", group="g", offset=0, now_ms=NOW_MS + 70)),
        made(EXPIRES, NOW_MS + 80),
        acked([], NOW_MS + 75),  # of a leader whose clock is behind
    ]
    for index, command in enumerate(commands, 2):
        machine.apply(index, 1, [command])
        seen.append(uses.of("t", "g").used_ms - NOW_MS)
    assert seen == [10, 20, 30, 30, 60, 70, 80, 80]


def test_a_group_is_what_it_was_made_as_unless_somebody_keeps_it(machine: Machine) -> None:
    uses = machine.queues.uses
    machine.apply(2, 1, [made(TEMPORARY, NOW_MS + 1, 5)])
    assert uses.of("t", "g") == Use(NOW_MS + 1, EXPIRES, 0)
    machine.apply(3, 1, [made(KEPT, NOW_MS + 2)])
    assert uses.of("t", "g") == Use(NOW_MS + 2, KEPT, 0)
    machine.apply(4, 1, [made(EXPIRES, NOW_MS + 3, 5)])
    assert uses.of("t", "g").life == KEPT
    machine.apply(5, 1, [admin(log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS))])
    assert uses.of("t", "g") == UNKNOWN
    machine.apply(6, 1, [made(EXPIRES, NOW_MS + 4, 5)])
    assert uses.of("t", "g") == Use(NOW_MS + 4, EXPIRES, 5)


def test_an_operator_gives_a_group_that_is_there_another_life_and_it_keeps_its_counts(
    machine: Machine,
) -> None:
    uses = machine.queues.uses
    uses.expired("t", "g", 3)
    uses.dropped("t", "g", 4)
    for index, (life, expiry_ms) in enumerate([(EXPIRES, 9), (KEPT, 0), (EXPIRES, 7)], 2):
        command = log_pb.SubscribeCommand(
            topic="t", group="g", now_ms=NOW_MS + index, life=life, expiry_ms=expiry_ms, asked=True
        )
        machine.apply(index, 1, [admin(command)])
        assert uses.of("t", "g") == Use(NOW_MS + index, life, expiry_ms, expired=3, dropped=4)
    machine.apply(5, 1, [made(TEMPORARY, NOW_MS + 5, 5)])  # a consumer's
    assert uses.of("t", "g") == Use(NOW_MS + 5, EXPIRES, 7, expired=3, dropped=4)


def test_a_deleted_topic_takes_its_groups_uses_with_it(machine: Machine) -> None:
    machine.apply(2, 1, [admin(log_pb.DeleteTopicCommand(topic="t", now_ms=NOW_MS))])
    assert machine.queues.uses.of("t", "g") == UNKNOWN
    machine.write(machine.capture())
    machine.close()
    again = Machine(machine.folder, MachineSettings())
    assert again.queues.uses.of("t", "g") == UNKNOWN
    again.close()


def test_a_checkpoint_keeps_uses_and_one_without_any_makes_none_up(machine: Machine) -> None:
    written = machine.write(machine.capture())
    machine.close()
    again = Machine(machine.folder, MachineSettings())
    assert again.queues.uses.of("t", "g") == Use(NOW_MS, EXPIRES, 0)
    before = log_pb.Checkpoint.FromString(written)
    before.ClearField("group_uses")  # as a version before this one writes it
    again._store.save(before.SerializeToString())
    again.close()
    older = Machine(machine.folder, MachineSettings())
    assert older.queues.uses.of("t", "g") == UNKNOWN
    older.close()


@pytest.mark.parametrize("life", [EXPIRES, TEMPORARY])
def test_a_group_of_before_uses_were_kept_stays_whoever_consumes_as_it(
    machine: Machine, life: log_pb.GroupLife
) -> None:
    machine.queues.uses.forget("t", "g")  # as a checkpoint of that version is opened
    machine.apply(2, 1, [made(life, NOW_MS + 1, 5)])
    assert machine.queues.uses.of("t", "g") == Use(NOW_MS + 1, KEPT, 0)


def test_replicas_that_know_no_uses_have_the_same_digest(machine: Machine, tmp_path: Path) -> None:
    other = Machine(tmp_path / "other", MachineSettings())
    other.apply(1, 1, [made(KEPT, 0), schedule([NOW_MS + 1, NOW_MS + 2]), release(NOW_MS + 10)])
    assert other.queues.uses.of("t", "g") != machine.queues.uses.of("t", "g")
    assert other.digest() == machine.digest()
    other.close()
