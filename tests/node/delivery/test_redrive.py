"""Which dead letters are believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import CheckTimes
from tarry.node.delivery import redrive as redrives
from tarry.node.delivery import retries
from tarry.node.delivery.redrive import BATCH, Letter, believed, commands, read, redrive
from tarry.node.delivery.retries import Delay
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.records import Damage
from tarry.node.transactions.checks import plan
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.proto.tarry_log_pb2 import KeyedRecord
from tarry.proto.tarry_message_pb2 import Record, RetryReason
from tarry.proto.tarry_operator_pb2 import RedriveRequest, RedriveResponse
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.cached_reads import NotCached
from tarry.wheel.id_gaps import GAP_MIN
from tarry.wheel.state import HOUR_MS
from tests.node.policies import policy
from tests.replication.commands import NOW_MS, release, schedule, subscribe, trim
from tests.replication.state_machine.test_levels import RAISE

HOUR = NOW_MS // HOUR_MS
LETTERS = "dlq.g.t"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """With groups of two topics, a message of each, and the dead letter that came of that in t."""
    opened = Machine(tmp_path, MachineSettings())
    apply(opened, subscribe("t"), subscribe("u"))
    apply(opened, schedule([NOW_MS]), schedule([NOW_MS], topic="u"), release(NOW_MS))
    apply(opened, *given_up(opened))
    yield opened
    opened.close()


def apply(machine: Machine, *commands: bytes) -> None:
    machine.apply(machine.applied_index + 1, 1, commands)


def given_up(machine: Machine, group: str = "g") -> list[bytes]:
    queue, offset = machine.queues.of("t"), np.array([0], dtype=np.uint64)
    unit = queue.at(offset).copy()
    (record,) = machine.wheel.read(unit["hour"], unit["global_index"])
    assert record is not None
    reason = RetryReason.RETRY_REASON_NACKED
    once = policy(attempts_max=1, dead_letter_topic=f"dlq.{group}.t")
    unit["hour"], unit["global_index"] = machine.wheel.ids_of(unit["hour"], unit["global_index"])
    made = retries.commands(0, queue, group, offset, unit, [record], reason, Delay(0), NOW_MS, once)
    return [encode(command) for command in made]


def letter(machine: Machine, queue: str = LETTERS, offset: int = 0, **forged: str) -> Letter | None:
    """The letter at an offset of a queue, as far as it is believed; some of what it says is forged."""
    of = machine.queues.of(queue)
    (unit,) = of.read(offset, 1)
    at = np.array([unit["hour"]]), np.array([unit["global_index"]])
    (stored,) = machine.wheel.read(*at)
    assert stored is not None
    record = Record.FromString(stored)
    for name, value in forged.items():
        record.properties[f"tarry.{name}"] = value
    found = read(record.SerializeToString(), 0, unit, RedriveRequest(topic=queue))
    return found if found is not None and believed(found, of, machine) else None


def test_a_letter_that_applying_placed_is_believed_also_when_its_message_has_been_deleted(
    machine: Machine,
) -> None:
    found = letter(machine)
    assert found is not None
    assert (found.topic, found.group, found.copy.hour, found.copy.due_ms) == ("t", "g", HOUR, NOW_MS)
    assert not Record.FromString(found.copy.record).properties
    later = NOW_MS + 2 * HOUR_MS
    apply(machine, schedule([later], topic="v"), release(later), trim([], [], [HOUR - 1, HOUR]))
    assert machine.wheel.hours() == (HOUR + 2,)
    assert believed(found, machine.queues.of(LETTERS), machine)


def test_a_letter_of_a_message_behind_an_id_gap_is_believed(tmp_path: Path) -> None:
    with closing(Machine(tmp_path, MachineSettings())) as machine:
        begin = log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS, id_gap=GAP_MIN)
        apply(machine, encode(begin), subscribe("t"), schedule([NOW_MS]), release(NOW_MS))
        apply(machine, *given_up(machine))
        found = letter(machine)
        assert found is not None
        assert found.copy.global_index == GAP_MIN


def test_a_redriven_copy_has_its_idempotency_key_again_which_counts_nowhere(machine: Machine) -> None:
    found = letter(machine, idempotency_key="order-7")
    assert found is not None
    record = Record.FromString(found.copy.record)
    assert (record.idempotency_key, dict(record.properties)) == ("order-7", {})
    assert list(KeyedRecord.FromString(found.copy.SerializeToString()).idempotency_key) == []
    without = letter(machine)
    assert without is not None
    assert Record.FromString(without.copy.record).idempotency_key == ""


@pytest.mark.parametrize(
    "forged",
    [
        {"origin_topic": "u"},
        {"group": "other"},
        {"origin_due_ms": "9" * 30},
        {"origin_due_ms": "-1"},
        {"origin_due_ms": "9" * 9_999},
        {"origin_due_ms": "soon"},
        {"origin_id": ""},
        {"origin_id": str(MessageId(0, HOUR, 1))},
        {"origin_id": str(MessageId(0, HOUR, 99))},
        {"origin_id": str(MessageId(0, 2**32 - 1, 2**32 - 2))},
        {"origin_id": str(MessageId(0, HOUR + 1, 0))},
    ],
)
def test_a_letter_that_the_log_does_not_bear_out_is_passed_over(
    machine: Machine, forged: dict[str, str]
) -> None:
    assert letter(machine, **forged) is None


def test_a_letter_in_a_topic_that_is_not_its_groups_is_passed_over(machine: Machine) -> None:
    said = {name: str(value) for name, value in origin().items()}
    apply(machine, schedule([NOW_MS], topic="dlq.g.u"), release(NOW_MS))
    assert letter(machine, "dlq.g.u", **said) is None
    assert letter(machine, "dlq.g.u", **{**said, "origin_topic": "u"}) is None


def origin() -> dict[str, object]:
    return {
        "origin_id": MessageId(0, HOUR, 0),
        "origin_topic": "t",
        "origin_due_ms": NOW_MS,
        "group": "g",
    }


def test_a_letter_of_what_misfired_is_believed(machine: Machine) -> None:
    """A group of the topic that misfired messages come in gives them up like any other."""
    apply(machine, schedule([NOW_MS], topic="dlq.g.dlq.misfired.t"), release(NOW_MS))
    said = {name: str(value) for name, value in origin().items()} | {"origin_topic": "dlq.misfired.t"}
    assert letter(machine, "dlq.g.dlq.misfired.t", **said) is not None


async def test_a_group_that_is_called_transactions_gets_its_own_letters_and_no_transactions(
    machine: Machine,
) -> None:
    """Both lie in one topic: the letter of a transaction is of no group, whatever its message says."""
    earliest = GroupStart(at=StartAt.START_AT_EARLIEST)
    subscribed = log_pb.SubscribeCommand(topic="t", group="transactions", start=earliest)
    apply(machine, RAISE, encode(subscribed))
    apply(machine, *given_up(machine, "transactions"))
    prepare = log_pb.PrepareCommand(
        producer_group="transactions", transaction="o-1", topic="t", record=b"", delay_ms=0, now_ms=NOW_MS
    )
    apply(machine, encode(prepare), release(NOW_MS))
    row = machine.transactions.named("transactions", "o-1")
    assert row is not None
    state = row.state()
    state.checks = 1
    last = plan(state, b"", CheckTimes(checks_max=1), NOW_MS)
    apply(machine, encode(log_pb.CheckCommand(checks=[last], now_ms=NOW_MS)), release(NOW_MS))
    queue = machine.queues.of("dlq.transactions.t")
    assert queue.units == 2

    async def propose(_: object) -> None:
        raise AssertionError

    request = RedriveRequest(topic=queue.topic, dry_run=True)
    steps = redrive(machine, Damage(machine, 0), propose, lambda: NOW_MS, request, 1 << 20)
    *_, done = [step async for step in steps]
    assert isinstance(done, RedriveResponse)
    assert (done.looked_at, done.redriven, done.done) == (2, 1, True)


async def test_a_letter_of_a_group_that_is_deleted_as_it_is_given_back_stays(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy would lie in a queue that is nobody's."""

    def and_deletes(*given: Any) -> list[log_pb.RetryCommand]:
        made = commands(*given)
        assert made
        apply(machine, encode(log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS)))
        return made

    async def propose(command: Any) -> None:
        assert isinstance(command, log_pb.SubscribeCommand)
        apply(machine, encode(command))

    monkeypatch.setattr(redrives, "commands", and_deletes)
    request = RedriveRequest(topic=LETTERS)
    steps = redrive(machine, Damage(machine, 0), propose, lambda: NOW_MS, request, 1 << 20)
    *_, done = [step async for step in steps]
    assert isinstance(done, RedriveResponse)
    assert (done.redriven, done.done) == (0, True)
    assert machine.queues.find("t", "g") is None


