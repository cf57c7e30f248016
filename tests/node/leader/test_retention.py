"""What may be forgotten, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.node.config import Dispatch
from tarry.node.leader.group_moves import GroupMoves
from tarry.node.leader.queue_bytes import BESIDE_BYTES
from tarry.node.leader.retention import EXPIRED, TRIMMED_MAX, Kept, Retention
from tarry.node.recovery.queue_hours import BLOCK_UNITS
from tarry.node.repair.record_reads import RecordReads
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import START_AT_EARLIEST, GroupStart
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine import commands as command
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue, segment_name
from tarry.wheel.cached_reads import NotCached, Pread
from tests.node.cold_disk import ColdDisk
from tests.replication.commands import NOW_MS, ack, admin, record, release, retry, schedule, subscribe
from tests.replication.state_machine.test_cluster_settings import change
from tests.replication.state_machine.test_levels import RAISE
from tests.simulation import virtual_loop
from tests.turns import Steps, bound_s, freeze, once_s, too_long

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RETENTION_MS = 3 * DAY_MS


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    opened.apply(1, 1, [subscribe(), schedule([NOW_MS + i for i in range(4)]), release(NOW_MS + 10)])
    yield opened
    opened.close()


def plan(machine: Machine, now_ms: int, retention_ms: int) -> log_pb.TrimCommand | None:
    return only(asyncio.run(Kept(machine, retention_ms).plan(now_ms)))


def only(planned: Iterable[log_pb.TrimCommand]) -> log_pb.TrimCommand | None:
    commands = list(planned)
    assert len(commands) <= 1
    return commands[0] if commands else None


def cuts(planned: log_pb.TrimCommand | None) -> dict[int, int]:
    if planned is None:
        return {}
    numbers = np.frombuffer(planned.queue, "<u4").tolist()
    return dict(zip(numbers, np.frombuffer(planned.offset, "<u8").tolist(), strict=True))


def test_what_a_group_is_not_past_is_kept_for_ever(machine: Machine) -> None:
    assert plan(machine, NOW_MS + 100 * DAY_MS, RETENTION_MS) is None


def test_what_every_group_is_past_goes_when_its_time_is_over(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 3])])
    assert plan(machine, NOW_MS + RETENTION_MS - 1, RETENTION_MS) is None
    assert cuts(plan(machine, NOW_MS + RETENTION_MS + 1, RETENTION_MS)) == {0: 2}


def test_a_topic_may_say_how_long(machine: Machine) -> None:
    settings = TopicSettings(retention_ms=5_000)
    machine.apply(2, 1, [ack([0, 1]), admin(log_pb.TopicCommand(topic="t", settings=settings))])
    assert cuts(plan(machine, NOW_MS + 5_001, RETENTION_MS)) == {0: 2}


def settings(machine: Machine, **more: int) -> None:
    chosen = TopicSettings(**more)  # type: ignore[arg-type]
    machine.apply(machine.applied_index + 1, 1, [admin(log_pb.TopicCommand(topic="t", settings=chosen))])


def measured(machine: Machine, now_ms: int) -> list[log_pb.TrimCommand]:
    """What is planned once the leader has read what there is."""
    kept = Kept(machine, RETENTION_MS)

    async def planned() -> list[log_pb.TrimCommand]:
        await kept.measure()
        return list(await kept.plan(now_ms))

    return asyncio.run(planned())


def test_a_topic_may_bound_the_bytes_that_are_kept_for_its_retention(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "bytes", MachineSettings())
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS] * 4_096, bodies=[b"x" * 900] * 4_096)])
    machine.apply(2, 1, [release(NOW_MS + 10), ack(range(4_000))])
    each = len(record(b"x" * 900)) + BESIDE_BYTES
    assert measured(machine, NOW_MS + 11) == []
    settings(machine, retention_bytes=1_024 * each)
    assert cuts(only(measured(machine, NOW_MS + 11))) == {0: 3_072}
    settings(machine, retention_bytes=10)
    assert cuts(only(measured(machine, NOW_MS + 11))) == {0: 4_000}  # as far as the group is
    settings(machine, retention_bytes=5_000 * each)
    assert measured(machine, NOW_MS + 11) == []
    machine.close()


def test_what_is_too_old_goes_though_a_group_has_not_had_it(machine: Machine) -> None:
    settings(machine, retention_max_ms=5 * DAY_MS)
    late_ms = NOW_MS + 5 * DAY_MS
    machine.apply(machine.applied_index + 1, 1, [ack([1]), release(late_ms)])
    assert measured(machine, late_ms) == []
    planned = only(measured(machine, late_ms + 1))
    assert cuts(planned) == {0: 4}
    assert hours(planned) == [FIRST_HOUR]
    assert planned is not None
    machine.apply(machine.applied_index + 1, 1, [command.encode(planned)])
    assert (machine.queues[0].first, machine.wheel.hours()) == (4, ())
    assert machine.queues.acknowledged["g", 0].floor == 4
    assert machine.queues.uses.of("t", "g").expired == 3


def test_a_retry_that_is_too_old_goes_with_its_topics_setting(machine: Machine) -> None:
    settings(machine, retention_max_ms=DAY_MS)
    at_ms = NOW_MS + 2 * DAY_MS
    machine.apply(machine.applied_index + 1, 1, [retry([0, 1, 2, 3], NOW_MS + 20)])
    machine.apply(machine.applied_index + 1, 1, [release(NOW_MS + 30, now_ms=NOW_MS + 30)])
    assert cuts(only(measured(machine, NOW_MS + 30 + DAY_MS - 1))) == {0: 4}
    assert cuts(only(measured(machine, at_ms))) == {0: 4}  # 0.2.0 would not open the lanes behind it
    machine.level = 2
    assert cuts(only(measured(machine, at_ms))) == {0: 4, machine.queues.of("t", "g").queue: 4}


def test_many_that_expire_go_in_steps(machine: Machine) -> None:
    settings(machine, retention_max_ms=DAY_MS)
    machine.apply(machine.applied_index + 1, 1, [subscribe(group="h"), release(LATE_MS)])
    fill(machine.queues[0], 2 * EXPIRED, FIRST_HOUR)
    planned = measured(machine, LATE_MS + DAY_MS + 1)
    seen = [(cuts(one)[0], len(one.hour)) for one in planned]
    assert [cut for cut, _ in seen] == [*range(EXPIRED // 2, 2 * EXPIRED + 4, EXPIRED // 2), 2 * EXPIRED + 4]
    assert {size for _, size in seen[:-1]} == {0}


def test_what_expires_of_many_topics_goes_in_commands_of_which_each_is_applied_in_a_short_turn(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path / "many", MachineSettings())
    bounded = TopicSettings(retention_max_ms=DAY_MS)
    for topic in range(300):
        shape = log_pb.TopicCommand(topic=f"t{topic}", settings=bounded)
        applied(machine, admin(shape), subscribe(f"t{topic}"))
        fill(machine.queues.of(f"t{topic}"), EXPIRED - 1, FIRST_HOUR)
    assert too_long_to_expire(machine) == {}
    machine.close()


def test_so_do_retries_of_many_groups(tmp_path: Path) -> None:
    machine, groups, each = Machine(tmp_path / "many", MachineSettings()), 600, 300
    shape = log_pb.TopicCommand(topic="t", settings=TopicSettings(retention_max_ms=DAY_MS))
    applied(machine, admin(shape), schedule([NOW_MS] * each))
    applied(machine, *(subscribe(group=f"g{group}") for group in range(groups)), release(NOW_MS))
    for group in range(groups):
        applied(machine, retry(range(each), NOW_MS + 20, group=f"g{group}"))
    while applied(machine, release(NOW_MS + 20))[0].count:
        pass
    assert too_long_to_expire(machine) == {}
    machine.close()


def too_long_to_expire(machine: Machine) -> dict[str, float]:
    """What takes more than a turn may, of retention's work once all of the queues has expired."""
    machine.level, machine.events.wanted = 2, True  # for a ledger
    applied(machine, release(LATE_MS + 2 * DAY_MS))
    kept = Kept(machine, RETENTION_MS)
    planned = iter(asyncio.run(kept.plan(LATE_MS + 2 * DAY_MS)))
    longest_s = {"make": 0.0, "look": 0.0, "apply": 0.0}
    made: list[log_pb.TrimCommand | None] = []

    def timed(name: str, work: Callable[[], object]) -> None:
        longest_s[name] = max(longest_s[name], once_s(work))

    freeze()
    while True:
        timed("make", lambda: made.append(next(planned, None)))
        one = made.pop()
        if one is None:
            break
        timed("look", partial(kept.past, one))
        timed("apply", partial(applied, machine, command.encode(one)))
    assert [queue.topic for queue in machine.queues if queue.first < queue.units] == []
    return {name: took_s for name, took_s in longest_s.items() if took_s > bound_s()}


