"""Transactions of both clients, against a node that leads alone in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.client import aio, sync
from tarry.client.aio import Half, TransactionEnd, TransactionState
from tarry.client.errors import InvalidTransaction, NotFound, TransactionEnded
from tarry.client.local.free_ports import free_ports
from tarry.client.transactions import check_stream
from tarry.node.config import TransactionSettings
from tarry.node.services.transactions import TransactionCalls
from tarry.proto.ledger.schema import REPEATED, Kind
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.client.test_receipts import rows as receipts_in
from tests.node.lone_leader import Leader, leader, until

SOON = TransactionSettings(check_after_ms=100, check_pauses_ms=(100,), checks_max=50)
LATE = TransactionSettings()


def play(
    folder: Path,
    act: Callable[[aio.Client, Leader, str], Awaitable[None]],
    transactions: TransactionSettings = LATE,
) -> None:
    async def run() -> None:
        port, peers = free_ports(2)
        listen = f"127.0.0.1:{port}"
        more: dict[str, Any] = {
            "listen": listen,
            "peer_listen": f"127.0.0.1:{peers}",
            "transactions": transactions,
        }
        async with leader(folder, Holds(), **more) as lead:
            await until(lambda: lead.machine.level == 2)
            async with aio.connect(listen) as client:
                await act(client, lead, listen)

    asyncio.run(run())


def ready(lead: Leader, topic: str = "orders") -> int:
    queue = lead.machine.queues.find(topic)
    return 0 if queue is None else queue.units


def test_the_end_of_a_block_commits_and_an_exception_rolls_back(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async with client.producer(group="shop") as producer:
            async with producer.transaction("orders", b"1", name="o-1", delay_ms=100) as transaction:
                assert transaction.name == "o-1"
                assert ready(lead) == 0
            assert transaction.info is not None
            assert transaction.info.state is TransactionState.COMMITTED
            assert (await producer.get(transaction.info.id)).body == b"1"
            with pytest.raises(KeyError):
                async with producer.transaction("orders", b"2", name="o-2", delay_ms=0):
                    raise KeyError("the database refused")
            with pytest.raises(TransactionEnded) as refused:
                await client.transactions().commit("shop", "o-2")
            assert refused.value.state == "ROLLED_BACK"
            await until(lambda: ready(lead) == 1)

    play(tmp_path, act)


@pytest.mark.parametrize("ended", ["committed", "unresolved"])
def test_the_error_of_a_block_is_raised_though_its_rollback_fails(tmp_path: Path, ended: str) -> None:
    error = KeyError("the database refused")

    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async with client.producer(group="shop") as producer:
            with pytest.raises(KeyError) as raised:
                async with producer.transaction("orders", b"1", name="o", delay_ms=0, check_after_ms=1):
                    if ended == "committed":
                        await client.transactions().commit("shop", "o")
                    else:
                        await until(lambda: not len(lead.machine.transactions))
                    raise error
            assert raised.value is error
            assert f"is {ended.upper()}" in error.__notes__[0]

    once = TransactionSettings(check_pauses_ms=(1,), checks_max=1)
    play(tmp_path, act, once if ended == "unresolved" else LATE)


def test_the_producers_selector_chooses_the_ordering_key_of_one_without(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async with client.producer(
            selector=lambda message: f"k-{message.body.decode()}", group="shop"
        ) as producer:
            keys = []
            for given in ("", "mine"):
                async with producer.transaction("orders", b"1", delay_ms=900_000, ordering_key=given) as made:
                    pass
                assert made.info is not None
                keys.append((await producer.get(made.info.id)).ordering_key)
            assert keys == ["k-1", "mine"]
        async with client.producer(selector=lambda _: 1 // 0 * "", group="shop") as producer:
            with pytest.raises(ZeroDivisionError):
                producer.transaction("orders", b"1", delay_ms=0)

    play(tmp_path, act)


def test_a_message_is_born_as_it_was_prepared_and_stored_as_it_was_committed(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async with client.producer(group="shop") as producer:
            async with producer.transaction("orders", b"1", delay_ms=900_000) as made:
                begun_ms = time.time_ns() // 1_000_000
                await until(lambda: time.time_ns() // 1_000_000 > begun_ms)
            assert made.info is not None
            message = await producer.get(made.info.id)
            assert message.born_ms is not None
            assert message.born_ms <= begun_ms
            assert message.stored_ms == made.info.ended_ms

    play(tmp_path, act)


def test_a_producer_keeps_the_commits_that_it_has_the_ok_for(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, listen: str) -> None:
        async with (
            aio.connect(listen, receipts=tmp_path / "receipts") as kept,
            kept.producer(group="shop") as producer,
        ):
            async with producer.transaction("orders", b"1", name="o", delay_ms=900_000) as made:
                pass
            assert made.info is not None
            assert await made.commit() == made.info
            with pytest.raises(KeyError):
                async with producer.transaction("orders", b"2", delay_ms=0):
                    raise KeyError("the database refused")
        told = receipts_in(tmp_path / "receipts")
        assert [(one["kind"], one["topic"], one["due_ms"], one["detail"]) for one in told] == [
            (Kind.PRODUCED, "orders", made.info.message_due_ms, None),
            (Kind.PRODUCED, "orders", made.info.message_due_ms, REPEATED),
        ]
        ids = {str(MessageId(0, one["hour"], one["global_index"])) for one in told}
        assert ids == {made.info.id}

    play(tmp_path, act)


def test_the_block_of_a_transaction_that_has_ended_before_is_not_run(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async with client.producer(group="shop") as producer:
            for name, end in (("a", client.transactions().commit), ("b", client.transactions().rollback)):
                await client.transactions().prepare("shop", "orders", b"1", name=name, delay_ms=0)
                done = await end("shop", name)
                with pytest.raises(TransactionEnded) as refused:
                    async with producer.transaction("orders", b"1", name=name, delay_ms=0):
                        raise AssertionError("the block has run")
                assert refused.value.state == done.state.upper()

    play(tmp_path, act)


def test_checks_are_subscribed_again_until_the_level_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async def check(half: Half) -> TransactionEnd:
            return TransactionEnd.COMMIT

        may = lead.machine.may_propose
        refused: list[int] = []

        def below(level: int) -> bool:
            refused.append(level)
            return False

        monkeypatch.setattr(lead.machine, "may_propose", below)
        async with client.producer(group="shop", check=check):
            await until(lambda: bool(refused))
            monkeypatch.setattr(lead.machine, "may_propose", may)
            await until(lambda: len(lead.node.leadership.check_streams) == 1)

    play(tmp_path, act)


def test_checks_that_are_refused_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A token may come to one node after another; without checks transactions would end undecided."""
    monkeypatch.setattr(check_stream, "REFUSED_S", 0.01)
    refusal = Refusal(Reason.UNAUTHENTICATED, "the token is not known here yet")
    answers: list[Refusal | None] = [refusal, refusal, refusal]

    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async def check(half: Half) -> TransactionEnd:
            return TransactionEnd.COMMIT

        monkeypatch.setattr(TransactionCalls, "_streams_full", lambda _: answers.pop() if answers else None)
        async with client.producer(group="shop", check=check):
            await until(lambda: len(lead.node.leadership.check_streams) == 1)
        assert not answers

    play(tmp_path, act)
    assert [record.message for record in caplog.records if record.name == "tarry.transactions"] == [
        f"checks of transactions are refused, and asked for again: UNAUTHENTICATED: {refusal.text}"
    ]