async def test_a_letter_that_is_refused_for_a_deletion_on_its_way_is_not_counted(machine: Machine) -> None:
    async def propose(command: Any) -> object:
        if isinstance(command, log_pb.SubscribeCommand):
            return apply(machine, encode(command))
        apply(machine, encode(log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS)))
        (outcome,) = machine.apply(machine.applied_index + 1, 1, [encode(command)])
        return outcome

    apply(machine, RAISE)
    steps = redrive(
        machine, Damage(machine, 0), propose, lambda: NOW_MS, RedriveRequest(topic=LETTERS), 1 << 20
    )
    *_, done = [step async for step in steps]
    assert isinstance(done, RedriveResponse)
    assert (done.redriven, done.done) == (0, True)


def test_bytes_that_are_no_record_are_no_letter(machine: Machine) -> None:
    (unit,) = machine.queues.of(LETTERS).read(0, 1)
    assert read(b"\xff", 0, unit, RedriveRequest()) is None


async def test_a_redrive_goes_on_behind_what_retention_trims_meanwhile(machine: Machine) -> None:
    later = NOW_MS + 2 * HOUR_MS
    apply(machine, schedule([NOW_MS] * (BATCH + 9), topic=LETTERS), schedule([later] * 5, topic=LETTERS))
    apply(machine, release(later))
    queue = machine.queues.of(LETTERS)
    assert queue.units == BATCH + 15

    async def propose(_: object) -> None:
        raise AssertionError

    request = RedriveRequest(topic=LETTERS, dry_run=True)
    steps = redrive(machine, Damage(machine, 0), propose, lambda: later, request, 1 << 20)
    first = await anext(steps)
    assert isinstance(first, RedriveResponse)
    assert (first.looked_at, first.redriven) == (BATCH, 1)
    apply(machine, trim([queue.queue, machine.queues.of("t").queue], [BATCH + 12, 1], []))
    apply(machine, trim([], [], [HOUR]))
    *_, last = [step async for step in steps]
    assert isinstance(last, RedriveResponse)
    assert (last.looked_at, last.done) == (BATCH + 3, True)


