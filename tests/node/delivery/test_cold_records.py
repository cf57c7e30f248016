"""Records on disk only: what is due waits for them, and nothing else does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tarry.node.repair import record_reads
from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play


def test_what_is_due_is_delivered_in_order_once_it_was_read_ahead_together() -> None:
    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.delay_s = True, 0.3
        group.join("a", credit=20)
        for _ in range(12):
            group.schedule("", 10)
        await pass_ms(group, 200)
        assert not group.given
        await pass_ms(group, 200)
        assert labels(group) == [f"m{n}" for n in range(12)]
        assert group.disk.read_ahead == [12]

    play(steps)


def test_while_records_are_read_the_group_does_not_look_again_and_again() -> None:
    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.delay_s = True, 5.0
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, 10)
        wakes: list[float] = []
        pump = group.group._pump

        def counted() -> None:
            wakes.append(asyncio.get_running_loop().time())
            assert len(wakes) < 100
            pump()

        group.group._pump = counted  # type: ignore[method-assign]
        await pass_ms(group, 4_000)
        assert not group.given
        assert not group.failed
        assert len(wakes) < 10

    play(steps)


def test_what_is_dropped_from_memory_at_once_is_delivered_all_the_same() -> None:
    """Each reading ahead delivers a batch, whatever that takes."""

    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.evicts = True, True
        for _ in range(9):
            group.schedule("", 10)
        await pass_ms(group, 100)
        for name in "ab":
            group.join(name, credit=2)
        await pass_ms(group, 100)
        assert sorted(labels(group)) == ["m0", "m1", "m2", "m3"]

    play(steps)


def test_others_of_the_group_are_delivered_while_records_are_read() -> None:
    """Retries come from a queue of their own."""

    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, 10)
        group.settle_first("a", 1, nack=True)
        await group.settle()
        await group.commit()
        group.disk.cold, group.disk.delay_s = True, 5.0
        group.schedule("", 0)
        await pass_ms(group, 1)
        assert group.group.awaits_disk
        group.disk.cold = False  # of what is in other places
        await pass_ms(group, 100)
        await pass_ms(group, 100)
        assert [(one.label, one.attempt) for one in group.given] == [("m0", 1), ("m0", 2)]

    play(steps)


def test_of_a_batch_that_is_larger_than_what_is_read_ahead_the_first_part_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_reads, "AHEAD_RECORDS_MAX", 2)

    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.evicts = True, True
        group.join("a", credit=20)
        for _ in range(5):
            group.schedule("", 0)
        await pass_ms(group, 10)
        assert labels(group) == [f"m{n}" for n in range(5)]
        assert group.disk.read_ahead == [2, 2, 1]

    play(steps)


def test_what_was_read_ahead_is_taken_for_cached_for_one_batch_only() -> None:
    async def steps(group: Group) -> None:
        group.disk.cold = True
        group.join("a", credit=1)
        for _ in range(2):
            group.schedule("", 0)
        await pass_ms(group, 10)
        assert labels(group) == ["m0"]
        group.disk.cold, group.disk.delay_s = True, 0.1
        group.add_credit("a", 1)
        await pass_ms(group, 10)
        assert labels(group) == ["m0"]
        await pass_ms(group, 200)
        assert labels(group) == ["m0", "m1"]

    play(steps)


def test_what_was_read_ahead_and_not_delivered_for_want_of_credit_is_read_again_later() -> None:
    """It may not be cached any more by then; and what was not read ahead is never waited for."""

    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.delay_s = True, 0.1
        group.join("a", credit=1)
        for _ in range(2):
            group.schedule("", 0)
        await pass_ms(group, 10)
        group.leave("a", clean=True)
        await pass_ms(group, 200)
        group.schedule("", 0)
        group.disk.cold = True
        await pass_ms(group, 10)
        group.join("b", credit=9)
        await pass_ms(group, 10)
        assert labels(group) == ["m0", "m1"]
        await pass_ms(group, 200)
        assert labels(group) == ["m0", "m1", "m2"]

    play(steps)


def test_the_second_of_a_key_waits_for_the_first_whose_record_is_being_read() -> None:
    async def steps(group: Group) -> None:
        group.disk.cold, group.disk.delay_s = True, 0.1
        group.join("a")
        for _ in range(3):
            group.schedule("k", 10)
        await pass_ms(group, 300)
        assert labels(group) == ["m0"]
        for count in (2, 3):
            group.disk.cold = True
            group.settle_first("a", 1, nack=False)
            await group.settle()
            await group.commit()
            await pass_ms(group, 200)
            assert labels(group) == [f"m{n}" for n in range(count)]

    play(steps)


def test_what_is_nacked_as_the_group_is_moved_back_is_not_retried_beside_what_is_delivered_again() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 0)
        await pass_ms(group, 10)
        group.disk.cold, group.disk.delay_s = True, 0.1
        group.settle_first("a", 1, nack=True)
        await pass_ms(group, 10)
        group.apply(log_pb.SeekCommand(topic=TOPIC, group=GROUP, offset=0))
        group.show_applied()
        for _ in range(8):
            await pass_ms(group, 100)
            await group.commit()
        assert [(one.label, one.attempt) for one in group.given] == [("m0", 1), ("m0", 1)]

    play(steps)


def cut(group: Group) -> None:
    """Let all that is ready expire, with the hours it lies in."""
    queue = group.machine.queues[group.queue]
    hours = np.unique(queue.read(0, queue.units)["hour"])
    group.apply(
        log_pb.TrimCommand(
            queue=np.array([group.queue], "<u4").tobytes(),
            offset=np.array([queue.units], "<u8").tobytes(),
            hour=hours.tobytes(),
        )
    )
    group.show_applied()


@pytest.mark.parametrize("evicts", [False, True])
def test_a_retry_is_copied_from_a_record_that_is_on_disk_only(evicts: bool) -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 10)
        await pass_ms(group, 100)
        group.disk.cold, group.disk.evicts, group.disk.delay_s = True, evicts, 0.1
        group.settle_first("a", 1, nack=True)
        await pass_ms(group, 50)
        assert not group.log
        await pass_ms(group, 100)
        await group.commit()
        await pass_ms(group, 300)
        await pass_ms(group, 300)
        assert [(one.label, one.attempt) for one in group.given] == [("m0", 1), ("m0", 2)]

    play(steps)


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_trimmed_while_its_record_is_being_read_stops_nothing(begun: bool) -> None:
    async def steps(group: Group) -> None:
        for _ in range(3):
            group.schedule("", 0)
        group.release()
        group.disk.cold, group.disk.delay_s = True, 0.2
        group.join("a")
        assert group.group.awaits_disk
        if begun:
            await pass_ms(group, 100)
        cut(group)
        await pass_ms(group, 300)
        assert not group.given
        group.schedule("", 3_600_000)
        await pass_ms(group, 3_600_100)
        await pass_ms(group, 100)
        assert labels(group) == ["m3"]
        assert not group.failed

    play(steps)