def applied(machine: Machine, *commands: bytes) -> list[Any]:
    """What an entry comes to, told to the ledger."""
    outcomes = machine.apply(machine.applied_index + 1, 1, commands)
    machine.take_events()
    return outcomes


def test_a_group_that_goes_back_during_the_planning_keeps_nothing_that_is_too_old(machine: Machine) -> None:
    settings(machine, retention_max_ms=DAY_MS)
    machine.apply(machine.applied_index + 1, 1, [ack([0, 1, 2, 3]), release(LATE_MS)])

    async def planned_while_moved() -> log_pb.TrimCommand | None:
        planning = asyncio.ensure_future(Kept(machine, RETENTION_MS).plan(LATE_MS))
        for _ in range(3):
            await asyncio.sleep(0)
        machine.apply(
            machine.applied_index + 1, 1, [admin(log_pb.SeekCommand(topic="t", group="g", offset=1))]
        )
        return only(await planning)

    assert cuts(asyncio.run(planned_while_moved())) == {0: 4}


def test_an_hour_goes_whole_once_nothing_points_into_it(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2]), release(NOW_MS + 5 * DAY_MS)])
    late = NOW_MS + 5 * DAY_MS
    planned = plan(machine, late, RETENTION_MS)
    assert planned is not None
    assert planned.hour == b""
    machine.apply(3, 1, [ack([3])])
    planned = plan(machine, late, RETENTION_MS)
    assert planned is not None
    assert np.frombuffer(planned.hour, "<u4").tolist() == [NOW_MS // HOUR_MS]
    machine.apply(4, 1, [command.encode(planned)])
    assert machine.wheel.hours() == ()
    assert plan(machine, late, RETENTION_MS) is None


def test_an_hour_goes_as_soon_as_the_release_is_past_its_end(machine: Machine) -> None:
    end_ms = (FIRST_HOUR + 1) * HOUR_MS
    settings(machine, retention_ms=1)
    machine.apply(machine.applied_index + 1, 1, [ack([0, 1, 2, 3]), release(end_ms - 1)])
    assert hours(plan(machine, end_ms, RETENTION_MS)) == []
    machine.apply(machine.applied_index + 1, 1, [release(end_ms)])
    planned = plan(machine, end_ms, RETENTION_MS)
    assert hours(planned) == [FIRST_HOUR]
    assert planned is not None
    machine.apply(machine.applied_index + 1, 1, [command.encode(planned)])
    assert machine.wheel.hours() == ()


def test_an_hour_that_has_got_more_since_it_was_planned_stays(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3]), release(LATE_MS)])
    planned = plan(machine, LATE_MS, RETENTION_MS)
    assert hours(planned) == [FIRST_HOUR]
    assert planned is not None
    machine.apply(3, 1, [schedule([NOW_MS + 2])])  # stamped before: it comes overdue
    assert machine.wheel.units_in_hour(FIRST_HOUR) == 5
    machine.apply(4, 1, [command.encode(planned)])
    assert machine.wheel.units_in_hour(FIRST_HOUR) == 5
    assert plan(machine, LATE_MS, RETENTION_MS) is None
    machine.apply(5, 1, [ack([4])])
    planned = plan(machine, LATE_MS + 2 * RETENTION_MS, RETENTION_MS)
    assert planned is not None
    machine.apply(6, 1, [command.encode(planned)])
    assert machine.wheel.hours() == ()


