"""What the state machine does with a topic's settings, and with seconds and topics that are full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Released, Scheduled
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tests.replication.commands import NOW_MS, admin, cancel, release, retry, schedule, subscribe

SECOND = NOW_MS + 10_000


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "state", MachineSettings())
    yield machine
    machine.close()


def topic(name: str, now_ms: int = NOW_MS, **settings: int) -> bytes:
    return admin(log_pb.TopicCommand(topic=name, settings=TopicSettings(**settings), now_ms=now_ms))  # type: ignore[arg-type]


def limited(due_ms: list[int], most: int, **given: object) -> bytes:
    command = log_pb.ScheduleCommand.FromString(schedule(due_ms, **given)[1:])  # type: ignore[arg-type]
    command.second_messages_max = most
    return admin(command)


def test_a_topic_with_a_rate_holds_up_no_other_and_all_leaves_the_wheel_on_time(fresh: Machine) -> None:
    fresh.apply(1, 1, [topic("slow", release_per_s_max=10), schedule([SECOND] * 500, topic="slow")])
    fresh.apply(2, 1, [schedule([SECOND + 1], topic="quick")])
    assert fresh.apply(3, 1, [release(SECOND + 1, now_ms=SECOND - 50)]) == [Released(501)]
    slow, quick = fresh.queues.of("slow"), fresh.queues.of("quick")
    assert (slow.units, quick.units, fresh.wheel.pending) == (500, 1, 0)
    assert quick.pace.opened(SECOND, 1) == 1
    assert slow.pace.opened(SECOND - 1, 500) == 0
    assert [slow.pace.opened(SECOND + ms, 500) for ms in (0, 99, 100, 1_000)] == [1, 1, 2, 11]
    assert slow.pace.opens_ms(499) == SECOND + 49_900


def test_the_rhythm_of_a_rate_outlives_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [topic("t", release_per_s_max=10), schedule([SECOND] * 50)])
    machine.apply(2, 1, [release(SECOND, now_ms=SECOND - 50)])
    machine.write(machine.capture())
    before, opens, pending = machine.digest(), machine.queues[0].pace.opens_ms(49), schedule([SECOND + 9_000])
    machine.close()
    again = Machine(tmp_path, MachineSettings())
    assert (again.digest(), again.queues[0].pace.opens_ms(49)) == (before, opens)
    again.apply(3, 1, [pending])
    assert again.wheel.pending_of(0) == 1
    again.close()


LATE = [SECOND, SECOND + 1_000, SECOND + 60_000]


@pytest.mark.parametrize(
    ("policy", "kept", "dropped"),
    [
        (MisfirePolicy.MISFIRE_POLICY_UNSPECIFIED, LATE, 0),
        (MisfirePolicy.MISFIRE_POLICY_CATCH_UP, LATE, 0),
        (MisfirePolicy.MISFIRE_POLICY_DROP, LATE[1:], 1),
        (MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER, LATE[1:], 0),
    ],
)
def test_only_what_is_released_later_than_allowed_has_misfired(
    fresh: Machine, policy: int, kept: list[int], dropped: int
) -> None:
    settings = {"misfire": policy, "misfire_after_ms": 60_000, "catch_up_per_s_max": 1}
    fresh.apply(1, 1, [topic("t", **settings), schedule(LATE), schedule([SECOND], topic="other")])
    (released,) = fresh.apply(2, 1, [release(SECOND + 61_000, now_ms=SECOND + 61_000)])
    assert released == Released(4)
    queue = fresh.queues.of("t")
    assert queue.read(0, 9)["due_ms"].tolist() == kept
    assert queue.misfires_dropped == dropped
    assert fresh.queues.of("other").units == 1
    dead = fresh.queues.find("dlq.misfired.t")
    if policy == MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER:
        assert dead is not None
        assert dead.read(0, 9)["due_ms"].tolist() == LATE[:1]
    else:
        assert dead is None
    if policy == MisfirePolicy.MISFIRE_POLICY_CATCH_UP:
        now = SECOND + 61_000
        assert [queue.pace.opens_ms(offset) for offset in range(3)] == [now, now + 1_000, now + 1_000]


def test_a_month_late_is_later_than_most_of_a_month(fresh: Machine) -> None:
    day_ms, drop = 86_400_000, MisfirePolicy.MISFIRE_POLICY_DROP
    fresh.apply(
        1, 1, [topic("t", misfire=drop, misfire_after_ms=30 * day_ms), schedule([SECOND, SECOND + 1])]
    )
    fresh.apply(2, 1, [release(SECOND + 1, now_ms=SECOND + 30 * day_ms + 1)])
    queue = fresh.queues.of("t")
    assert (queue.units, queue.misfires_dropped) == (1, 1)


def test_a_retry_never_misfires(fresh: Machine) -> None:
    settings = {"misfire": MisfirePolicy.MISFIRE_POLICY_DROP, "misfire_after_ms": 1}
    fresh.apply(1, 1, [topic("t", **settings), subscribe(), schedule([SECOND])])
    fresh.apply(2, 1, [release(SECOND, now_ms=SECOND), retry([0], SECOND + 10)])
    fresh.apply(3, 1, [release(SECOND + 99_999, now_ms=SECOND + 99_999)])
    assert fresh.queues.of("t", "g").units == 1


def test_a_second_takes_what_it_may_hold_and_the_refusal_names_the_nearest_with_room(fresh: Machine) -> None:
    (taken,) = fresh.apply(1, 1, [limited([SECOND + ms for ms in (0, 500, 999)], 4)])
    assert isinstance(taken, Scheduled)
    more, over, beside = fresh.apply(
        2,
        1,
        [limited([SECOND + 1], 4), limited([SECOND - 1, SECOND + 2], 4), limited([SECOND + 1_000], 4)],
    )
    assert isinstance(more, Scheduled)  # the last place; commands of one entry count one another
    assert isinstance(beside, Scheduled)
    assert isinstance(over, Refusal)
    assert over.reason is Reason.SECOND_FULL
    assert over.facts == {
        "second_ms": str(SECOND),
        "pending": "4",
        "second_messages_max": "4",
        "position": "1",
        "nearest_due_ms": str(SECOND - 1_000),
    }
    assert str(SECOND - 1_000) in over.text
    assert fresh.wheel.pending == 5  # nothing of a refused batch is there


def test_the_nearest_second_with_room_has_room_for_all_and_is_not_past(fresh: Machine) -> None:
    hour_end = (NOW_MS // 3_600_000 + 1) * 3_600_000
    full = [hour_end - 1_000] * 3 + [hour_end - 2_000] * 2 + [hour_end] * 2 + [hour_end + 1_000]
    fresh.apply(1, 1, [limited(full, 3, now_ms=hour_end - 1_500)])
    (over,) = fresh.apply(2, 1, [limited([hour_end - 900] * 2, 3, now_ms=hour_end - 1_500)])
    assert isinstance(over, Refusal)
    assert over.facts["nearest_due_ms"] == str(hour_end + 1_000)
    (at,) = fresh.apply(3, 1, [limited([hour_end + 1_000] * 2, 3, now_ms=hour_end - 1_500)])
    assert isinstance(at, Scheduled)


def test_a_batch_larger_than_any_second_is_told_to_spread(fresh: Machine) -> None:
    (over,) = fresh.apply(1, 1, [limited([SECOND] * 5, 4)])
    assert isinstance(over, Refusal)
    assert "nearest_due_ms" not in over.facts
    assert "spread" in over.text
    exactly, _ = fresh.apply(2, 1, [limited([SECOND] * 4, 4), release(SECOND)])
    assert isinstance(exactly, Scheduled)
    (free,) = fresh.apply(3, 1, [limited([SECOND + 500] * 4, 4)])
    assert isinstance(free, Scheduled)  # what has been released takes no room


def test_a_refused_request_may_come_again_under_its_number(fresh: Machine) -> None:
    fresh.apply(1, 1, [topic("t", pending_max=1), schedule([SECOND])])
    again = schedule([SECOND + 1], producer="p", sequence=1)
    (refused,) = fresh.apply(2, 1, [again])
    assert isinstance(refused, Refusal)
    taken = fresh.apply(3, 1, [release(SECOND), again])[1]
    assert isinstance(taken, Scheduled)
    assert not log_pb.ScheduledColumns.FromString(taken.response).repeated


def test_a_topic_takes_what_it_may_hold_and_what_leaves_the_wheel_makes_room(fresh: Machine) -> None:
    fresh.apply(1, 1, [topic("t", pending_max=3), subscribe()])
    first, over, last = fresh.apply(
        2, 1, [schedule([SECOND] * 2), schedule([SECOND] * 2), schedule([SECOND + 9])]
    )
    assert isinstance(first, Scheduled)
    assert isinstance(last, Scheduled)
    assert isinstance(over, Refusal)
    assert over.reason is Reason.TOPIC_FULL
    assert over.facts == {"topic": "t", "pending": "2", "pending_max": "3", "position": "0"}
    columns = log_pb.ScheduledColumns.FromString(first.response)
    hour = int.from_bytes(columns.hour[:4], "little")
    fresh.apply(3, 1, [cancel([(hour, 0), (hour, 0)]), cancel([(hour, 0)])])
    assert fresh.wheel.pending_of(0) == 2
    fresh.apply(4, 1, [release(SECOND)])
    assert fresh.wheel.pending_of(0) == 1
    two, three = fresh.apply(5, 1, [schedule([SECOND + 9] * 2), schedule([SECOND + 9])])
    assert isinstance(two, Scheduled)
    assert isinstance(three, Refusal)
    (other,) = fresh.apply(6, 1, [schedule([SECOND + 9] * 9, topic="other")])
    assert isinstance(other, Scheduled)


def test_only_topics_that_a_message_has_are_made(fresh: Machine) -> None:
    columns = log_pb.ScheduleColumns(
        topics=["a", "unused", "b"], topic=np.array([2, 0, 2], dtype="<u4").tobytes(), records=[b""] * 3
    )
    columns.due_ms = np.full(3, SECOND, dtype="<i8").tobytes()
    fresh.apply(1, 1, [admin(log_pb.ScheduleCommand(now_ms=NOW_MS, request=columns))])
    assert sorted(queue.topic for queue in fresh.queues) == ["a", "b"]
    assert [fresh.wheel.pending_of(fresh.queues.of(name).queue) for name in "ab"] == [1, 2]


def test_commands_go_into_the_wheel_together_though_more_is_pending_than_one_second_may_have(
    fresh: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    day_ms = 86_400_000
    fresh.apply(1, 1, [limited([SECOND + hour * 3_600_000 for hour in range(8)], 4)])
    calls: list[int] = []
    append = fresh.wheel.append
    monkeypatch.setattr(
        fresh.wheel, "append", lambda due, *rest: calls.append(len(due)) or append(due, *rest)
    )
    fresh.apply(2, 1, [limited([SECOND + day_ms + ms], 4) for ms in range(4)])
    assert calls == [4]
    refused = fresh.apply(3, 1, [limited([SECOND + day_ms], 4)])[0]
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.SECOND_FULL


def test_a_due_time_beyond_the_calendar_is_the_last_of_it(fresh: Machine) -> None:
    fresh.apply(1, 1, [schedule([2**62])])
    assert fresh.wheel.pending == 1
    assert fresh.wheel.next_due_ms() == DUE_MS_MAX
