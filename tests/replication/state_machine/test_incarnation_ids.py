"""Ids of another incarnation: none names what came later, and what is there keeps its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as transaction_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.tarry_message_pb2 import Retried, RetryReason
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Cancelled
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.id_gaps import GAP_MAX
from tarry.wheel.id_gaps import GAP_MIN as GAP
from tarry.wheel.state import HOUR_MS, CancelOutcome, MessageState
from tests.replication.commands import NOW_MS, ack, cancel, record, release, retry, schedule, subscribe
from tests.replication.state_machine import test_recurring as recurring
from tests.replication.state_machine import test_transactions as transactions
from tests.replication.state_machine.test_machine import fresh, machine, run
from tests.replication.state_machine.test_reschedules import (
    RAISE,
    apply,
    command,
    places,
    scheduled,
    told,
)

__all__ = ["fresh"]

BEGIN = encode(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS, id_gap=GAP))
HOUR = NOW_MS // HOUR_MS
NACKED = RetryReason.RETRY_REASON_NACKED
Id = tuple[int, int]


def cancelled(opened: Machine, *names: Id) -> list[int]:
    (outcome,) = opened.apply(opened.applied_index + 1, 1, [cancel(names)])
    assert isinstance(outcome, Cancelled)
    return outcome.outcomes.tolist()


def body(opened: Machine, name: Id) -> bytes:
    (at,) = places(opened, [name])
    (found,) = opened.wheel.read(*(np.array([part], np.uint32) for part in at))
    return found or b""


def test_an_id_that_was_given_and_lost_names_no_message_that_came_later(fresh: Machine) -> None:
    kept = scheduled(fresh, [NOW_MS + 500, NOW_MS + 600])
    lost = (HOUR, 2), (HOUR, 3), (HOUR + 9, 0), (HOUR, GAP + 1)
    run(fresh, [BEGIN])
    came = scheduled(fresh, [NOW_MS + 700, NOW_MS + 800, NOW_MS + 9 * HOUR_MS])
    assert came == [(HOUR, 2 + GAP), (HOUR, 3 + GAP), (HOUR + 9, GAP)]
    assert cancelled(fresh, *lost) == [CancelOutcome.NOT_FOUND] * 4
    moved = apply(fresh, command(fresh, list(lost), [NOW_MS + 900] * 4))
    assert moved == [("NOT_FOUND", 0)] * 4
    assert fresh.wheel.pending == 5
    assert body(fresh, came[1]) == record(b"%d" % (NOW_MS + 800))
    assert cancelled(fresh, *kept, *came) == [CancelOutcome.CANCELLED] * 5


def test_each_incarnation_has_ids_of_its_own_behind_what_the_one_before_had(fresh: Machine) -> None:
    names = scheduled(fresh, [NOW_MS + 500])
    for _ in range(3):
        run(fresh, [BEGIN])
        names += scheduled(fresh, [NOW_MS + 500])
    assert names == [(HOUR, number + number * GAP) for number in range(4)]
    for number in range(1, 4):  # which the incarnation before would have given next
        assert cancelled(fresh, (HOUR, number + (number - 1) * GAP)) == [CancelOutcome.NOT_FOUND]
    assert cancelled(fresh, *names) == [CancelOutcome.CANCELLED] * 4


@pytest.mark.parametrize(("level", "id_gap"), [(2, 1), (2, GAP - 1), (2, GAP_MAX), (2, 2**32 - 1), (1, GAP)])
def test_a_gap_that_no_incarnation_begins_with_is_refused(fresh: Machine, level: int, id_gap: int) -> None:
    command = encode(log_pb.RaiseLevelCommand(level=level, now_ms=NOW_MS, id_gap=id_gap))
    (refused,) = fresh.apply(1, 1, [command])
    assert isinstance(refused, Refusal)
    assert scheduled(fresh, [NOW_MS + 500]) == [(HOUR, 0)]


def test_a_raised_level_leaves_no_gap(fresh: Machine) -> None:
    run(fresh, [RAISE])
    assert scheduled(fresh, [NOW_MS + 500]) == [(HOUR, 0)]


def test_messages_behind_a_gap_move_and_come_due_under_their_ids(fresh: Machine) -> None:
    run(fresh, [subscribe()])
    (before,) = scheduled(fresh, [NOW_MS + 500])
    run(fresh, [BEGIN])
    after, other = scheduled(fresh, [NOW_MS + 600, NOW_MS + 700])
    fresh.events.wanted = True
    due = [NOW_MS + 900, NOW_MS + 2 * HOUR_MS]
    assert apply(fresh, command(fresh, [before, after], due)) == [("CHANGED", at) for at in due]
    assert apply(fresh, command(fresh, [after], due[:1])) == [("CHANGED", due[0])]
    run(fresh, [release(NOW_MS + HOUR_MS)])
    assert told(fresh) == [
        (Kind.RESCHEDULED, [before, after]),
        (Kind.RESCHEDULED, [after]),
        (Kind.RELEASED, [other, before, after]),
    ]


def test_the_ledger_is_told_of_the_ids_that_producers_were_given(fresh: Machine) -> None:
    run(fresh, [subscribe(), BEGIN])
    fresh.events.wanted = True
    names = scheduled(fresh, [NOW_MS + 500, NOW_MS + 600])
    run(fresh, [cancel(names[1:]), release(NOW_MS + 500)])
    assert told(fresh) == [
        (Kind.SCHEDULED, names),
        (Kind.CANCELLED, names[1:]),
        (Kind.RELEASED, names[:1]),
    ]


def test_the_ledger_is_told_of_a_retry_s_message_by_its_id(fresh: Machine) -> None:
    run(fresh, [subscribe(), BEGIN])
    (one,) = scheduled(fresh, [NOW_MS + 1])
    copy = Retried(record=record(b"again"), hour=one[0], global_index=one[1], due_ms=NOW_MS + 1, attempt=2)
    again = log_pb.RetryCommand.FromString(retry([0], NOW_MS + 5, reason=NACKED)[1:])
    again.records[0] = copy.SerializeToString()
    fresh.events.wanted = True
    run(fresh, [release(NOW_MS + 1), encode(again), release(NOW_MS + 5), ack([0], queue=1)])
    assert told(fresh) == [(kind, [one]) for kind in (Kind.RELEASED, Kind.RETRIED, Kind.RELEASED, Kind.ACKED)]


def test_a_retry_behind_a_gap_gets_another_time(fresh: Machine) -> None:
    run(fresh, [subscribe(), BEGIN, schedule([NOW_MS + 1]), release(NOW_MS + 1), retry([0], NOW_MS + 5_000)])
    copy = (HOUR, 1)  # a place, as leaders name copies
    assert apply(fresh, command(fresh, [copy], [NOW_MS + 9_000], copies=True)) == [
        ("CHANGED", NOW_MS + 9_000)
    ]
    run(fresh, [release(NOW_MS + 8_999)])
    assert (fresh.queues[1].units, fresh.wheel.pending) == (0, 1)
    run(fresh, [release(NOW_MS + 9_000)])
    assert fresh.queues[1].units == 1


def test_a_committed_transaction_tells_the_id_of_its_message(fresh: Machine) -> None:
    run(fresh, [BEGIN])
    transactions.apply(fresh, transactions.prepare(delay_ms=5_000))
    transactions.apply(fresh, transactions.end(fresh, transaction_pb.TRANSACTION_END_COMMIT))
    one = transactions.state(fresh)
    assert cancelled(fresh, (one.place_hour, one.place_index)) == [CancelOutcome.CANCELLED]
    assert fresh.wheel.pending == 0


def test_a_half_message_behind_a_gap_is_rolled_back_where_its_id_is_cancelled(fresh: Machine) -> None:
    run(fresh, [BEGIN])
    transactions.apply(fresh, transactions.prepare())
    one = transactions.state(fresh)
    assert cancelled(fresh, (one.place_hour, one.place_index)) == [CancelOutcome.NOT_FOUND]
    assert cancelled(fresh, (one.place_hour, one.place_index + GAP)) == [CancelOutcome.CANCELLED]
    assert transactions.state(fresh).state == transaction_pb.TRANSACTION_STATE_ROLLED_BACK


def test_a_schedule_knows_the_message_of_its_last_fire_and_cancels_it(fresh: Machine) -> None:
    run(fresh, [BEGIN])
    recurring.apply(fresh, recurring.put())
    fired: Any = recurring.fire(fresh, (recurring.FIRED, NOW_MS + 1_000))
    recurring.apply(fresh, fired)
    one = recurring.state(fresh)
    assert one.last_index == one.history[0].global_index == GAP
    assert fresh.wheel.pending == 1
    recurring.apply(fresh, recurring.change("DELETE"))
    assert fresh.wheel.pending == 0


def test_ids_are_the_same_after_a_checkpoint(tmp_path: Path) -> None:
    with machine(tmp_path) as before:
        names = scheduled(before, [NOW_MS + 500])
        run(before, [BEGIN])
        names += scheduled(before, [NOW_MS + 500, NOW_MS + 700])
        before.write(before.capture())
        digest = before.digest()
    with machine(tmp_path) as again:
        assert again.digest() == digest
        assert body(again, names[2]) == record(b"%d" % (NOW_MS + 700))
        assert cancelled(again, *names, (HOUR, 1)) == [
            *[CancelOutcome.CANCELLED] * 3,
            CancelOutcome.NOT_FOUND,
        ]


def test_replicas_of_which_one_has_no_gap_have_different_digests(tmp_path: Path) -> None:
    digests = set()
    for begin in (BEGIN, RAISE):
        with machine(tmp_path / str(len(digests))) as opened:
            run(opened, [schedule([NOW_MS + 500]), begin])
            digests.add(opened.digest())
    assert len(digests) == 2


def test_ids_of_hours_that_are_dropped_stay_what_they_were(fresh: Machine) -> None:
    (old,) = scheduled(fresh, [NOW_MS + 500])
    run(fresh, [release(NOW_MS + 3 * HOUR_MS)])
    fresh.wheel.drop_hour(HOUR)
    run(fresh, [BEGIN])
    assert places(fresh, [old]) == [old]
    assert fresh.wheel.state(*old) is MessageState.NOT_FOUND
