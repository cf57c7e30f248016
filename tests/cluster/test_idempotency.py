"""Messages scheduled with idempotency keys to a real cluster: once, whoever repeats them, by any node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from tarry.client import sync
from tarry.client.aio import CancelOutcome, ChangeOutcome, Client, MessageState, connect
from tarry.client.cli.main import app
from tarry.client.errors import IdempotencyConflict, NotFound, TooLarge
from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tests.client.spans_kept import Spans
from tests.cluster.test_upgrade import level
from tests.cluster.wire import TIMEOUT_S, refusal, wire

pytestmark = pytest.mark.beside

HOUR_MS = 3_600_000
KEY_CHARS_MAX = 256
PATIENCE_S = 20


@pytest.fixture
async def clients(shared_cluster: LocalCluster) -> AsyncIterator[list[Client]]:
    """Three clients, as of three processes."""
    await level(shared_cluster, 2)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(shared_cluster.addresses)) for _ in range(3)]


def tarry(cluster: LocalCluster, *arguments: str, code: int = 0) -> Any:
    """Return what a command prints for programs."""
    done = CliRunner().invoke(app, [*arguments, "-o", "json", "--server", cluster.addresses])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout or done.stderr)


async def ids_of(client: Client, topic: str, key: str) -> list[str]:
    page = await client.query().find(topic, idempotency_key=key)
    return [message.id for message in page.messages]


async def test_what_two_clients_schedule_with_one_key_is_one_message(clients: list[Client]) -> None:
    one, other, third = (client.producer() for client in clients)
    content: Any = {"tags": ["t"], "keys": ["k"], "properties": {"p": "1"}, "ordering_key": "o"}
    first = await one.schedule("once", b"x", delay_ms=HOUR_MS, idempotency_key="a", **content)
    again = await other.schedule("once", b"x", delay_ms=2 * HOUR_MS, idempotency_key="a", **content)
    assert (first.repeated, again) == (False, first._replace(repeated=True))
    elsewhere = await third.schedule("once-too", b"x", delay_ms=HOUR_MS, idempotency_key="a", **content)
    assert (elsewhere.repeated, elsewhere.id != first.id) == (False, True)
    assert await ids_of(clients[0], "once", "a") == [first.id]
    assert (await one.get(first.id)).idempotency_key == "a"


@pytest.mark.parametrize(
    "other",
    [{"tags": ["u"]}, {"keys": ["l"]}, {"properties": {"p": "2"}}, {"ordering_key": "q"}, {"body": b"y"}],
)
async def test_other_content_is_a_conflict_that_names_the_first(
    clients: list[Client], other: dict[str, Any]
) -> None:
    topic = f"conflicts-{next(iter(other))}"
    producer = clients[0].producer()
    first = await producer.schedule(topic, b"x", delay_ms=HOUR_MS, idempotency_key="a")
    with pytest.raises(IdempotencyConflict) as conflict:
        await (
            clients[1]
            .producer()
            .schedule(topic, **{"body": b"x", "delay_ms": HOUR_MS, "idempotency_key": "a", **other})
        )
    assert conflict.value.id == first.id
    assert await ids_of(clients[0], topic, "a") == [first.id]


async def test_a_conflict_takes_no_other_message_with_it_but_refuses_a_batch(clients: list[Client]) -> None:
    producer, query = clients[0].producer(), clients[0].query()
    first = await producer.schedule("alone", b"x", delay_ms=HOUR_MS, idempotency_key="k3")
    keys, bodies = [f"k{n}" for n in range(6)], [b"%d" % n for n in range(6)]
    with pytest.raises(IdempotencyConflict) as conflict:
        await producer.schedule_batch("alone", bodies, delay_ms=HOUR_MS, idempotency_keys=keys)
    assert (conflict.value.id, conflict.value.facts["position"]) == (first.id, "3")
    assert not (await query.find("alone", idempotency_key="k0")).messages
    answers = await asyncio.gather(
        *(
            producer.schedule("alone", body, delay_ms=HOUR_MS, idempotency_key=key)
            for body, key in zip(bodies, keys, strict=True)
        ),
        return_exceptions=True,
    )
    assert [isinstance(answer, IdempotencyConflict) for answer in answers] == [n == 3 for n in range(6)]


async def test_a_key_stays_with_a_message_that_is_rescheduled_updated_and_cancelled(
    clients: list[Client],
) -> None:
    producer, other = clients[0].producer(), clients[1].producer()
    first = await producer.schedule(
        "changed", b"x", delay_ms=HOUR_MS, idempotency_key="a", properties={"p": "1"}
    )
    due_ms = first.due_ms + 3 * HOUR_MS
    assert (await producer.reschedule(first.id, due_ms=due_ms)).outcome is ChangeOutcome.CHANGED

    async def again(body: bytes = b"x") -> tuple[str, int, bool]:
        answer = await other.schedule(
            "changed", body, delay_ms=HOUR_MS, idempotency_key="a", properties={"p": "1"}
        )
        return answer.id, answer.due_ms, answer.repeated

    assert await again() == (first.id, due_ms, True)
    for body in (b"y", b"z"):
        assert (await producer.update(first.id, body=body)).outcome is ChangeOutcome.CHANGED
        assert await again() == (first.id, due_ms, True)
        with pytest.raises(IdempotencyConflict):
            await again(body)
    stored = await producer.get(first.id)
    assert (stored.body, stored.idempotency_key) == (b"z", "a")
    assert await producer.cancel(first.id) is CancelOutcome.CANCELLED
    assert await again() == (first.id, due_ms, True)
    assert (await producer.get(first.id)).state is MessageState.CANCELLED


async def test_a_batch_names_what_repeats_and_a_key_twice_in_it_is_one_message(
    clients: list[Client],
) -> None:
    producer = clients[0].producer()
    keys = ["a", "b", "a", "c"]
    batch = await producer.schedule_batch(
        "batch", [b"x", b"y", b"x", b"z"], delay_ms=HOUR_MS, idempotency_keys=keys
    )
    assert (batch.repeats.tolist(), batch.repeated, batch.ids[2]) == ([2], False, batch.ids[0])
    more = (
        await clients[2]
        .producer()
        .schedule_batch("batch", [b"n", b"z", b"y"], delay_ms=2 * HOUR_MS, idempotency_keys=["new", "c", "b"])
    )
    assert more.repeats.tolist() == [1, 2]
    assert more.ids[1:] == [batch.ids[3], batch.ids[1]]
    assert more.due_ms[1:].tolist() == [batch.due_ms[3], batch.due_ms[1]]
    with pytest.raises(IdempotencyConflict) as conflict:
        await producer.schedule_batch("batch", [b"1", b"2"], delay_ms=1, idempotency_keys=["d", "d"])
    assert conflict.value.facts["position"] == "1"


@pytest.fixture
async def of_nodes(shared_cluster: LocalCluster) -> AsyncIterator[list[Client]]:
    """A client for each node, which calls no other, so that followers forward its requests."""
    await level(shared_cluster, 2)
    async with AsyncExitStack() as stack:
        nodes = shared_cluster.nodes.values()
        yield [await stack.enter_async_context(connect(node.address, discover=False)) for node in nodes]


async def test_tasks_of_several_clients_with_the_same_keys_at_once_make_each_message_once(
    of_nodes: list[Client],
) -> None:
    producers = [client.producer() for client in of_nodes]
    names, bodies = [f"k{n}" for n in range(40)], [b"%d" % n for n in range(40)]
    singles = [
        producer.schedule("race", body, delay_ms=HOUR_MS, idempotency_key=name)
        for producer in producers * 3
        for name, body in zip(names, bodies, strict=True)
    ]
    batches = [
        producer.schedule_batch("race", bodies[::turn], delay_ms=HOUR_MS, idempotency_keys=names[::turn])
        for producer in producers
        for turn in (1, -1)
    ]
    rows, columns = await asyncio.gather(asyncio.gather(*singles), asyncio.gather(*batches))
    given = [[row.id for row in rows[start : start + 40]] for start in range(0, len(rows), 40)]
    given += [batch.ids[:: -1 if number % 2 else 1] for number, batch in enumerate(columns)]
    fresh = sum(not row.repeated for row in rows) + sum(40 - len(batch.repeats) for batch in columns)
    assert given == [given[0]] * len(given)
    assert len(set(given[0])) == fresh == 40


async def test_a_key_is_found_at_the_next_leader(shared_cluster: LocalCluster, clients: list[Client]) -> None:
    first = await clients[0].producer().schedule("led", b"x", delay_ms=HOUR_MS, idempotency_key="a")
    async with connect(shared_cluster.addresses, deadline_ms=PATIENCE_S * 1_000) as client:
        before = (await client.operator().status()).leader
        assert (await client.operator().transfer()).leader != before
        again = await client.producer().schedule("led", b"x", delay_ms=HOUR_MS, idempotency_key="a")
    assert again == first._replace(repeated=True)


async def test_a_consumer_reads_the_key_and_it_counts_until_its_window_is_over(
    clients: list[Client],
) -> None:
    client = clients[0]
    producer, operator = client.producer(), client.operator()

    async def schedule() -> tuple[str, bool]:
        answer = await producer.schedule("window", b"x", delay_ms=0, idempotency_key="a")
        return answer.id, answer.repeated

    first, repeated = await schedule()
    assert not repeated
    async with asyncio.timeout(PATIENCE_S), client.consumer("window", "g") as consumer:
        message = await anext(consumer)
        assert (message.id, message.idempotency_key) == (first, "a")
        await message.ack()
    assert await schedule() == (first, True)
    await operator.set_cluster(idempotency_window_ms=1)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(0.05)
                if (answer := await schedule()) != (first, True):
                    break
    finally:
        await operator.set_cluster(unset=["idempotency_window_ms"])
    assert answer[0] != first
    assert not answer[1]
    assert await ids_of(client, "window", "a") == [first, answer[0]]


async def test_a_deleted_topic_takes_its_keys_with_it(clients: list[Client]) -> None:
    producer = clients[0].producer()
    first = await producer.schedule("deleted", b"x", delay_ms=HOUR_MS, idempotency_key="a")
    await clients[0].operator().delete_topic("deleted")
    again = await producer.schedule("deleted", b"y", delay_ms=HOUR_MS, idempotency_key="a")
    assert (again.repeated, again.id != first.id) == (False, True)


async def test_keys_of_other_lengths_and_other_requests_are_refused(
    shared_cluster: LocalCluster, clients: list[Client]
) -> None:
    producer = clients[0].producer()
    await producer.schedule("long", delay_ms=HOUR_MS, idempotency_key="ä" * KEY_CHARS_MAX)
    with pytest.raises(TooLarge) as refused:
        await producer.schedule("long", delay_ms=HOUR_MS, idempotency_key="ä" * (KEY_CHARS_MAX + 1))
    assert refused.value.reason == "IDEMPOTENCY_KEY_TOO_LONG"
    mixed = ScheduleBatchRequest(
        topics=["long"],
        delay_ms=[1, 1],
        records=[Record(idempotency_key=key).SerializeToString() for key in ("a", "")],
    )
    node = shared_cluster.nodes[shared_cluster.wait_until_serving()]
    with wire(node.address) as any_client, pytest.raises(grpc.RpcError) as also:
        any_client.producer.ScheduleBatch(mixed, timeout=TIMEOUT_S)
    assert refusal(also.value).reason == "IDEMPOTENCY_KEYS_MIXED"


async def test_attempts_with_traces_of_their_own_are_the_same_message(shared_cluster: LocalCluster) -> None:
    spans = Spans()
    await level(shared_cluster, 2)
    async with (
        connect(shared_cluster.addresses, tracing=spans.tracing) as traced,
        connect(shared_cluster.addresses) as client,
    ):
        producer = traced.producer()
        first = await producer.schedule("traced-once", b"x", delay_ms=HOUR_MS, idempotency_key="a")
        again = await producer.schedule("traced-once", b"x", delay_ms=HOUR_MS, idempotency_key="a")
        batch = await producer.schedule_batch("traced-once", [b"x"], delay_ms=HOUR_MS, idempotency_keys=["a"])
        bare = await client.producer().schedule("traced-once", b"x", delay_ms=HOUR_MS, idempotency_key="a")
        assert "traceparent" in (await producer.get(first.id)).properties
    assert {again.id, bare.id, *batch.ids} == {first.id}
    assert len(spans.all("send traced-once")) == 3


async def test_what_has_a_key_is_found_and_cancelled_by_it(
    shared_cluster: LocalCluster, clients: list[Client]
) -> None:
    producer, query = clients[0].producer(), clients[0].query()
    first = await producer.schedule("found", b"x", delay_ms=HOUR_MS, idempotency_key="a", keys=["b"])
    other = await producer.schedule("found", b"y", delay_ms=HOUR_MS, idempotency_key="b", keys=["a"])
    (message,) = (await query.find("found", idempotency_key="a", bodies=True)).messages
    assert (message.id, message.state, message.body, message.idempotency_key) == (
        first.id,
        MessageState.PENDING,
        b"x",
        "a",
    )
    assert [one.id for one in (await query.find("found", "a")).messages] == [other.id]
    listed = [one.idempotency_key async for one in query.list_messages("found")]
    assert sorted(listed) == ["a", "b"]
    done = await producer.cancel_by_key("found", idempotency_key="a")
    assert done.outcomes == {CancelOutcome.CANCELLED: 1}
    assert (await producer.cancel_by_key("found", idempotency_key="a")).outcomes == {}
    assert (await producer.get(other.id)).state is MessageState.PENDING
    assert not (await query.find("found", idempotency_key="never")).messages
    with pytest.raises(NotFound):
        await query.find("no-such-topic", idempotency_key="a")


async def test_the_command_line_schedules_finds_and_cancels_with_keys(
    shared_cluster: LocalCluster, clients: list[Client]
) -> None:
    async def said(*arguments: str, code: int = 0) -> Any:
        return await asyncio.to_thread(tarry, shared_cluster, *arguments, code=code)

    schedule = ("schedule", "typed", "x", "--delay", "1h", "--idempotency-key", "a")
    first = await said(*schedule)
    assert not first["repeated"]
    assert await said(*schedule) == {**first, "repeated": True}
    refused = await said("schedule", "typed", "y", "--delay", "1h", "--idempotency-key", "a", code=1)
    assert (refused["error"], refused["facts"]["id"]) == ("IDEMPOTENCY_CONFLICT", first["id"])
    (found,) = await said("find", "typed", "--idempotency-key", "a", "--bodies")
    assert (found["id"], found["state"], found["idempotency_key"]) == (first["id"], "pending", "a")
    cancel = ("cancel", "--topic", "typed", "--idempotency-key", "a")
    assert await said(*cancel, "--dry-run") == [{"id": first["id"]}]
    assert await said(*cancel) == [{"id": first["id"], "outcome": "cancelled"}]
    assert (await said(*cancel, code=1))["error"] == "MESSAGE_NOT_FOUND"
    shown = await said("cluster", "show")
    assert shown["settings"]["idempotency_window_ms"] == HOUR_MS


def test_the_blocking_client_repeats_what_another_scheduled(shared_cluster: LocalCluster) -> None:
    asyncio.run(level(shared_cluster, 2))
    with sync.connect(shared_cluster.addresses) as client, client.producer() as producer:
        first = producer.schedule("blocking-once", b"x", delay_ms=HOUR_MS, idempotency_key="a")
        batch = producer.schedule_batch(
            "blocking-once", [b"x", b"y"], delay_ms=HOUR_MS, idempotency_keys=["a", "b"]
        )
        assert (batch.repeats.tolist(), batch.ids[0]) == ([0], first.id)
        page = client.query().find("blocking-once", idempotency_key="b")
        assert [message.id for message in page.messages] == batch.ids[1:]
        assert producer.cancel_by_key("blocking-once", idempotency_key="b").cancelled == 1
