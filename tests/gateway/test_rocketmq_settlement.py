"""Acknowledgements that come while others of their consumer are under way, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tarry.client.aio import AckOutcome, Puller
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import NotFound, Unavailable
from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.handle import Holder
from tarry.gateway.rocketmq import settlement
from tarry.gateway.rocketmq.settlement import Settlement

OK, STALE = AckOutcome.OK, AckOutcome.STALE
MINE, ANOTHERS = Holder("orders", "g", "mine", 3, 7), Holder("orders", "g", "another", 3, 7)
PATIENCE_S = 10.0


class Cluster:
    """Requests that wait for their answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, Verdict, list[int]]] = []
        self._answers: list[asyncio.Future[list[AckOutcome]]] = []
        cluster = self

        async def settle(puller: Puller, verdict: Verdict, offsets: Sequence[int]) -> list[AckOutcome]:
            answer = asyncio.get_running_loop().create_future()
            cluster.asked.append((puller.name, verdict, list(offsets)))
            cluster._answers.append(answer)
            return await answer  # type: ignore[no-any-return]

        monkeypatch.setattr(Puller, "settle", settle)
        self.access = ClusterAccess(Settings(servers=("127.0.0.1:1",)))
        self.settlement = Settlement()

    def acknowledge(self, *offsets: int, holder: Holder = MINE) -> asyncio.Task[list[AckOutcome]]:
        told = self.settlement.acknowledge(self.access, holder, offsets, PATIENCE_S)
        return asyncio.create_task(told)

    async def begun(self, *offsets: int) -> asyncio.Task[list[AckOutcome]]:
        """Acknowledge; return once its request, the first, is under way."""
        told = self.acknowledge(*offsets)
        await self.until(1)
        return told

    async def until(self, requests: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.asked) < requests:  # noqa: ASYNC110 - turns of the event loop, and no time
                await asyncio.sleep(0)

    def answer(self, number: int, stale: Callable[[int], bool] = lambda _: False) -> None:
        _, _, offsets = self.asked[number]
        self._answers[number].set_result([STALE if stale(offset) else OK for offset in offsets])

    def refuse(self, number: int, error: Exception) -> None:
        self._answers[number].set_exception(error)

    def offsets(self) -> list[list[int]]:
        return [offsets for _, _, offsets in self.asked]


async def test_what_comes_while_a_request_is_under_way_shares_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    first = await cluster.begun(1)
    others = [cluster.acknowledge(2, 3), cluster.acknowledge(4), cluster.acknowledge(3)]
    await asyncio.sleep(0)
    assert cluster.offsets() == [[1]]
    cluster.answer(0)
    assert await first == [OK]
    await cluster.until(2)
    assert cluster.offsets() == [[1], [2, 3, 4]]
    assert {(name, verdict.queue, verdict.incarnation) for name, verdict, _ in cluster.asked} == {
        ("mine", 3, 7)
    }
    cluster.answer(1, stale=lambda offset: offset == 3)
    assert await asyncio.gather(*others) == [[OK, STALE], [OK], [STALE]]
    again = cluster.acknowledge(5)  # nothing is under way any more
    await cluster.until(3)
    cluster.answer(2)
    assert await again == [OK]


async def test_another_consumer_s_is_a_request_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    both = [cluster.acknowledge(1), cluster.acknowledge(1, holder=ANOTHERS)]
    await cluster.until(2)
    assert [name for name, _, _ in cluster.asked] == ["mine", "another"]
    cluster.answer(1, stale=lambda _: True)
    cluster.answer(0)
    assert await asyncio.gather(*both) == [[OK], [STALE]]


async def test_a_request_has_so_many_offsets_and_those_beyond_go_with_the_one_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settlement, "OFFSETS_MAX", 2)
    cluster = Cluster(monkeypatch)
    told = [await cluster.begun(0)]
    told += [cluster.acknowledge(offset) for offset in range(1, 6)]
    await asyncio.sleep(0)
    for number in range(4):
        await cluster.until(number + 1)
        cluster.answer(number)
    assert cluster.offsets() == [[0], [1, 2], [3, 4], [5]]
    assert await asyncio.gather(*told) == [[OK]] * 6


@pytest.mark.parametrize("error", [Unavailable("NO_LEADER", "none"), RuntimeError("a defect")])
async def test_all_who_share_a_request_are_told_its_error_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cluster = Cluster(monkeypatch)
    first = await cluster.begun(1)
    others = [cluster.acknowledge(2), cluster.acknowledge(3)]
    await asyncio.sleep(0)
    cluster.refuse(0, error)
    assert await asyncio.gather(first, return_exceptions=True) == [error]
    await cluster.until(2)
    cluster.refuse(1, error)
    assert await asyncio.gather(*others, return_exceptions=True) == [error] * 2


async def test_what_a_deleted_topic_s_consumers_have_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    told = await cluster.begun(1, 2)
    cluster.refuse(0, NotFound("TOPIC_UNKNOWN", "no such topic"))
    assert await told == [STALE, STALE]


async def test_a_caller_who_waits_no_longer_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    first = await cluster.begun(1)
    gone, other = cluster.acknowledge(2), cluster.acknowledge(3)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    cluster.answer(0)
    await cluster.until(2)
    assert cluster.offsets() == [[1], [2, 3]]
    cluster.answer(1)
    assert await asyncio.gather(first, other) == [[OK], [OK]]


async def test_what_nobody_waits_for_any_more_is_neither_kept_nor_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    first = await cluster.begun(1)
    for offset in range(2, 5):
        with pytest.raises(TimeoutError):
            await cluster.settlement.acknowledge(cluster.access, MINE, [offset], 0.0)
    assert [len(waiting) for waiting in cluster.settlement._waiting.values()] == [0]
    cluster.answer(0)
    assert await first == [OK]
    await asyncio.sleep(0)
    assert (cluster.offsets(), cluster.settlement._waiting) == ([[1]], {})


async def test_at_the_end_what_is_under_way_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    told = [await cluster.begun(1)]
    told.append(cluster.acknowledge(2))
    await asyncio.sleep(0)
    await cluster.settlement.end()
    await asyncio.wait(told)
    assert all(one.cancelled() for one in told)