def test_a_block_that_is_cancelled_leaves_its_transaction_to_the_check(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        asked: list[Half] = []

        async def check(half: Half) -> TransactionEnd:
            asked.append(half)
            if len(asked) == 1:
                raise ConnectionError("the database is away")
            return TransactionEnd.UNKNOWN if len(asked) == 2 else TransactionEnd.COMMIT

        async with client.producer(group="shop", check=check) as producer:

            async def work() -> None:
                async with producer.transaction("orders", b"1", name="o-1", delay_ms=0, tags=["eu"]):
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await until(lambda: len(lead.machine.transactions) == 1)
            task.cancel()
            await until(lambda: ready(lead) == 1)
        assert [(half.name, half.topic, half.body, half.tags) for half in asked[:1]] == [
            ("o-1", "orders", b"1", ("eu",))
        ]
        assert len(asked) == 3

    play(tmp_path, act, SOON)


def test_a_transaction_that_is_left_is_asked_about_at_another_producer_of_the_group(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        async def check(half: Half) -> TransactionEnd:
            return TransactionEnd.ROLLBACK if half.name == "b" else TransactionEnd.COMMIT

        async with client.producer(group="shop") as one, client.producer(group="shop", check=check):
            for name in ("a", "b"):
                async with one.transaction("orders", name=name, delay_ms=0) as transaction:
                    transaction.leave()
            await until(lambda: lead.machine.transactions.ended == 2)
        states = {each.name: each.state async for each in client.transactions().list(ended=True)}
        assert states == {"a": TransactionState.COMMITTED, "b": TransactionState.ROLLED_BACK}

    play(tmp_path, act, SOON)


def test_transactions_are_prepared_ended_and_listed_by_name(tmp_path: Path) -> None:
    async def act(client: aio.Client, lead: Leader, _: str) -> None:
        transactions = client.transactions()
        made = [await transactions.prepare("shop", "orders", name=f"o-{n}", delay_ms=n) for n in range(3)]
        assert [each async for each in transactions.list()] == made
        assert [each async for each in transactions.list(topic="other")] == []
        page = await transactions.list_page(size=2)
        assert (len(page.transactions), page.open) == (2, 3)
        done = await transactions.commit("shop", "o-0")
        assert await transactions.commit("shop", "o-0") == done
        with pytest.raises(NotFound):
            await transactions.rollback("shop", "none")
        with pytest.raises(InvalidTransaction):
            client.producer().transaction("orders", delay_ms=0)
        with pytest.raises(InvalidTransaction):
            client.producer(check=lambda half: transactions)  # type: ignore[arg-type, return-value]

    play(tmp_path, act)


def test_the_blocking_client_does_the_same_in_threads(tmp_path: Path) -> None:
    def blocking(listen: str) -> None:
        def check(half: Half) -> TransactionEnd:
            return TransactionEnd.COMMIT

        with sync.connect(listen) as client, client.producer(group="shop", check=check) as producer:
            with producer.transaction("orders", b"1", name="o-1", delay_ms=0) as transaction:
                assert transaction.name == "o-1"
            with pytest.raises(KeyError), producer.transaction("orders", b"2", name="o-2", delay_ms=0):
                raise KeyError("the database refused")
            with producer.transaction("orders", b"3", name="o-3", delay_ms=0) as left:
                left.leave()
            while len(ended := list(client.transactions().list(ended=True))) < 3:
                pass
            assert {one.name: str(one.state) for one in ended} == {
                "o-1": "committed",
                "o-2": "rolled_back",
                "o-3": "committed",
            }

    async def act(_: aio.Client, lead: Leader, listen: str) -> None:
        await asyncio.to_thread(blocking, listen)

    play(tmp_path, act, SOON)