async def test_a_redrive_goes_on_where_retention_trims_while_it_reads_letters(machine: Machine) -> None:
    later = NOW_MS + 2 * HOUR_MS
    apply(machine, schedule([NOW_MS] * 9, topic=LETTERS), schedule([later] * 5, topic=LETTERS))
    apply(machine, release(later))
    queue, cold = machine.queues.of(LETTERS), True

    def pread(fd: int, size_bytes: int, offset: int) -> bytes:
        if cold:
            raise NotCached
        return os.pread(fd, size_bytes, offset)

    async def trimmed(_: object) -> None:
        nonlocal cold
        if cold:
            apply(machine, trim([queue.queue, machine.queues.of("t").queue], [queue.units - 5, 1], []))
            apply(machine, trim([], [], [HOUR]))
        cold = False

    async def propose(_: object) -> None:
        raise AssertionError

    request = RedriveRequest(topic=LETTERS, dry_run=True)
    damage = Damage(machine, 0, reads=RecordReads(machine, pread, trimmed))  # type: ignore[arg-type]
    *_, last = [step async for step in redrive(machine, damage, propose, lambda: later, request, 1 << 20)]
    assert isinstance(last, RedriveResponse)
    assert not cold
    assert last.done


def test_a_letter_in_a_topic_of_another_name_is_believed_of_a_group_whose_letters_went_there(
    machine: Machine,
) -> None:
    said = {name: str(value) for name, value in origin().items()}
    apply(machine, schedule([NOW_MS], topic="dlq.shared"), release(NOW_MS))  # as 0.1.0 let a producer do
    assert letter(machine, "dlq.shared", **said) is None
    apply(machine, RAISE, schedule([NOW_MS]), release(NOW_MS))
    queue, offset = machine.queues.of("t"), np.array([1], dtype=np.uint64)
    unit = queue.at(offset)
    (record,) = machine.wheel.read(unit["hour"], unit["global_index"])
    assert record is not None
    once = policy(attempts_max=1, dead_letter_topic="dlq.shared")
    reason = RetryReason.RETRY_REASON_NACKED
    made = retries.commands(0, queue, "g", offset, unit, [record], reason, Delay(0), NOW_MS, once)
    apply(machine, *[encode(command) for command in made], release(NOW_MS))
    found = letter(machine, "dlq.shared", offset=1)
    assert found is not None
    assert (found.topic, found.group) == ("t", "g")
    assert letter(machine, "dlq.shared", offset=1, origin_topic="u") is None
