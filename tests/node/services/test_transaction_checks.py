"""Many checks that are due together, and producers that do not keep up: who is asked, and when."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import TransactionSettings
from tarry.node.transactions import checks, producers
from tarry.node.transactions.checks import Checks
from tarry.node.transactions.producers import CheckStream
from tarry.proto import tarry_transaction_pb2 as pb
from tests import turns as cost
from tests.node.lone_leader import Leader, until
from tests.node.lone_leader import play as timed
from tests.node.services.test_transactions import COMMIT, ROLLBACK, Caller, Producer, came_due, play

ENDS = 5_000
LATER = TransactionSettings(check_after_ms=1, check_pauses_ms=(60_000,))


def loop_of(caller: Caller) -> Checks:
    asked = caller.lead.node.leadership._checks
    assert asked is not None
    return asked


async def prepare_many(caller: Caller, count: int, group: str = "shop") -> None:
    await asyncio.gather(*(caller.prepare(f"{group}-{number}", group=group) for number in range(count)))


def test_checks_wait_in_the_queue_while_the_producers_that_are_there_have_no_room(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(producers, "CHECKS_WAITING_MAX", 2)
    monkeypatch.setattr(checks, "OFFSETS_MAX", 2)

    async def act(caller: Caller) -> None:
        counts = caller.lead.node.leadership.check_counts
        producer = await Producer(caller).joined()
        await prepare_many(caller, 7)
        await until(lambda: came_due(caller) == 7)
        await until(lambda: counts.asked >= 2)
        other = await Producer(caller, "other").joined()
        await prepare_many(caller, 1, "other")
        assert (await other.check()).transaction.transaction == "other-0"  # it waits for none of theirs
        told = (await caller.page(producer_group="shop")).transactions
        assert sorted(one.checks for one in told) == [0] * 5 + [1] * 2
        asked = {(await producer.check()).transaction.transaction for _ in range(7)}
        assert asked == {f"shop-{number}" for number in range(7)}
        assert (counts.asked, counts.unheard) == (8, 0)
        await producer.leave()
        await other.leave()

    play(tmp_path, act, transactions=LATER)


def test_a_producer_that_never_has_room_is_waited_for_as_long_as_the_first_pause_of_its_group(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(producers, "CHECKS_WAITING_MAX", 1)

    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        await prepare_many(caller, 3)
        await until(lambda: caller.ready("dlq.transactions.t") == 3)
        assert not len(caller.lead.machine.transactions)
        await producer.leave()

    play(
        tmp_path,
        act,
        transactions=TransactionSettings(check_after_ms=1, check_pauses_ms=(200,), checks_max=2),
    )


def test_so_many_checks_are_handed_over_in_a_second_and_no_more(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, "CHECKS_MAX", 5)

    async def act(caller: Caller) -> None:
        begun_s = time.monotonic()
        await prepare_many(caller, 40)
        counts = caller.lead.node.leadership.check_counts
        await until(lambda: counts.unheard == 40)
        assert time.monotonic() - begun_s >= (40 - 5) / 100 - checks.BURST_S

    play(tmp_path, act, transactions=LATER.model_copy(update={"checks_per_s_max": 100}))


def test_no_check_writes_a_record_anew_while_the_leader_lacks_disk(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, "DISK_S", 0.05)

    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        looks = list[bool]()
        monkeypatch.setattr(loop_of(caller), "_has_disk", lambda: bool(looks.append(False)))
        await caller.prepare()
        await until(lambda: len(looks) > 2)
        (told,) = (await caller.page()).transactions
        assert told.checks == 0
        monkeypatch.setattr(loop_of(caller), "_has_disk", lambda: True)
        assert (await producer.check()).transaction.checks == 1
        await producer.leave()

    play(tmp_path, act, transactions=LATER)


def test_a_producer_that_reads_none_of_its_refusals_loses_its_stream_and_no_more_of_it_is_taken(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(producers, "REFUSALS_WAITING_MAX", 10)

    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        (stream,) = caller.lead.node.leadership.check_streams._groups["shop"]
        assert isinstance(stream, CheckStream)
        for number in range(producers.CHECKS_WAITING_MAX + 200):
            producer.answer(f"none-{number}", COMMIT)
        await until(lambda: stream.ended)
        assert len(stream._waiting) == producers.CHECKS_WAITING_MAX + 10
        assert not stream.has_room()
        left = producer._requests.qsize()
        assert left >= 150
        with pytest.raises(Exception, match="read on"):
            while True:
                assert (await producer.next()).refused.reason == "TRANSACTION_UNKNOWN"
        assert producer._requests.qsize() >= left - 1

    play(tmp_path, act)


def test_what_checks_that_are_due_together_and_ends_that_come_together_take_of_a_turn() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        await until(lambda: lead.machine.level == 2)
        caller = Caller(lead)
        counts = lead.node.leadership.check_counts
        for start in range(0, ENDS, 500):
            names = [f"o-{number}" for number in range(start, start + 500)]
            await asyncio.gather(*(caller.prepare(name, check_after_ms=600_000) for name in names))
        requests = [
            pb.EndTransactionRequest(
                producer_group="shop", transaction=f"o-{number}", end=(COMMIT, ROLLBACK)[number % 2]
            )
            for number in range(ENDS)
        ]
        async with steps.step("ends together"):
            end = caller.service._transactions.end
            await asyncio.gather(*(end(request, caller.context) for request in requests))
        assert not len(lead.machine.transactions)
        for start in range(0, 2_000, 500):
            names = [f"p-{number}" for number in range(start, start + 500)]
            await asyncio.gather(*(caller.prepare(name, check_after_ms=1) for name in names))
        async with steps.step("checks"):
            await until(lambda: counts.unheard == 2_000)

    settings: dict[str, Any] = {"transactions": TransactionSettings(checks_per_s_max=100_000)}
    assert cost.too_long(timed(act, **settings)) == {}


def test_the_room_of_a_group_is_that_of_its_streams() -> None:
    streams = producers.CheckStreams()
    first, second = (CheckStream("shop", lambda _: True) for _ in range(2))
    assert streams.room("shop") is None
    streams.join(first)
    streams.join(second)
    assert streams.room("shop") == 2 * producers.CHECKS_WAITING_MAX
    first.send(b"check")
    assert streams.room("shop") == 2 * producers.CHECKS_WAITING_MAX - 1
    second.send(bytes(producers.BYTES_WAITING_MAX))
    assert streams.room("shop") == producers.CHECKS_WAITING_MAX - 1
    first.end()
    assert streams.room("shop") == 0
