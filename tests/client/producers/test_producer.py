"""The producer: never twice, never silently not, and one bad message harms no other."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tarry.client.aio import connect
from tarry.client.errors import (
    Closed,
    InvalidTime,
    NotFound,
    Overloaded,
    PartlyScheduled,
    TarryError,
    TooLarge,
    Unavailable,
)
from tarry.client.records import body_of
from tarry.client.results import CancelOutcome, Scheduled, ScheduledBatch
from tests.client.stand_in import ClusterStandIn, NodeStandIn, refuse


async def test_what_many_tasks_schedule_in_one_turn_leaves_as_one_request(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        answers = await asyncio.gather(
            *(producer.schedule("orders", b"%d" % n, delay_ms=n) for n in range(50))
        )
    assert len(cluster.requests) == 1
    assert list(map(body_of, cluster.scheduled)) == [b"%d" % n for n in range(50)]
    assert len({answer.id for answer in answers}) == 50


async def test_topics_share_a_request_and_kinds_of_time_do_not(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await asyncio.gather(
            producer.schedule("a", delay_ms=1),
            producer.schedule("b", delay_ms=2, tags=["x"]),
            producer.schedule("a", due_ms=5_000),
            producer.schedule("a", delay_level=3),
        )
    kinds = ("due_ms", "delay_ms", "delay_level")
    by_kind = {next(kind for kind in kinds if getattr(r, kind)): r for r in cluster.requests}
    assert list(by_kind["delay_ms"].topics) == ["a", "b"]
    assert list(by_kind["delay_ms"].topic) == [0, 1]
    assert by_kind["delay_ms"].tag_mask[0] == 0 != by_kind["delay_ms"].tag_mask[1]
    assert (list(by_kind["due_ms"].due_ms), list(by_kind["due_ms"].topic)) == ([5_000], [])
    assert list(by_kind["delay_level"].delay_level) == [3]


async def test_while_enough_requests_are_in_flight_messages_wait_to_share_the_next(
    cluster: ClusterStandIn,
) -> None:
    gate = asyncio.Event()

    async def hold(*_: object) -> None:
        await gate.wait()

    cluster.before_schedule = hold
    async with connect(cluster.addresses, gather_in_flight_max=2) as client:
        producer = client.producer()
        answers = []
        for n in range(8):
            answers.append(producer.schedule("orders", b"%d" % n, delay_ms=1))
            await cluster.until(lambda n=n: len(cluster.requests) > min(n, 1))
        gate.set()
        await asyncio.gather(*answers)
    assert [len(request.records) for request in cluster.requests] == [1, 1, 6]


async def test_what_is_gathered_goes_in_requests_of_a_size(cluster: ClusterStandIn) -> None:
    gate = asyncio.Event()

    async def hold(*_: object) -> None:
        await gate.wait()

    cluster.before_schedule = hold
    async with connect(cluster.addresses, gather_in_flight_max=1, gather_bytes_max=200) as client:
        producer = client.producer()
        answers = [producer.schedule("orders", b"first", delay_ms=1)]
        await cluster.until(lambda: len(cluster.requests) == 1)
        answers += [producer.schedule("orders", b"x" * 90, delay_ms=1) for _ in range(7)]
        gate.set()
        await asyncio.gather(*answers)
        assert [len(request.records) for request in cluster.requests] == [1, 3, 3, 1]
        await producer.schedule_batch("orders", [b"x" * 90] * 7, delay_ms=1)
    assert len(cluster.requests[-1].records) == 7  # of batches that is no limit


async def test_every_request_has_the_next_sequence_from_one(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        for n in range(5):
            await producer.schedule("orders", b"%d" % n, delay_ms=1)
    assert [request.sequence for request in cluster.requests] == [1, 2, 3, 4, 5]


async def test_two_producers_of_one_client_have_ids_of_their_own(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        first, second = client.producer(), client.producer()
        await asyncio.gather(first.schedule("orders", delay_ms=1), second.schedule("orders", delay_ms=1))
    assert len(cluster.scheduled) == 2
    assert {request.producer for request in cluster.requests} == {first.id, second.id}


@pytest.mark.parametrize("named", [True, False])
async def test_a_bad_message_fails_alone_though_others_share_its_request(
    cluster: ClusterStandIn, named: bool
) -> None:
    async def too_large(node: NodeStandIn, request: Any, context: Any) -> None:
        bodies = list(map(body_of, request.records))
        if b"13" in bodies:
            facts = {"position": str(bodies.index(b"13"))} if named else {}
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "RECORD_TOO_LARGE", facts)

    cluster.before_schedule = too_large
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        answers = await asyncio.gather(
            *(producer.schedule("orders", b"%d" % n, delay_ms=1) for n in range(40)), return_exceptions=True
        )
    assert [n for n, answer in enumerate(answers) if not isinstance(answer, Scheduled)] == [13]
    assert isinstance(answers[13], TooLarge)
    assert sorted(map(int, map(body_of, cluster.scheduled))) == [n for n in range(40) if n != 13]


async def test_a_batch_of_columns_is_refused_whole(cluster: ClusterStandIn) -> None:
    async def too_far(node: NodeStandIn, request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "DUE_TOO_FAR", {"position": "1"})

    cluster.before_schedule = too_far
    async with connect(cluster.addresses) as client:
        with pytest.raises(InvalidTime) as refused:
            await client.producer().schedule_batch("orders", [b"a", b"b"], due_ms=[1, 2])
    assert refused.value.facts["position"] == "1"
    assert len(cluster.requests) == 1


async def test_a_large_batch_goes_in_pieces_and_comes_back_as_one(cluster: ClusterStandIn) -> None:
    bodies = [b"%d" % n for n in range(2_500)]
    async with connect(cluster.addresses, batch_messages_max=1_000) as client:
        scheduled = await client.producer().schedule_batch("orders", bodies, due_ms=range(2_500))
    assert sorted(len(request.records) for request in cluster.requests) == [500, 1_000, 1_000]
    assert len(scheduled) == 2_500
    assert scheduled.due_ms.tolist() == list(range(2_500))
    stored = [body_of(cluster.scheduled[index]) for index in scheduled.global_index.tolist()]
    assert stored == bodies  # each id is that of its own message


async def test_a_batch_taken_in_part_says_which_part(cluster: ClusterStandIn) -> None:
    async def second(node: NodeStandIn, request: Any, context: Any) -> None:
        if body_of(request.records[0]) == b"2":
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "DUE_TOO_FAR")

    cluster.before_schedule = second
    async with connect(cluster.addresses, batch_messages_max=2) as client:
        with pytest.raises(PartlyScheduled) as partly:
            await client.producer().schedule_batch("orders", [b"%d" % n for n in range(5)], delay_ms=1)
    assert partly.value.starts == [0, 2, 4]
    first, refused, last = partly.value.pieces
    assert isinstance(refused, InvalidTime)
    assert isinstance(first, ScheduledBatch)
    assert isinstance(last, ScheduledBatch)
    assert (len(first), len(last)) == (2, 1)


async def test_a_callback_gets_the_answer_or_the_error(cluster: ClusterStandIn) -> None:
    outcomes: list[Scheduled | BaseException] = []
    async with connect(cluster.addresses, deadline_ms=1_000) as client:
        producer = client.producer()
        producer.schedule_soon("orders", b"a", delay_ms=1, on_done=outcomes.append)
        await producer.flush()
        cluster.lead(None)
        producer.schedule_soon("orders", b"b", delay_ms=1, on_done=outcomes.append)
        await producer.flush()
    good, bad = outcomes
    assert isinstance(good, Scheduled)
    assert isinstance(bad, TarryError)


async def test_what_a_callback_raises_stops_no_other(cluster: ClusterStandIn) -> None:
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
    outcomes: list[Scheduled | BaseException] = []

    def fails(outcome: Scheduled | BaseException) -> None:
        raise ZeroDivisionError

    async with connect(cluster.addresses) as client:
        producer = client.producer()
        producer.schedule_soon("orders", b"a", delay_ms=1, on_done=fails)
        producer.schedule_soon("orders", b"b", delay_ms=1, on_done=outcomes.append)
        await producer.flush()
    assert [type(error) for error in raised] == [ZeroDivisionError]
    assert len(outcomes) == 1


async def test_one_way_messages_are_sent_and_their_errors_only_counted(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, deadline_ms=1_000) as client:
        producer = client.producer()
        producer.schedule_one_way("orders", b"a", delay_ms=1)
        producer.schedule_one_way("orders", b"b", delay_ms=1, due_ms=1)
        await producer.flush()
        assert (len(cluster.scheduled), producer.one_way_errors) == (1, 1)
        cluster.lead(None)
        producer.schedule_one_way("orders", b"c", delay_ms=1)
        await producer.flush()
        assert producer.one_way_errors == 2
        assert isinstance(producer.one_way_last_error, Unavailable)


async def test_messages_over_the_waiting_limit_are_refused_at_once(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, waiting_messages_max=3) as client:
        producer = client.producer()
        taken = [producer.schedule("orders", delay_ms=1) for _ in range(3)]
        with pytest.raises(Overloaded):
            producer.schedule("orders", delay_ms=1)
        await asyncio.gather(*taken)
        await producer.schedule("orders", delay_ms=1)
    assert len(cluster.scheduled) == 4


@pytest.mark.parametrize("times", [{}, {"due_ms": 1, "delay_ms": 1}, {"delay_ms": 1 << 63}, {"due_ms": 1.5}])
async def test_a_time_that_cannot_be_is_refused_before_it_is_sent(
    cluster: ClusterStandIn, times: dict[str, Any]
) -> None:
    async with connect(cluster.addresses) as client:
        with pytest.raises(InvalidTime):
            client.producer().schedule("orders", **times)
    assert not cluster.calls


async def test_text_is_no_body(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        with pytest.raises(TypeError):
            client.producer().schedule("orders", "text", delay_ms=1)  # type: ignore[arg-type]


async def test_a_cancelled_wait_disturbs_no_other_message(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        gone, stays = (producer.schedule("orders", b"%d" % n, delay_ms=1) for n in range(2))
        gone.cancel()
        assert isinstance(await stays, Scheduled)


async def test_closing_waits_for_the_answers_and_takes_no_more(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        answer = producer.schedule("orders", delay_ms=1)
        await producer.close()
        assert answer.done()
        with pytest.raises(Closed):
            producer.schedule("orders", delay_ms=1)
        with pytest.raises(Closed):
            producer.schedule_one_way("orders", delay_ms=1)


async def test_many_cancels_keep_their_order_over_several_requests(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, batch_messages_max=2) as client:
        outcomes = await client.producer().cancel_many(["a", "b", "c", "d", "e"])
    assert outcomes == [CancelOutcome.CANCELLED] * 5
    assert cluster.calls["n1.Cancel"] == 3


async def test_a_message_that_is_not_there_is_not_found(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        with pytest.raises(NotFound):
            await client.producer().get("0000")


async def test_the_bearer_token_goes_with_every_call(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses, token="secret") as client:
        await client.producer().schedule("orders", delay_ms=1)
    assert cluster.metadata
    assert all(sent["authorization"] == "Bearer secret" for sent in cluster.metadata)
