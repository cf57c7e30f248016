"""The dispatcher's loop on a real state machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.leader.dispatcher import HOURS_MAX, Dispatcher
from tarry.replication.state_machine import commands
from tarry.wheel.state import HOUR_MS
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, cancel, release, retry, schedule, subscribe
from tests.turns import bound_s, tries


class _Standing:
    """A clock that stands until it is put forward."""

    now_ms = NOW_MS

    def monotonic_s(self) -> float:
        return (self.now_ms - NOW_MS) / 1_000

    def wall_ms(self) -> int:
        return self.now_ms


class _Log:
    """What is proposed together becomes one entry."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: list[tuple[bytes, asyncio.Future[Any]]] = []
        self.commits: list[int] = []
        self.released: list[dict[str, int]] = []
        """Of each commit, how many by topic, and by group of retries."""
        self.busiest_s = 0.0

    async def propose(self, payload: Message) -> Any:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(0, self._commit)
        self._waiting.append((commands.encode(payload), loop.create_future()))
        return await self._waiting[-1][1]

    def _commit(self) -> None:
        together = [*self._waiting]
        self._waiting.clear()
        self.commits.append(len(together))
        machine = self._replica.machine
        before = [queue.units for queue in machine.queues]
        began_s = time.thread_time()
        outcomes = machine.apply(machine.applied_index + 1, 1, [said for said, _ in together])
        self.busiest_s = max(self.busiest_s, time.thread_time() - began_s)
        self.released.append(
            {
                queue.group or queue.topic: queue.units - units
                for queue, units in zip(machine.queues, before, strict=True)
                if queue.units > units
            }
        )
        for (_, answer), outcome in zip(together, outcomes, strict=True):
            answer.set_result(outcome)


async def test_a_backlog_is_released_by_more_slices_a_commit_and_then_by_one_again(tmp_path: Path) -> None:
    replica, clock = Replica(tmp_path), _Standing()
    clock.now_ms += 7
    replica.apply(schedule([NOW_MS] * 95))
    log, settings = _Log(replica), Dispatch(slice_messages_max=10, slices_max=4)
    dispatcher = Dispatcher(replica.machine, ClusterTime(clock), settings, log.propose, lambda: 0)
    running = asyncio.ensure_future(dispatcher.run())
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert log.commits == [1, 2, 4, 4]
    await asyncio.sleep(0)  # the dispatcher hears of the last one
    late = dispatcher.lateness.of_all(clock.now_ms)
    assert late is not None
    assert (late.released, late.p50_ms, late.p99_ms, late.max_ms) == (95, 7, 7, 7)
    clock.now_ms += 2_000
    replica.apply(schedule([NOW_MS + 2_000] * 5))
    dispatcher.inserted()
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert log.commits == [1, 2, 4, 4, 1]
    running.cancel()


@pytest.mark.parametrize("overtaking_messages_max", [0, 1, 2])
async def test_other_topics_wait_for_one_commit_of_a_backlog_and_not_for_its_end(
    tmp_path: Path, overtaking_messages_max: int
) -> None:
    replica = Replica(tmp_path)
    replica.apply(schedule([NOW_MS - 900] * 200), schedule([NOW_MS - 2, NOW_MS - 1], topic="other"))
    log = _Log(replica)
    settings = Dispatch(slice_messages_max=10, slices_max=2, overtaking_messages_max=overtaking_messages_max)
    running = asyncio.ensure_future(
        Dispatcher(replica.machine, ClusterTime(_Standing()), settings, log.propose, lambda: 0).run()
    )
    other = replica.machine.queues.of("other")
    while not other.units:  # noqa: ASYNC110
        await asyncio.sleep(0)
    crowd = replica.machine.queues.of("t")
    if overtaking_messages_max:
        assert (other.units, crowd.units, log.commits) == (overtaking_messages_max, 30, [1, 2])
    else:
        assert (other.units, crowd.units) == (2, 200)
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (other.units, replica.machine.queues.of("t").units) == (2, 200)
    running.cancel()