def test_an_hour_with_a_pending_message_stays(machine: Machine) -> None:
    machine.apply(2, 1, [schedule([NOW_MS + 9 * DAY_MS]), ack([0, 1, 2, 3]), release(NOW_MS + 5 * DAY_MS)])
    planned = plan(machine, NOW_MS + 5 * DAY_MS, RETENTION_MS)
    assert planned is not None
    assert np.frombuffer(planned.hour, "<u4").tolist() == [NOW_MS // HOUR_MS]


LATE_MS = NOW_MS + 5 * DAY_MS
FIRST_HOUR = NOW_MS // HOUR_MS


def hours(planned: log_pb.TrimCommand | None) -> list[int]:
    assert planned is not None
    return np.frombuffer(planned.hour, "<u4").tolist()


def fill(queue: ReadyQueue, units: int, hour: int) -> None:
    """Put units that point into an hour at the end of a queue."""
    released = np.zeros(units, UNIT)
    released["due_ms"], released["hour"] = LATE_MS, hour
    queue.append(released)


def test_an_hour_is_kept_until_its_end_lies_the_window_of_idempotency_keys_behind(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3]), release(LATE_MS)])
    end_ms = (FIRST_HOUR + 1) * HOUR_MS

    def gone(now_ms: int, window_ms: int) -> list[int]:
        kept = Kept(machine, retention_ms=1, window_ms=window_ms)
        return hours(only(asyncio.run(kept.plan(now_ms))))

    for window_ms in (1, HOUR_MS, 3 * HOUR_MS + 5, 4 * DAY_MS):
        assert gone(end_ms + window_ms - 1, window_ms) == []  # what its queue has of it goes all the same
        assert gone(end_ms + window_ms, window_ms) == [FIRST_HOUR]
    assert gone(LATE_MS, 2**62) == []


