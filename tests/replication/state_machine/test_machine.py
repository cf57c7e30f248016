"""The state machine: total, deterministic, and the same after a crash."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.proto.tarry_producer_pb2 import ScheduleBatchResponse
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import (
    Acked,
    Cancelled,
    Released,
    Repeated,
    Scheduled,
    Subscribed,
)
from tarry.replication.state_machine.producer_answers import unpack
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import CancelOutcome
from tests.replication.commands import NOW_MS, ack, admin, cancel, release, retry, schedule, subscribe, trim

HOUR = NOW_MS // 3_600_000


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    opened = Machine(folder, MachineSettings())
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as opened:
        yield opened


def answer(outcome: object) -> ScheduleBatchResponse:
    assert isinstance(outcome, Scheduled)
    return ScheduleBatchResponse.FromString(outcome.response)


def ids(outcome: object) -> list[list[int]]:
    return [list(answer(outcome).hour), list(answer(outcome).global_index)]


def ids_again(outcome: object) -> list[list[int]]:
    assert isinstance(outcome, Repeated)
    return [column.tolist() for column in unpack(outcome.given)]


def test_a_message_goes_through_its_life(fresh: Machine) -> None:
    (joined,) = fresh.apply(1, 1, [subscribe()])
    assert joined == Subscribed(0, 1)
    (scheduled,) = fresh.apply(2, 1, [schedule([NOW_MS + 500])])
    assert answer(scheduled).due_ms == [NOW_MS + 500]
    assert fresh.wheel.pending == 1
    assert fresh.apply(3, 1, [release(NOW_MS + 499)]) == [Released(0)]
    assert fresh.apply(4, 1, [release(NOW_MS + 500)]) == [Released(1)]
    assert fresh.queues[0].units == 1
    assert fresh.queues.unacknowledged() == 1
    (acked,) = fresh.apply(5, 1, [ack([0])])
    assert isinstance(acked, Acked)
    assert len(acked.stale) == 0
    assert fresh.queues.unacknowledged() == 0
    (again,) = fresh.apply(6, 1, [ack([0])])
    assert isinstance(again, Acked)
    assert again.stale.tolist() == [0]


def test_overdue_on_arrival_goes_straight_to_its_ready_queue_and_is_said_to_be(fresh: Machine) -> None:
    fresh.apply(1, 1, [release(NOW_MS + 100)])
    (past,) = fresh.apply(2, 1, [schedule([NOW_MS - 5_000, NOW_MS + 50, NOW_MS + 101])])
    assert list(answer(past).overdue) == [0]
    assert answer(past).due_ms == [NOW_MS, NOW_MS + 50, NOW_MS + 101]
    assert fresh.queues[0].read(0, 9)["due_ms"].tolist() == [NOW_MS, NOW_MS + 50]
    assert fresh.wheel.pending == 1


def test_a_repeated_request_returns_the_first_answer_and_schedules_nothing(fresh: Machine) -> None:
    command = schedule([NOW_MS + 9_000, NOW_MS + 5_000_000], producer="p", sequence=1)
    (first,) = fresh.apply(1, 1, [command])
    later = schedule([NOW_MS + 9_000, NOW_MS + 5_000_000], producer="p", sequence=1, now_ms=NOW_MS + 700)
    again, other = fresh.apply(2, 1, [later, schedule([NOW_MS + 9_000], producer="p", sequence=2)])
    assert ids_again(again) == ids(first)
    assert not answer(other).repeated
    assert fresh.wheel.pending == 3


def test_a_request_repeated_within_one_entry_is_scheduled_once(fresh: Machine) -> None:
    command = schedule([NOW_MS + 9_000], producer="p", sequence=1)
    first, again = fresh.apply(1, 1, [command, command])
    assert not answer(first).repeated
    assert ids_again(again) == ids(first)
    assert fresh.wheel.pending == 1


def test_a_sequence_below_the_window_is_refused(fresh: Machine) -> None:
    fresh.apply(1, 1, [schedule([NOW_MS + 9_000], producer="p", sequence=100)])
    (refused,) = fresh.apply(2, 1, [schedule([NOW_MS + 9_000], producer="p", sequence=30)])
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.SEQUENCE_TOO_OLD


def test_a_cancelled_message_is_never_released(fresh: Machine) -> None:
    (scheduled,) = fresh.apply(1, 1, [schedule([NOW_MS + 10, NOW_MS + 20])])
    ids = list(zip(answer(scheduled).hour, answer(scheduled).global_index, strict=True))
    (done,) = fresh.apply(2, 1, [cancel([ids[0], (HOUR + 77, 3)])])
    assert isinstance(done, Cancelled)
    assert done.outcomes.tolist() == [CancelOutcome.CANCELLED, CancelOutcome.NOT_FOUND]
    assert fresh.apply(3, 1, [release(NOW_MS + 1_000)]) == [Released(1)]
    (late,) = fresh.apply(4, 1, [cancel(ids)])
    assert isinstance(late, Cancelled)
    assert late.outcomes.tolist() == [CancelOutcome.ALREADY_CANCELLED, CancelOutcome.ALREADY_RELEASED]


def test_a_retry_comes_back_in_the_groups_own_queue_and_nowhere_else(fresh: Machine) -> None:
    fresh.apply(1, 1, [subscribe(), subscribe(group="other"), schedule([NOW_MS + 1]), release(NOW_MS + 1)])
    fresh.apply(2, 1, [retry([0], NOW_MS + 1_000)])
    fresh.apply(3, 1, [release(NOW_MS + 2_000)])
    retries = fresh.queues.find("t", "g")
    assert retries is not None
    assert retries.units == 1
    other = fresh.queues.find("t", "other")
    assert other is not None
    assert other.units == 0
    assert fresh.queues[0].units == 1
    assert fresh.queues.acknowledged["g", 0].floor == 1
    assert fresh.queues.acknowledged["other", 0].floor == 0


def test_a_stale_retry_makes_no_second_copy(fresh: Machine) -> None:
    fresh.apply(1, 1, [subscribe(), schedule([NOW_MS + 1]), release(NOW_MS + 1), ack([0])])
    (done,) = fresh.apply(2, 1, [retry([0], NOW_MS + 1_000)])
    assert isinstance(done, Acked)
    assert done.stale.tolist() == [0]
    assert fresh.wheel.pending == 0


def test_a_dead_letter_goes_to_its_own_topic_at_once(fresh: Machine) -> None:
    fresh.apply(1, 1, [subscribe(), schedule([NOW_MS + 1]), release(NOW_MS + 1)])
    fresh.apply(2, 1, [retry([0], NOW_MS, dead=True)])
    dead = fresh.queues.find("dlq.g.t")
    assert dead is not None
    assert dead.units == 1


@pytest.mark.parametrize("bad", [schedule([]), ack([5]), retry([9], 1)])
def test_bad_input_is_a_refusal_and_changes_nothing(fresh: Machine, bad: bytes) -> None:
    fresh.apply(1, 1, [subscribe()])
    before = fresh.digest()
    (outcome,) = fresh.apply(1, 1, [bad])
    assert isinstance(outcome, Refusal)
    assert fresh.digest() == before


plain = st.one_of(
    st.builds(
        lambda dues, topic, producer, sequence: schedule(
            [NOW_MS + d for d in dues], topic=topic, producer=producer, sequence=sequence
        ),
        st.lists(st.integers(-2_000, 8_000_000), min_size=1, max_size=5),
        st.sampled_from(["t", "u"]),
        st.sampled_from(["", "p"]),
        st.integers(1, 4),
    ),
    st.builds(
        lambda until, count: release(NOW_MS + until, count), st.integers(0, 8_000_000), st.integers(1, 6)
    ),
    st.builds(ack, st.lists(st.integers(0, 8), max_size=4)),
    st.builds(
        lambda offsets, due, dead: retry(sorted(offsets), NOW_MS + due, dead=dead),
        st.sets(st.integers(0, 8), min_size=1, max_size=3),
        st.integers(0, 5_000),
        st.booleans(),
    ),
    st.builds(cancel, st.lists(st.tuples(st.integers(HOUR, HOUR + 2), st.integers(0, 6)), max_size=3)),
)
administration = st.one_of(
    st.sampled_from(
        [
            subscribe(group="h"),
            admin(log_pb.DeleteGroupCommand(topic="t", group="g")),
            admin(log_pb.DeleteGroupCommand(topic="t", group="h")),
            admin(log_pb.DeleteTopicCommand(topic="t")),
            admin(log_pb.DeleteTopicCommand(topic="u")),
            admin(log_pb.TopicCommand(topic="u", settings=TopicSettings(retention_ms=5))),
            trim([0], [3]),
            trim([0, 1], [1, 2]),
        ]
    ),
    st.builds(
        lambda offset: admin(log_pb.SeekCommand(topic="t", group="g", offset=offset)), st.integers(0, 9)
    ),
)
plain_steps = st.lists(plain, min_size=1, max_size=25)
steps = st.lists(st.one_of(plain, administration), min_size=1, max_size=25)


def run(target: Machine, commands: list[bytes], start: int = 0) -> list[list[str]]:
    return [
        [repr(outcome) for outcome in target.apply(index + 1, 1, [commands[index]])]
        for index in range(start, len(commands))
    ]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(0, 25))
def test_replay_gives_an_equal_state_also_from_a_checkpoint_after_a_crash(
    commands: list[bytes], at: int
) -> None:
    commands = [subscribe(), *commands]
    at = min(at, len(commands))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        with machine(Path(one)) as first:
            outcomes = run(first, commands)
            expected = first.digest()
        with machine(Path(two)) as second:
            run(second, commands[:at])
            second.write(second.capture())
            run(second, commands, at)  # not in the checkpoint: lost in the crash, replayed after it
        with machine(Path(two)) as recovered:
            assert recovered.applied_index == at
            assert run(recovered, commands, at) == outcomes[at:]
            assert recovered.digest() == expected


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(plain_steps)
def test_nothing_is_lost_or_doubled_whatever_the_commands(commands: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder)) as target:
        placed = cancelled = 0
        done: set[tuple[int, int]] = set()
        for index, command in enumerate([subscribe(), *commands]):
            before = sum(q.units for q in target.queues) + target.wheel.pending
            (outcome,) = target.apply(index + 1, 1, [command])
            after = sum(q.units for q in target.queues) + target.wheel.pending
            if isinstance(outcome, Cancelled):
                cancelled += before - after
            else:
                placed += after - before
                assert after >= before
        released = sum(q.units for q in target.queues)
        assert placed == released + target.wheel.pending + cancelled
        for queue in target.queues:
            units = queue.read(0, queue.units)
            ids = set(zip(units["hour"].tolist(), units["global_index"].tolist(), strict=True))
            assert len(ids) == queue.units
            assert not ids & done
            done |= ids
