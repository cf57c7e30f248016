"""Transactions at a node that leads alone: what callers are told, who is asked, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import CheckTimes, Limits, TransactionSettings
from tarry.node.edge.auth import Authorizer
from tarry.node.services import transactions
from tarry.node.services.producer import ProducerService
from tarry.node.transactions import checks
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import CancelOutcome, CancelRequest, CancelResponse, GetRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.queues import CHECKED, CHECKS
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import Leader, leader, until
from tests.simulation.edge import Context, StreamEnded

OPEN, COMMITTED = pb.TRANSACTION_STATE_OPEN, pb.TRANSACTION_STATE_COMMITTED
ROLLED_BACK, UNRESOLVED = pb.TRANSACTION_STATE_ROLLED_BACK, pb.TRANSACTION_STATE_UNRESOLVED
COMMIT, ROLLBACK = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ROLLBACK
UNKNOWN = pb.TRANSACTION_END_UNSPECIFIED
SOON = TransactionSettings(check_after_ms=100, check_pauses_ms=(100,), checks_max=2)


class Producer:
    """A producer's stream of checks, without a network."""

    def __init__(self, caller: Caller, group: str = "shop") -> None:
        self._requests: asyncio.Queue[pb.ChecksRequest | None] = asyncio.Queue()
        self._send(pb.ChecksRequest(subscribe=pb.ChecksSubscribe(producer_group=group)))
        self._responses = caller.service._transactions.checks(self._asked(), caller.context)

    def _send(self, request: pb.ChecksRequest) -> None:
        self._requests.put_nowait(request)

    async def _asked(self) -> AsyncIterator[bytes]:
        while (request := await self._requests.get()) is not None:
            yield request.SerializeToString()

    async def next(self) -> pb.ChecksResponse:
        return pb.ChecksResponse.FromString(await asyncio.wait_for(anext(self._responses), 20))

    async def joined(self) -> Producer:
        assert (await self.next()).HasField("subscribed")
        return self

    async def check(self) -> pb.Check:
        response = await self.next()
        assert response.HasField("check"), response
        return response.check

    def answer(self, name: str, end: Any) -> None:
        self._send(pb.ChecksRequest(answer=pb.CheckAnswer(transaction=name, end=end)))

    async def leave(self) -> None:
        self._requests.put_nowait(None)
        async for _ in self._responses:
            pass


class Caller:
    """Calls of the service, without a network."""

    def __init__(self, lead: Leader, tokens: Any = None) -> None:
        self.lead = lead
        self.service = ProducerService(lead.node._core, Authorizer(tokens or {}), lead.edge._calls)
        self.context: Any = Context()

    async def prepare(self, name: str = "o-1", *, group: str = "shop", **more: Any) -> Any:
        told = {"topic": "t", "record": Record(body=b"order"), **more}
        if "due_ms" not in told:
            told.setdefault("delay_ms", 0)
        request = pb.PrepareRequest(producer_group=group, transaction=name, **told)
        answer = await self.service._transactions.prepare(request, self.context)
        return answer if isinstance(answer, Refusal) else pb.PrepareResponse.FromString(answer)

    async def end(self, end: Any, name: str = "o-1", group: str = "shop") -> Any:
        request = pb.EndTransactionRequest(producer_group=group, transaction=name, end=end)
        answer = await self.service._transactions.end(request, self.context)
        return answer if isinstance(answer, Refusal) else pb.EndTransactionResponse.FromString(answer)

    async def page(self, **asked: Any) -> Any:
        answer = await self.service._transactions.list(pb.ListTransactionsRequest(**asked), self.context)
        return answer if isinstance(answer, Refusal) else pb.ListTransactionsResponse.FromString(answer)

    async def get(self, message: str) -> Any:
        return await self.service._get(GetRequest(id=message), self.context)

    def ready(self, topic: str = "t") -> int:
        queue = self.lead.machine.queues.find(topic)
        return 0 if queue is None else queue.units