def test_retention_goes_by_the_window_that_counts_now(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3]), release(LATE_MS), RAISE])
    machine.apply(3, 1, [change(seed=True, idempotency_window_ms=LATE_MS)])

    async def play() -> None:
        log = Log(machine)
        retention = asyncio.ensure_future(retaining(log, GroupMoves(log)).run())
        await asyncio.sleep(1)
        planned, _ = log.waiting[0]
        assert hours(log_pb.TrimCommand.FromString(planned[1:])) == []
        log.apply()
        await asyncio.sleep(1)
        assert log.waiting == []
        machine.apply(machine.applied_index + 1, 1, [change(idempotency_window_ms=1)])
        await asyncio.sleep(1)
        planned, _ = log.waiting[0]
        assert hours(log_pb.TrimCommand.FromString(planned[1:])) == [FIRST_HOUR]
        retention.cancel()

    virtual_loop.run(play())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (offset, count) of every read of more than one unit."""
    seen = []
    read = ReadyQueue.read

    def counted(queue: ReadyQueue, offset: int, count: int, pread: Pread | None = None) -> NDArray[np.void]:
        if count > 1:
            seen.append((offset, count))
        return read(queue, offset, count, pread)

    monkeypatch.setattr(ReadyQueue, "read", counted)
    return seen


def test_what_is_kept_is_read_once_and_in_bounded_steps(
    machine: Machine, reads: list[tuple[int, int]]
) -> None:
    queue = machine.queues[0]
    fill(queue, 3 * BLOCK_UNITS, FIRST_HOUR)
    kept = Kept(machine, RETENTION_MS)

    async def turns() -> int:
        """How many turns of the loop others got while it was planned."""
        planning = asyncio.ensure_future(kept.plan(LATE_MS))
        turns = 0
        while not planning.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(turns()) > 4
    assert [count for _, count in reads] == [BLOCK_UNITS] * 3 + [4]
    reads.clear()
    asyncio.run(turns())
    assert reads == []
    fill(queue, 100, FIRST_HOUR)
    asyncio.run(turns())
    assert reads == [(3 * BLOCK_UNITS + 4, 100)]
    reads.clear()
    machine.apply(2, 1, [ack(range(BLOCK_UNITS + 1))])
    asyncio.run(turns())
    assert [count for _, count in reads] == [BLOCK_UNITS - 4]  # only the first four are old enough


def test_what_is_on_disk_only_is_read_ahead_in_a_thread_and_the_plan_is_the_same(machine: Machine) -> None:
    """Nothing of a queue is in memory at first, and each place is once it was read ahead."""
    queue = machine.queues[0]
    fill(queue, 3 * BLOCK_UNITS, FIRST_HOUR)
    machine.apply(2, 1, [ack(range(BLOCK_UNITS + 1))])
    queue.flush()
    disk = ColdDisk()
    reads = disk.reads(machine)
    cold = only(asyncio.run(Kept(machine, RETENTION_MS, reads=reads).plan(LATE_MS)))
    assert len(disk.there) > 3
    assert {places.path for places in disk.read} == {queue.folder / segment_name(0)}
    assert cold == only(asyncio.run(Kept(machine, RETENTION_MS).plan(LATE_MS)))
    assert cold is not None


def test_a_queue_that_never_stays_in_memory_is_planned_for_all_the_same(machine: Machine) -> None:
    fill(machine.queues[0], 100, FIRST_HOUR)
    machine.queues[0].flush()

    def pread(*_: int) -> bytes:
        raise NotCached

    reads = RecordReads(machine, pread)
    assert only(asyncio.run(Kept(machine, RETENTION_MS, reads=reads).plan(LATE_MS))) == only(
        asyncio.run(Kept(machine, RETENTION_MS).plan(LATE_MS))
    )


def test_an_hour_stays_that_something_released_during_the_planning_points_into(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3]), release(LATE_MS)])
    kept = Kept(machine, RETENTION_MS)
    assert hours(only(asyncio.run(kept.plan(LATE_MS)))) == [FIRST_HOUR]

    async def planned_while_released() -> log_pb.TrimCommand | None:
        fill(machine.queues[0], 2 * BLOCK_UNITS, FIRST_HOUR + 1)
        planning = asyncio.ensure_future(kept.plan(LATE_MS))
        for _ in range(4):
            await asyncio.sleep(0)  # its first block has been read
        machine.apply(3, 1, [schedule([NOW_MS + 1])])
        return only(await planning)

    planned = asyncio.run(planned_while_released())
    if planned is not None:
        machine.apply(4, 1, [command.encode(planned)])
    assert machine.wheel.hours() == (FIRST_HOUR,)
    assert machine.queues[0].at(np.array([machine.queues[0].units - 1], np.uint64))["hour"] == [FIRST_HOUR]


def test_thousands_of_hours_go_some_with_each_command_and_after_the_offsets(tmp_path: Path) -> None:
    machine, many = Machine(tmp_path / "many", MachineSettings()), 3 * TRIMMED_MAX
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS + at * HOUR_MS for at in range(many)])])
    for index in range(2, 2 + many // 256):
        machine.apply(index, 1, [release(NOW_MS + (index - 1) * 256 * HOUR_MS - 1)])
    machine.apply(machine.applied_index + 1, 1, [ack(range(many)), release(NOW_MS + (many + 5) * HOUR_MS)])
    planned = list(asyncio.run(Kept(machine, RETENTION_MS).plan(NOW_MS + 2 * many * HOUR_MS)))
    assert [(len(one.queue) // 4, len(one.hour) // 4) for one in planned] == [
        (1, TRIMMED_MAX - 1),
        (0, TRIMMED_MAX),
        (0, TRIMMED_MAX),
        (0, 1),
    ]
    freeze()
    took_s = [
        once_s(lambda: machine.apply(machine.applied_index + 1, 1, [command.encode(one)]))  # noqa: B023
        for one in planned
    ]
    assert sorted(took_s)[1] <= bound_s()  # of three alike, and a small one
    assert machine.wheel.hours() == ()
    machine.close()


def test_many_queues_are_looked_at_over_many_turns(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "many", MachineSettings())
    machine.apply(1, 1, [subscribe(f"t{number}") for number in range(15_000)])

    async def play(steps: Steps, holds: Holds) -> None:
        async with steps.step("plan"):
            assert list(await Kept(machine, RETENTION_MS).plan(LATE_MS)) == []

    assert too_long(play) == {}
    machine.close()


@pytest.mark.parametrize("back", ["seek", "subscribe"])
def test_nothing_is_cut_where_a_group_goes_back_during_the_planning(machine: Machine, back: str) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3]), release(LATE_MS)])
    moves = {
        "seek": admin(log_pb.SeekCommand(topic="t", group="g", offset=1)),
        "subscribe": subscribe("t", "h"),
    }

    async def planned_while_moved() -> log_pb.TrimCommand | None:
        planning = asyncio.ensure_future(Kept(machine, RETENTION_MS).plan(LATE_MS))
        for _ in range(3):
            await asyncio.sleep(0)
        machine.apply(3, 1, [moves[back]])
        return only(await planning)

    assert asyncio.run(planned_while_moved()) is None


def test_topics_that_come_and_go_during_the_planning_are_no_trouble(machine: Machine) -> None:
    fill(machine.queues[0], 3 * BLOCK_UNITS, FIRST_HOUR)

    async def planned_while_changed() -> log_pb.TrimCommand | None:
        planning = asyncio.ensure_future(Kept(machine, RETENTION_MS).plan(LATE_MS))
        for _ in range(3):
            await asyncio.sleep(0)
        machine.apply(2, 1, [admin(log_pb.DeleteTopicCommand(topic="t")), subscribe("u")])
        machine.write(machine.capture())
        machine.apply(3, 1, [schedule([NOW_MS + 1], topic="u"), release(LATE_MS)])
        return only(await planning)

    assert asyncio.run(planned_while_changed()) is None  # its only hour is what the new topic points into
    assert not (machine.folder / "ready/0").exists()  # reading would have made it again


@pytest.mark.parametrize("topics", [10_000, 1])
def test_all_queues_that_there_may_be_are_planned_for_and_each_turn_is_short(
    machine: Machine, topics: int
) -> None:
    groups = 10_000
    for number in range(groups):
        machine.queues.subscribe(f"t{number % topics}", f"g{number}", GroupStart())
    for queue in machine.queues:
        queue.append(np.zeros(1, UNIT))
    for known in machine.queues.acknowledged.values():
        known.seek(1)

    async def planned(steps: Steps, holds: Holds) -> None:
        cut = 0
        async with steps.step("plan"):
            for command in await Kept(machine, 1).plan(NOW_MS + DAY_MS):
                cut += len(command.queue) // 4
                await asyncio.sleep(0)  # as where it is proposed
        assert cut == len(list(machine.queues))

    assert too_long(planned) == {}


class Log:
    """Takes commands as a driver does, and answers when told to."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.waiting: list[tuple[bytes, asyncio.Future[Any]]] = []

    async def propose(self, command: bytes, cost_us: int = 0) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((command, answer))
        return await answer

    def apply(self) -> None:
        waiting, self.waiting = self.waiting, []
        outcomes = self.machine.apply(self.machine.applied_index + 1, 1, [command for command, _ in waiting])
        for (_, answer), outcome in zip(waiting, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)