@pytest.mark.parametrize("copies_due_ms", [NOW_MS - 1_500, NOW_MS - 500, NOW_MS + HOUR_MS])
async def test_only_copies_for_retries_that_are_due_bound_what_one_commit_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies_due_ms: int
) -> None:
    monkeypatch.setattr("tarry.node.leader.dispatcher.COPIES_MAX", 10)
    replica, due_ms = Replica(tmp_path), NOW_MS - 3_000
    replica.apply(subscribe(), schedule([due_ms] * 35, now_ms=due_ms), release(due_ms))
    replica.apply(retry(range(35), copies_due_ms, now_ms=due_ms))
    replica.apply(schedule([NOW_MS - 1_000 + at for at in range(300)], topic="other", now_ms=due_ms))
    gone = [(NOW_MS // HOUR_MS, 70 + at) for at in range(50)]
    replica.apply(cancel(gone))
    log, clock = _Log(replica), _Standing()
    settings = Dispatch(slice_messages_max=100, slices_max=2, overtaking_messages_max=0)
    running = asyncio.ensure_future(
        Dispatcher(replica.machine, ClusterTime(clock), settings, log.propose, lambda: 0).run()
    )
    due = copies_due_ms < NOW_MS
    while replica.machine.wheel.pending > (0 if due else 35):  # noqa: ASYNC110
        await asyncio.sleep(0)
    running.cancel()
    assert {"other": 250, **({"g": 35} if due else {})} == {
        name: sum(commit.get(name, 0) for commit in log.released)
        for name in {name for commit in log.released for name in commit}
    }
    assert max(commit.get("g", 0) for commit in log.released) <= 10
    assert len(log.released) <= (7 if due else 2)


async def test_copies_that_are_applied_before_a_release_count_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.leader.dispatcher.COPIES_MAX", 10)
    replica, due_ms = Replica(tmp_path), NOW_MS - 3_000
    replica.apply(subscribe(), schedule([due_ms] * 35, now_ms=due_ms), release(due_ms))
    replica.apply(schedule([NOW_MS - 1_000] * 5, topic="other", now_ms=due_ms))
    log, coming = _Log(replica), [*range(35)]

    async def propose(payload: Message) -> Any:
        if coming:
            replica.apply(retry(coming, NOW_MS - 1_000, now_ms=due_ms))
            coming.clear()
        return await log.propose(payload)

    settings = Dispatch(slice_messages_max=100, slices_max=2, overtaking_messages_max=0)
    dispatcher = Dispatcher(replica.machine, ClusterTime(_Standing()), settings, propose, lambda: len(coming))
    running = asyncio.ensure_future(dispatcher.run())
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    running.cancel()
    assert sum(commit.get("g", 0) for commit in log.released) == 35
    assert max(commit.get("g", 0) for commit in log.released) <= 10


@pytest.mark.parametrize("away_ms", [10, 10_000])
@pytest.mark.parametrize("topics", [10, 35])
async def test_one_commit_releases_to_a_bounded_number_of_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, away_ms: int
) -> None:
    monkeypatch.setattr("tarry.node.leader.dispatcher.QUEUES_MAX", 10)
    replica, due_ms = Replica(tmp_path), NOW_MS - away_ms
    for number in range(topics):
        replica.apply(schedule([due_ms + at for at in range(10)], topic=f"t{number}", now_ms=due_ms))
    log, settings = _Log(replica), Dispatch(slice_messages_max=100, slices_max=4, overtaking_messages_max=0)
    running = asyncio.ensure_future(
        Dispatcher(replica.machine, ClusterTime(_Standing()), settings, log.propose, lambda: 0).run()
    )
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    running.cancel()
    assert max(map(len, log.released)) == 10
    assert set(log.commits) == {1}
    assert [queue.units for queue in replica.machine.queues] == [10] * topics
    assert len(log.released) <= (2 if topics == 10 else topics * 10 // 10 + 1)


def _over_hours(folder: Path, topics: Sequence[str], hours: int, each: int) -> Replica:
    """A replica that was away: of each topic so many messages are overdue in each hour."""
    replica = Replica(folder)
    first_ms = NOW_MS - hours * HOUR_MS
    for topic in topics:
        for _ in range(each):
            due_ms = [first_ms + at * HOUR_MS for at in range(hours)]
            replica.apply(schedule(due_ms, topic=topic, now_ms=first_ms))
    return replica


@pytest.mark.parametrize("topics", [["t"], ["t", "other", "third"]])
def test_a_backlog_over_thousands_of_hours_is_released_some_hours_a_commit(
    tmp_path: Path, topics: list[str]
) -> None:
    hours = 1_500

    async def flushed(folder: Path) -> float:
        replica = _over_hours(folder, topics, hours, 2)
        log, machine = _Log(replica), replica.machine
        # So few a slice that whatever is full lets others overtake.
        settings = Dispatch(slice_messages_max=16 if len(topics) > 1 else 10_000)
        running = asyncio.ensure_future(
            Dispatcher(machine, ClusterTime(_Standing()), settings, log.propose, lambda: 0).run()
        )
        while machine.wheel.pending:  # noqa: ASYNC110
            await asyncio.sleep(0)
        running.cancel()
        assert hours // HOURS_MAX <= len(log.commits) <= (len(topics) + 1) * hours // HOURS_MAX
        for topic in topics:
            queue = machine.queues.of(topic)
            due_ms = queue.at(np.arange(queue.units, dtype=np.uint64))["due_ms"]
            assert len(due_ms) == 2 * hours
            assert (np.diff(due_ms) >= 0).all()
        machine.close()
        return log.busiest_s

    for attempt in tries():
        if (busiest_s := asyncio.run(flushed(tmp_path / str(attempt)))) <= (allowed_s := bound_s()):
            return
    raise AssertionError(f"{busiest_s} s, more than {allowed_s}")
