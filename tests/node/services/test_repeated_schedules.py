"""A repeated request is answered as it was before, whatever has become of its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tarry.node.services.repeated_schedules import Repeats
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_producer_pb2 import ScheduleBatchResponse
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Repeated, Scheduled
from tarry.wheel.id_gaps import GAP_MIN
from tests.replication.commands import NOW_MS, admin, cancel, far_due, release, schedule, trim

HOUR_MS = 3_600_000
HOUR = NOW_MS // HOUR_MS
PARTITIONS = [NOW_MS + 7 + at * 1_000_000 for at in range(5)]
FAR = [due_ms + 9 for due_ms in far_due(100)]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "state", MachineSettings(shard=3))
    yield machine
    machine.close()


def apply(machine: Machine, *commands: bytes) -> list[object]:
    return list(machine.apply(machine.applied_index + 1, 1, commands))


def first(machine: Machine, due_ms: Sequence[int]) -> ScheduleBatchResponse:
    """The answer to the request, with what is to differ when it is repeated."""
    (outcome,) = apply(machine, schedule(due_ms, producer="p", sequence=1))
    assert isinstance(outcome, Scheduled)
    answer = ScheduleBatchResponse.FromString(outcome.response)
    answer.repeated = True
    return answer


async def again(machine: Machine) -> ScheduleBatchResponse:
    (outcome,) = apply(machine, schedule([1], producer="p", sequence=1))
    assert isinstance(outcome, Repeated)
    return ScheduleBatchResponse.FromString(await Repeats(3, machine).response(outcome.given))


@pytest.mark.parametrize(
    "due_ms",
    [PARTITIONS[:1], FAR[:1], PARTITIONS[::-1] + FAR[::-1] + PARTITIONS, [PARTITIONS[0]] * 300],
    ids=["one", "one in a partition of its own", "partitions and the far log", "one hour"],
)
async def test_the_answer_is_the_one_given_before(fresh: Machine, due_ms: list[int]) -> None:
    answer = first(fresh, due_ms)
    assert (answer.shard, list(answer.due_ms)) == (3, due_ms)
    assert await again(fresh) == answer
    hour, index = answer.hour[0], answer.global_index[0]
    apply(fresh, cancel([(hour, index)]), release(max(due_ms)))
    assert fresh.wheel.pending == 0
    assert await again(fresh) == answer


async def test_the_answer_behind_an_id_gap_is_the_one_given_before(fresh: Machine) -> None:
    raised = log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS, id_gap=GAP_MIN)
    apply(fresh, admin(raised))
    answer = first(fresh, [*PARTITIONS, *FAR])
    assert {index // GAP_MIN for index in answer.global_index} == {1}
    assert await again(fresh) == answer
    apply(fresh, admin(raised))
    assert await again(fresh) == answer


async def test_due_times_that_jitter_chose_are_told_again(fresh: Machine) -> None:
    request = log_pb.ScheduleColumns(topics=["t"], records=[b""], producer="p", sequence=1)
    later = (NOW_MS + 4_321).to_bytes(8, "little")
    command = admin(log_pb.ScheduleCommand(request=request, due_ms=later, now_ms=NOW_MS))
    apply(fresh, command)
    assert list((await again(fresh)).due_ms) == [NOW_MS + 4_321]


async def test_where_an_hour_is_deleted_the_starts_of_the_hours_are_told(fresh: Machine) -> None:
    answer = first(fresh, [PARTITIONS[0], *FAR])
    apply(fresh, release(FAR[0]), trim([], [], [HOUR]))
    assert not fresh.wheel.units_in_hour(HOUR)
    told = await again(fresh)
    assert list(told.due_ms) == [hour * HOUR_MS for hour in answer.hour]
    assert (told.hour, told.global_index) == (answer.hour, answer.global_index)


async def test_what_was_overdue_is_not_told_again(fresh: Machine) -> None:
    answer = first(fresh, [NOW_MS - 5_000, NOW_MS + 5_000])
    assert list(answer.overdue) == [0]
    del answer.overdue[:]
    assert await again(fresh) == answer
