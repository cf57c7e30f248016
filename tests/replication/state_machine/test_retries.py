"""Retries that no leader means to propose: whom they reach, how often, and when."""

from __future__ import annotations

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.commands import decode, encode
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Acked, Released
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tests.replication.commands import NOW_MS, release, retry, schedule, subscribe
from tests.replication.state_machine.test_levels import RAISE
from tests.replication.state_machine.test_machine import fresh

__all__ = ["fresh"]

LETTERS, GIVEN_BACK_BY = "dlq.g.t", "redriving"


def redriven_behind_the_deletion(machine: Machine) -> Acked | Refusal:
    """Give a letter of t's group g back to it behind its deletion; return what becomes of that."""
    machine.apply(2, 1, [subscribe(), schedule([NOW_MS + 1], topic=LETTERS), release(NOW_MS + 1)])
    machine.apply(3, 1, [subscribe(LETTERS, group=GIVEN_BACK_BY)])
    back = decode(retry([0], NOW_MS))
    back.group, back.queue = GIVEN_BACK_BY, machine.queues.of(LETTERS).queue
    gone = log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS)
    _, outcome = machine.apply(4, 1, [encode(gone), encode(back)])
    assert isinstance(outcome, Acked | Refusal)
    return outcome


def test_a_redrive_behind_the_deletion_of_its_group_leaves_the_letter_where_it_is(fresh: Machine) -> None:
    fresh.apply(1, 1, [RAISE])
    refused = redriven_behind_the_deletion(fresh)
    assert isinstance(refused, Refusal)
    assert refused.reason == Reason.GROUP_UNKNOWN
    assert fresh.queues.find("t", "g") is None
    assert fresh.queues.acknowledged[GIVEN_BACK_BY, fresh.queues.of(LETTERS).queue].floor == 0


def test_a_redrive_behind_the_deletion_of_its_group_is_applied_at_the_first_level_as_0_2_0_does(
    fresh: Machine,
) -> None:
    assert isinstance(redriven_behind_the_deletion(fresh), Acked)
    assert fresh.queues.find("t", "g") is not None


def test_a_retry_that_names_an_offset_twice_makes_one_copy(fresh: Machine) -> None:
    fresh.apply(1, 1, [subscribe(), schedule([NOW_MS + 1] * 2), release(NOW_MS + 1)])
    (done,) = fresh.apply(2, 1, [retry([1, 1], NOW_MS + 1_000)])
    assert isinstance(done, Acked)
    assert done.stale.tolist() == [1]
    assert fresh.wheel.pending == 1


def test_a_retry_later_than_anything_can_be_stored_is_due_at_the_last_time_of_all(fresh: Machine) -> None:
    fresh.apply(1, 1, [subscribe(), schedule([NOW_MS + 1]), release(NOW_MS + 1)])
    fresh.apply(2, 1, [retry([0], 2**63 - 1)])
    assert fresh.wheel.pending == 1
    assert fresh.apply(3, 1, [release(DUE_MS_MAX)]) == [Released(1)]
