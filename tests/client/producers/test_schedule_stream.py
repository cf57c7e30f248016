"""Schedule requests on one stream: as calls, with the same answers, errors and retries."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import grpc
import pytest

from tarry.client.aio import Client, connect
from tarry.client.errors import NoRoom, NotPermitted
from tarry.client.producers import schedule_stream
from tarry.client.records import body_of
from tests.client.stand_in import ClusterStandIn, NodeStandIn, OfStream, break_off, refuse

Request = Any


async def batches(client_or_producer: Any, *bodies: bytes) -> list[Any]:
    """Schedule one batch a body, all at once; return the answers and errors."""
    return await asyncio.gather(
        *(client_or_producer.schedule_batch("orders", [body], delay_ms=1) for body in bodies),
        return_exceptions=True,
    )


def bodies_of_requests(cluster: ClusterStandIn) -> list[bytes]:
    return [body_of(request.records[0]) for request in cluster.requests]


async def test_requests_share_one_stream(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"first", delay_ms=1)
        answers = await batches(producer, b"a", b"b", b"c")
        assert cluster.calls["n1.ScheduleStream"] == cluster.streams == 1
    assert [answer.global_index.tolist() for answer in answers] == [[1], [2], [3]]
    assert [body_of(record) for record in cluster.scheduled] == [b"first", b"a", b"b", b"c"]
    assert len(cluster.requests) == 4
    await cluster.until(lambda: cluster.streams == 0)


async def test_a_stream_that_breaks_schedules_nothing_twice_and_loses_nothing(
    cluster: ClusterStandIn,
) -> None:
    broken = False

    async def break_once(node: NodeStandIn, request: Request, context: Any) -> None:
        nonlocal broken
        if not broken and body_of(request.records[0]) != b"first":
            await cluster.until(lambda: len(cluster.requests) >= 5)
            if not broken:
                broken = True
                await break_off(context)

    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"first", delay_ms=1)
        cluster.on_schedule = break_once  # after it is scheduled: the answers are lost
        answers = await batches(producer, b"a", b"b", b"c", b"d")
    assert broken
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert sorted(map(body_of, cluster.scheduled)) == [b"a", b"b", b"c", b"d", b"first"]
    assert len(cluster.requests) > 5
    assert len({(request.producer, request.sequence) for request in cluster.requests}) == 5


async def test_a_stream_that_broke_leaves_no_task(cluster: ClusterStandIn) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def break_it(node: NodeStandIn, request: Request, context: Any) -> None:
        if isinstance(context, OfStream):
            await break_off(context)

    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        cluster.on_schedule = break_it
        await producer.schedule("orders", b"b", delay_ms=1)
        del producer
    await asyncio.sleep(0)
    gc.collect()
    left = [task for task in asyncio.all_tasks() if "_consume_request_iterator" in repr(task)]
    assert (told, left) == ([], [])


async def test_the_refusal_of_a_whole_stream_is_none_of_its_requests(cluster: ClusterStandIn) -> None:
    """A node may end a stream for one request; the others may have been done."""
    ended = False

    async def end_once(node: NodeStandIn, request: Request, context: Any) -> None:
        nonlocal ended
        if isinstance(context, OfStream):
            await cluster.until(lambda: len(cluster.requests) >= 4)
            if not ended:
                ended = True
                await refuse(context.whole, grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")

    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"first", delay_ms=1)
        cluster.on_schedule = end_once
        answers = await batches(producer, b"a", b"b", b"c")
    assert ended
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert sorted(map(body_of, cluster.scheduled)) == [b"a", b"b", b"c", b"first"]


async def test_a_refused_request_leaves_the_others_of_its_stream(cluster: ClusterStandIn) -> None:
    async def full(node: NodeStandIn, request: Request, context: Any) -> None:
        if body_of(request.records[0]) == b"b":
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "SECOND_FULL", {"nearest_due_ms": "7"})

    cluster.before_schedule = full
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"first", delay_ms=1)
        one, refused, three = await batches(producer, b"a", b"b", b"c")
        assert cluster.calls["n1.ScheduleStream"] == cluster.streams == 1
    assert isinstance(refused, NoRoom)
    assert refused.nearest_due_ms == 7
    assert len(one) == len(three) == 1
    assert len(cluster.requests) == 4


async def test_a_stream_without_an_answer_yet_carries_one_request(cluster: ClusterStandIn) -> None:
    on_streams = 0

    async def count(node: NodeStandIn, request: Request, context: Any) -> None:
        nonlocal on_streams
        if isinstance(context, OfStream):
            on_streams += 1
            await cluster.until(lambda: len(cluster.requests) == 3)

    cluster.before_schedule = count
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        assert not any(
            isinstance(answer, BaseException) for answer in await batches(producer, b"a", b"b", b"c")
        )
        assert on_streams == 1


async def test_a_stream_that_is_refused_ends_its_request_as_a_call(cluster: ClusterStandIn) -> None:
    async def unknown(context: Any) -> None:
        await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")

    async def unknown_too(node: NodeStandIn, request: Request, context: Any) -> None:
        await unknown(context)

    cluster.nodes[0].streams_end = unknown
    cluster.before_schedule = unknown_too
    async with connect(cluster.addresses) as client:
        errors = await batches(client.producer(), b"a", b"b", b"c")
    assert {type(error) for error in errors} == {NotPermitted}
    assert cluster.calls["n1.ScheduleStream"] >= 1


async def unimplemented(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


async def hang(context: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("end", [unimplemented, break_off, hang])
async def test_a_node_that_takes_no_streams_gets_calls(cluster: ClusterStandIn, end: Any) -> None:
    cluster.nodes[0].streams_end = end
    async with connect(cluster.addresses, attempt_ms=200) as client:
        producer = client.producer()
        for body in (b"a", b"b", b"c"):
            await producer.schedule("orders", body, delay_ms=1)
        assert not any(isinstance(answer, BaseException) for answer in await batches(producer, b"d", b"e"))
    assert cluster.calls["n1.ScheduleStream"] == 1
    assert cluster.calls["n1.ScheduleBatch"] == 5
    assert bodies_of_requests(cluster)[:3] == [b"a", b"b", b"c"]


async def test_the_stream_goes_where_the_leader_is_named(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        cluster.lead(cluster.nodes[2])
        await producer.schedule("orders", b"b", delay_ms=1)
        await producer.schedule("orders", b"c", delay_ms=1)
        assert {call: n for call, n in cluster.calls.items() if call.endswith("ScheduleStream")} == {
            "n1.ScheduleStream": 1,
            "n3.ScheduleStream": 1,
        }
        await cluster.until(lambda: cluster.streams == 1)  # the one to n1 has ended
    assert list(map(body_of, cluster.scheduled)) == [b"a", b"b", b"c"]


async def test_a_silent_stream_is_left_for_another(cluster: ClusterStandIn) -> None:
    async def lose(node: NodeStandIn, request: Request, context: Any) -> None:
        if body_of(request.records[0]) == b"b" and cluster.streams == 1 and len(cluster.requests) == 2:
            await hang(context)

    cluster.on_schedule = lose
    async with connect(cluster.addresses, attempt_ms=200) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        scheduled = await producer.schedule("orders", b"b", delay_ms=1)
        assert scheduled.repeated
        assert (await producer.schedule("orders", b"c", delay_ms=1)).id
    assert cluster.calls["n1.ScheduleStream"] == 2
    assert [request.sequence for request in cluster.requests] == [1, 2, 2, 3]
    assert list(map(body_of, cluster.scheduled)) == [b"a", b"b", b"c"]


async def test_who_gives_up_an_answer_leaves_the_stream_to_others(cluster: ClusterStandIn) -> None:
    may_answer = asyncio.Event()

    async def slow(node: NodeStandIn, request: Request, context: Any) -> None:
        if body_of(request.records[0]) == b"given up":
            await may_answer.wait()

    cluster.before_schedule = slow
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        given_up = asyncio.create_task(producer.schedule_batch("orders", [b"given up"], delay_ms=1))
        await cluster.until(lambda: len(cluster.requests) == 2)
        given_up.cancel()
        await asyncio.wait([given_up])
        may_answer.set()
        assert (await producer.schedule_batch("orders", [b"b"], delay_ms=1)).global_index.tolist() == [2]
        assert cluster.calls["n1.ScheduleStream"] == cluster.streams == 1
    assert given_up.cancelled()
    assert list(map(body_of, cluster.scheduled)) == [b"a", b"given up", b"b"]


async def test_unanswered_requests_on_a_stream_are_few_though_their_callers_give_up(
    cluster: ClusterStandIn,
) -> None:
    silent = asyncio.Event()

    async def hang_all(node: NodeStandIn, request: Request, context: Any) -> None:
        if isinstance(context, OfStream):
            await silent.wait()

    async with connect(cluster.addresses, in_flight_max=2, deadline_ms=1_000) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        cluster.before_schedule = hang_all
        for number in range(2):
            task = asyncio.create_task(producer.schedule_batch("orders", [b"x"], delay_ms=1))
            await cluster.until(lambda number=number: len(cluster.requests) == 2 + number)
            task.cancel()
            await asyncio.wait([task])
        await producer.schedule("orders", b"b", delay_ms=1)  # a call, which is answered
        silent.set()


async def test_closing_waits_for_no_batch_and_the_batch_is_answered(cluster: ClusterStandIn) -> None:
    may_answer = asyncio.Event()

    async def slow(node: NodeStandIn, request: Request, context: Any) -> None:
        if body_of(request.records[0]) == b"b":
            await may_answer.wait()

    cluster.before_schedule = slow
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        await producer.schedule("orders", b"a", delay_ms=1)
        batch = asyncio.create_task(producer.schedule_batch("orders", [b"b"], delay_ms=1))
        await cluster.until(lambda: len(cluster.requests) == 2)
        await producer.close()
        may_answer.set()
        assert len(await batch) == 1
        await cluster.until(lambda: cluster.streams == 0)
    assert len(cluster.requests) == 2


async def test_a_batch_in_flight_ends_with_its_client(cluster: ClusterStandIn) -> None:
    async def never(node: NodeStandIn, request: Request, context: Any) -> None:
        if body_of(request.records[0]) == b"b":
            await hang(context)

    cluster.before_schedule = never
    client: Client = connect(cluster.addresses)
    producer = client.producer()
    await producer.schedule("orders", b"a", delay_ms=1)
    batch = asyncio.create_task(producer.schedule_batch("orders", [b"b"], delay_ms=1))
    await cluster.until(lambda: len(cluster.requests) == 2)
    await client.close()
    await asyncio.wait([batch], timeout=10)
    assert batch.cancelled()


async def test_a_large_request_is_a_call(cluster: ClusterStandIn) -> None:
    """A node ends the stream, and so every request on it, for one over its limit."""
    async with connect(cluster.addresses) as client:
        await client.producer().schedule("orders", bytes(schedule_stream.REQUEST_BYTES_MAX), delay_ms=1)
    assert cluster.calls["n1.ScheduleStream"] == 0
    assert len(cluster.scheduled) == 1


async def test_an_idle_stream_ends_and_another_is_opened(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_stream, "IDLE_S", 0.01)
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        for opened in (1, 2):
            await producer.schedule("orders", delay_ms=1)
            assert cluster.calls["n1.ScheduleStream"] == opened
            await cluster.until(lambda: cluster.streams == 0)


async def test_producers_beyond_some_make_calls(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_stream, "STREAMS_MAX", 1)
    async with connect(cluster.addresses) as client:
        first, second = client.producer(), client.producer()
        for producer in (first, second, second):
            await producer.schedule("orders", delay_ms=1)
        assert cluster.calls["n1.ScheduleStream"] == 1
        await first.close()
        await second.schedule("orders", delay_ms=1)
        assert cluster.calls["n1.ScheduleStream"] == 2
    assert len(cluster.requests) == 4


def of_another(answer: Any) -> Any:
    answer.request += 1
    return answer


def of_nothing(answer: Any) -> Any:
    answer.ClearField("accepted")
    return answer


@pytest.mark.parametrize("alter", [of_another, of_nothing])
async def test_after_an_answer_that_is_none_requests_are_calls(cluster: ClusterStandIn, alter: Any) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    for node in cluster.nodes:
        node.streams_say = alter
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        for _ in range(3):
            await producer.schedule("orders", delay_ms=1)
    assert cluster.calls["n1.ScheduleStream"] == 1
    assert len(cluster.scheduled) == 3
    gc.collect()
    assert told == []