def play(folder: Path, act: Callable[[Caller], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with leader(folder, Holds(), **settings) as lead:
            await until(lambda: lead.machine.level == 2)
            await act(Caller(lead))

    asyncio.run(run())


def reason(answer: Any) -> Reason:
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_a_commit_makes_the_half_message_one_that_is_released(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        prepared = await caller.prepare(delay_ms=200)
        assert (prepared.transaction.state, prepared.repeated) == (OPEN, False)
        assert (await caller.prepare(delay_ms=200)).repeated
        done = (await caller.end(COMMIT)).transaction
        assert done.message_due_ms >= done.ended_ms + 200
        again = await caller.end(COMMIT)
        assert (again.repeated, again.transaction) == (True, done)
        assert reason(await caller.end(ROLLBACK)) is Reason.TRANSACTION_ENDED
        await until(lambda: caller.ready() == 1)
        assert isinstance(await caller.get(done.id), bytes)

    play(tmp_path, act)


def test_a_half_message_is_not_to_be_had_by_its_place(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        await caller.prepare()
        (row,) = caller.lead.machine.transactions.rows(ended=False)
        place = str(MessageId(0, row.place >> 32, row.place & 0xFFFFFFFF))
        assert reason(await caller.get(place)) is Reason.MESSAGE_NOT_FOUND

    play(tmp_path, act)


def test_a_producer_of_the_group_is_asked_and_its_answer_ends_the_transaction(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        other, mine = await Producer(caller, "other").joined(), await Producer(caller).joined()
        await caller.prepare("a")
        await caller.prepare("b")
        asked = {(await mine.check()).transaction.transaction for _ in range(2)}
        assert asked == {"a", "b"}
        mine.answer("a", COMMIT)
        mine.answer("b", ROLLBACK)
        mine.answer("a", COMMIT)
        await until(lambda: caller.lead.machine.transactions.ended == 2)
        mine.answer("b", COMMIT)
        refused = (await mine.next()).refused
        assert (refused.transaction, refused.reason) == ("b", "TRANSACTION_ENDED")
        assert (caller.ready(), other._requests.empty()) == (1, True)
        await mine.leave()
        await other.leave()
        assert len(caller.lead.node.leadership.check_streams) == 0

    play(tmp_path, act, transactions=TransactionSettings(check_after_ms=100))


def test_where_one_producer_is_gone_another_of_its_group_is_asked(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        first, second = await Producer(caller).joined(), await Producer(caller).joined()
        await caller.prepare()
        await first.check()
        await first.leave()
        check = await second.check()
        assert (check.transaction.checks, check.record.body) == (2, b"order")
        second.answer("o-1", UNKNOWN)
        second.answer("o-1", COMMIT)
        await until(lambda: caller.ready() == 1)
        await second.leave()

    play(tmp_path, act, transactions=SOON)


def test_after_the_last_check_the_message_is_a_dead_letter_with_its_reason(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        await caller.prepare()
        await until(lambda: caller.ready("dlq.transactions.t") == 1)
        (told,) = (await caller.page(ended=True)).transactions
        assert (told.state, told.checks) == (UNRESOLVED, 2)
        refused = await caller.end(COMMIT)
        assert (reason(refused), refused.facts["state"]) == (Reason.TRANSACTION_ENDED, "UNRESOLVED")
        unit = caller.lead.machine.queues.of("dlq.transactions.t").read(0, 1)[0]
        got = await caller.get(str(MessageId(0, int(unit["hour"]), int(unit["global_index"]))))
        assert b"UNRESOLVED" in got
        assert b"o-1" in got
        counts = caller.lead.node.leadership.check_counts
        assert (counts.asked, counts.unheard, counts.unresolved) == (0, 2, 1)
        assert caller.ready() == 0

    play(tmp_path, act, transactions=SOON)


def test_each_producer_group_may_have_its_own_times(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        await caller.prepare(group="quick")
        await caller.prepare()
        await caller.prepare("late", group="quick", check_after_ms=50_000)
        await until(lambda: caller.ready("dlq.transactions.t") == 1)
        told = (await caller.page()).transactions
        assert [one.producer_group for one in told] == ["shop", "quick"]
        assert [one.next_check_ms - one.prepared_ms for one in told] == [30_000, 50_000]

    quick = CheckTimes(check_after_ms=50, check_pauses_ms=(50,), checks_max=1)
    play(tmp_path, act, transactions=TransactionSettings(groups={"quick": quick}))


def test_a_list_comes_in_pages(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        for number in range(5):
            await caller.prepare(f"o-{number}", topic="tu"[number % 2])
        page = await caller.page(page_size=3)
        assert [one.transaction for one in page.transactions] == ["o-0", "o-1", "o-2"]
        rest = await caller.page(page_size=3, after=page.next_after)
        assert [one.transaction for one in rest.transactions] == ["o-3", "o-4"]
        assert (rest.next_after, rest.open) == (0, 5)
        for name in ("o-3", "o-1"):
            await caller.end(COMMIT, name)
        page = await caller.page(ended=True, page_size=1)
        assert [one.transaction for one in page.transactions] == ["o-3"]
        page = await caller.page(ended=True, page_size=1, after=page.next_after)
        assert [one.transaction for one in page.transactions] == ["o-1"]
        assert len((await caller.page(topic="u")).transactions) == 0
        assert len((await caller.page(producer_group="other")).transactions) == 0
        assert reason(await caller.page(page_size=transactions.PAGE_MAX + 1)) is Reason.TRANSACTION_INVALID

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"name": ""}, Reason.TRANSACTION_INVALID),
        ({"name": "a b"}, Reason.TRANSACTION_INVALID),
        ({"name": "x" * (transactions.NAME_CHARS_MAX + 1)}, Reason.TRANSACTION_INVALID),
        ({"group": "~"}, Reason.TRANSACTION_INVALID),
        ({"check_after_ms": transactions.CHECK_AFTER_MS_MAX + 1}, Reason.TRANSACTION_INVALID),
        ({"record": Record(idempotency_key="k")}, Reason.TRANSACTION_INVALID),
        ({"topic": "~transactions"}, Reason.TOPIC_INVALID),
        ({"topic": "dlq.g.t"}, Reason.TOPIC_INVALID),
        ({"due_ms": 1, "delay_ms": 1}, Reason.DUE_AMBIGUOUS),
        ({"delay_ms": -1}, Reason.DELAY_NEGATIVE),
        ({"record": Record(body=bytes(300_000))}, Reason.RECORD_TOO_LARGE),
    ],
)
def test_a_prepare_is_checked(tmp_path: Path, more: dict[str, Any], wanted: Reason) -> None:
    async def act(caller: Caller) -> None:
        assert reason(await caller.prepare(**more)) is wanted
        assert len(caller.lead.machine.transactions) == 0

    play(tmp_path, act)


def test_what_is_not_known_is_refused_and_limits_hold_at_their_edges(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        assert reason(await caller.end(COMMIT)) is Reason.TRANSACTION_UNKNOWN
        assert reason(await caller.end(UNKNOWN)) is Reason.TRANSACTION_INVALID
        for name in ("a", "b"):
            await caller.prepare(name)
        assert reason(await caller.prepare("c")) is Reason.TOO_MANY_TRANSACTIONS
        await caller.end(ROLLBACK, "a")
        await caller.end(ROLLBACK, "b")
        assert reason(await caller.end(ROLLBACK, "a")) is Reason.TRANSACTION_UNKNOWN
        assert (await caller.end(ROLLBACK, "b")).repeated
        stream = await Producer(caller).joined()
        with pytest.raises(StreamEnded, match="streams of checks"):
            await Producer(caller).joined()
        await stream.leave()
        await (await Producer(caller).joined()).leave()

    limits = Limits(transactions_max=2, transactions_remembered_max=1, check_streams_max=1)
    play(tmp_path, act, limits=limits)


def test_a_stream_of_checks_begins_with_its_subscribe_and_has_one(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        producer = Producer(caller, "~")
        with pytest.raises(StreamEnded, match="producer group"):
            await producer.next()
        twice = await Producer(caller).joined()
        twice._send(pb.ChecksRequest(subscribe=pb.ChecksSubscribe(producer_group="shop")))
        with pytest.raises(StreamEnded, match="subscribes once"):
            await twice.next()

    play(tmp_path, act)


def held(caller: Caller, number: int) -> None:
    """Leave a check that comes due in the queue, as one whose record is damaged."""
    asked = caller.lead.node.leadership._checks
    assert asked is not None
    asked._damaged[number] = 1 << 62


def let_go(caller: Caller) -> None:
    asked = caller.lead.node.leadership._checks
    assert asked is not None
    asked._damaged.clear()
    asked._woken.set()


def came_due(caller: Caller) -> int:
    queue = caller.lead.machine.queues.find(CHECKS, CHECKED)
    return 0 if queue is None else queue.units


@pytest.mark.parametrize("released", [False, True])
def test_a_cancel_of_a_half_message_by_its_place_finds_nothing(tmp_path: Path, released: bool) -> None:
    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        held(caller, 1)
        await caller.prepare(check_after_ms=1 if released else 60_000)
        await until(lambda: came_due(caller) == released)
        (row,) = caller.lead.machine.transactions.rows(ended=False)
        place = str(MessageId(0, row.place >> 32, row.place & 0xFFFFFFFF))
        request = CancelRequest(ids=[place], every_outcome=True)
        answer = CancelResponse.FromString(await caller.service._cancel(request, caller.context))
        assert list(answer.outcomes) == [CancelOutcome.CANCEL_OUTCOME_NOT_FOUND]
        let_go(caller)
        if released:
            assert (await producer.check()).transaction.transaction == "o-1"
        assert (await caller.end(COMMIT)).transaction.state == COMMITTED
        await producer.leave()

    play(tmp_path, act, transactions=SOON)


def test_a_check_that_cannot_be_handed_over_holds_up_no_other(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checks, "OFFSETS_MAX", 2)

    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        for number in range(1, 6):
            if number != 4:
                held(caller, number)
            await caller.prepare(f"o-{number}", check_after_ms=1)
        assert (await producer.check()).transaction.transaction == "o-4"
        let_go(caller)
        asked = {(await producer.check()).transaction.transaction for _ in range(8)}
        assert asked == {"o-1", "o-2", "o-3", "o-4", "o-5"}
        await producer.leave()

    play(tmp_path, act, transactions=TransactionSettings(check_pauses_ms=(100,)))


def test_a_look_that_begins_behind_a_check_goes_round_to_it(tmp_path: Path, monkeypatch: Any) -> None:
    """What arrives while a look waits begins the next one, and a check before it has come due meanwhile."""
    monkeypatch.setattr(checks, "OFFSETS_MAX", 2)

    async def act(caller: Caller) -> None:
        producer = await Producer(caller).joined()
        for number in range(1, 6):
            held(caller, number)
            await caller.prepare(f"o-{number}", check_after_ms=1)
        asked = caller.lead.node.leadership._checks
        assert asked is not None
        await until(lambda: came_due(caller) == 5)
        for _ in range(1_000):  # turns of the event loop: all looks that it has caused are over
            await asyncio.sleep(0)
        asked._at = 4
        del asked._damaged[4]
        asked._woken.set()
        assert (await producer.check()).transaction.transaction == "o-4"
        let_go(caller)
        await producer.leave()

    play(tmp_path, act, transactions=TransactionSettings(check_pauses_ms=(100,)))


def test_a_prepare_that_is_repeated_with_its_properties_in_another_order_is_the_same(tmp_path: Path) -> None:
    names = [f"p-{number}" for number in range(40)]

    async def act(caller: Caller) -> None:
        await caller.prepare(record=Record(properties=dict.fromkeys(names, "v")))
        again = await caller.prepare(record=Record(properties=dict.fromkeys(reversed(names), "v")))
        assert not isinstance(again, Refusal), again
        assert again.repeated

    play(tmp_path, act)


def test_an_answer_does_not_wait_for_the_end_of_the_one_before(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(transactions, "ANSWERS_MAX", 2)

    async def act(caller: Caller) -> None:
        calls, begun, go = caller.service._transactions, list[str](), asyncio.Event()
        end = calls.end

        async def slow(request: pb.EndTransactionRequest, context: Any) -> Any:
            begun.append(request.transaction)
            if request.transaction != "o-2":
                await go.wait()
            return await end(request, context)

        monkeypatch.setattr(calls, "end", slow)
        producer = await Producer(caller).joined()
        for number in range(1, 5):
            await caller.prepare(f"o-{number}")
        for number in range(1, 5):
            producer.answer(f"o-{number}", COMMIT)
        left = asyncio.ensure_future(producer.leave())
        await until(lambda: len(caller.lead.machine.transactions) == 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert begun == ["o-1", "o-2", "o-3"]
        go.set()
        await until(lambda: not len(caller.lead.machine.transactions))
        await left

    play(tmp_path, act)


def test_streams_that_subscribe_at_once_are_no_more_than_the_limit(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        producers = [Producer(caller) for _ in range(2)]
        subscribes = [producer._requests.get_nowait() for producer in producers]
        asked = [asyncio.ensure_future(producer.next()) for producer in producers]
        for _ in range(10):
            await asyncio.sleep(0)
        for producer, subscribe in zip(producers, subscribes, strict=True):
            producer._requests.put_nowait(subscribe)
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, StreamEnded) for each in told) == 1, told
        assert len(caller.lead.node.leadership.check_streams) == 1

    play(tmp_path, act, limits=Limits(check_streams_max=1))