class Late:
    def now_ms(self) -> int:
        return LATE_MS


def retaining(log: Log, moves: GroupMoves) -> Retention:
    async def propose(planned: log_pb.TrimCommand) -> Any:
        return await log.propose(command.encode(planned))

    settings = Dispatch(retention_check_ms=1, retention_ms=RETENTION_MS)
    clock: Any = Late()
    return Retention(log.machine, clock, settings, propose, pytest.fail, moves)


@pytest.mark.parametrize("gives_up", [False, True])
def test_nothing_is_deleted_that_a_group_may_want_which_is_being_made(
    machine: Machine, gives_up: bool
) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3])])

    async def play() -> None:
        log = Log(machine)
        moves = GroupMoves(log)
        start = GroupStart(at=START_AT_EARLIEST)
        made = command.encode(log_pb.SubscribeCommand(topic="t", group="late", start=start))
        caller = asyncio.ensure_future(moves.propose(made, 0))
        retention = asyncio.ensure_future(retaining(log, moves).run())
        await asyncio.sleep(1)
        if gives_up:
            caller.cancel()
        await asyncio.sleep(1)
        assert [each for each, _ in log.waiting] == [made]
        log.apply()
        await asyncio.sleep(1)
        retention.cancel()
        assert not moves.under_way
        assert not log.waiting  # the group is not past them

    virtual_loop.run(play())


async def test_a_cut_is_not_proposed_once_a_group_has_gone_back(machine: Machine) -> None:
    machine.apply(2, 1, [ack([0, 1, 2, 3])])
    kept = Kept(machine, RETENTION_MS)
    planned = only(await kept.plan(LATE_MS))
    assert planned is not None
    assert kept.past(planned)
    machine.apply(3, 1, [admin(log_pb.SeekCommand(topic="t", group="g", offset=2))])
    assert not kept.past(planned)
