"""The blocking twins, from ordinary threads, against real nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tarry.client import aio, sync
from tarry.client.errors import Closed, InvalidTime, NotFound, TarryError
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside


@pytest.fixture
def servers(shared_cluster: LocalCluster) -> str:
    return shared_cluster.addresses


@pytest.fixture
def client(servers: str) -> Iterator[sync.Client]:
    with sync.connect(servers) as connected:
        yield connected


def test_it_schedules_receives_and_acks(client: sync.Client) -> None:
    with client.producer() as producer, client.consumer("sync-one", "g") as consumer:
        scheduled = producer.schedule("sync-one", b"hello", delay_ms=20, tags=["t"])
        message = next(iter(consumer))
        assert (message.id, message.body, message.tags) == (scheduled.id, b"hello", ("t",))
        assert message.ack() is sync.AckOutcome.OK
        assert message.ack() is sync.AckOutcome.STALE


def test_threads_that_schedule_at_once_each_get_their_own_answer(client: sync.Client) -> None:
    producer = client.producer()

    def work(number: int) -> tuple[str, bytes]:
        body = b"%d" % number
        return producer.schedule("sync-threads", body, delay_ms=3_600_000).id, body

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(work, range(64)))
    assert len({message_id for message_id, _ in answers}) == 64
    for message_id, body in answers[::8]:
        assert producer.get(message_id).body == body


def test_callbacks_and_one_way_messages_do_not_block(client: sync.Client) -> None:
    producer = client.producer()
    outcomes: list[object] = []
    for number in range(50):
        producer.schedule_soon("sync-soon", b"%d" % number, delay_ms=1_000_000, on_done=outcomes.append)
    producer.schedule_soon("sync-soon", b"x", delay_ms=1, due_ms=1, on_done=outcomes.append)
    producer.schedule_one_way("sync-soon", b"y", delay_ms=1_000_000)
    producer.schedule_one_way("sync-soon", b"z", delay_ms=-1)
    producer.flush()
    assert len([o for o in outcomes if isinstance(o, sync.Scheduled)]) == 50
    assert [type(o) for o in outcomes if isinstance(o, TarryError)] == [InvalidTime]
    assert producer.one_way_errors == 1
    assert isinstance(producer.one_way_last_error, InvalidTime)


def test_a_callback_that_waits_for_the_client_is_told_so(client: sync.Client) -> None:
    producer = client.producer()
    raised: list[BaseException] = []
    called = threading.Event()

    def callback(_: object) -> None:
        try:
            producer.schedule("sync-callback", b"", delay_ms=1_000_000)
        except RuntimeError as error:
            raised.append(error)
        called.set()

    producer.schedule_soon("sync-callback", b"", delay_ms=1_000_000, on_done=callback)
    assert called.wait(10)
    assert "must not wait" in str(raised[0])


def test_a_batch_is_scheduled_received_and_acked_whole(client: sync.Client) -> None:
    bodies = [b"%d" % number for number in range(500)]
    with client.consumer("sync-bulk", "g") as consumer:
        scheduled = client.producer().schedule_batch("sync-bulk", bodies, delay_ms=10)
        received: dict[str, bytes] = {}
        for batch in consumer.batches():
            received.update(zip(batch.ids, batch.bodies, strict=True))
            assert set(batch.ack()) == {sync.AckOutcome.OK}
            if len(received) >= len(bodies):
                break
    assert received == dict(zip(scheduled.ids, bodies, strict=True))


def test_messages_settled_soon_are_not_delivered_to_the_next_consumer(client: sync.Client) -> None:
    producer = client.producer()
    producer.schedule_batch("sync-soon-ack", [b"%d" % number for number in range(20)], delay_ms=0)
    with client.consumer("sync-soon-ack", "g") as consumer:
        for _ in range(20):
            message = consumer.receive(10_000)
            assert message is not None
            message.ack_soon()
    with client.consumer("sync-soon-ack", "g") as consumer:
        producer.schedule("sync-soon-ack", b"last", delay_ms=0)
        message = consumer.receive(10_000)
        assert message is not None
        assert message.body == b"last"
        assert message.ack() is sync.AckOutcome.OK


def test_a_nacked_message_comes_again_marked(client: sync.Client) -> None:
    client.producer().schedule("sync-nack", b"", delay_ms=0)
    with client.consumer("sync-nack", "g") as consumer:
        first = consumer.receive(10_000)
        assert first is not None
        assert first.nack(delay_ms=20) is sync.AckOutcome.OK
        again = consumer.receive(10_000)
        assert again is not None
        assert (again.id, again.attempt) == (first.id, 2)
        again.ack()


def test_receive_returns_none_when_nothing_comes_in_time(client: sync.Client) -> None:
    with client.consumer("sync-empty", "g") as consumer:
        assert consumer.receive(50) is None


def test_a_pending_message_can_be_looked_up_and_cancelled(client: sync.Client) -> None:
    producer = client.producer()
    scheduled = producer.schedule("sync-cancel", b"b", delay_ms=3_600_000, keys=["k"])
    assert producer.get(scheduled.id).keys == ("k",)
    assert producer.cancel(scheduled.id) is sync.CancelOutcome.CANCELLED
    assert producer.get(scheduled.id).state is sync.MessageState.CANCELLED
    with pytest.raises(NotFound):
        producer.get("0" * 19)


def test_an_operator_sees_the_cluster(client: sync.Client, servers: str) -> None:
    status = client.operator().status()
    assert status.lease
    assert status.leader == status.node
    told = client.operator().status_of_all()
    assert sorted(told) == sorted(servers.split(","))
    assert {answer.leader for answer in told.values() if isinstance(answer, sync.ClusterStatus)} == {
        status.node
    }
    assert client.operator().status_of(servers.split(",")[1]).node == "n2"


def test_a_closed_client_says_so(servers: str) -> None:
    client = sync.connect(servers)
    producer = client.producer()
    client.close()
    client.close()
    with pytest.raises(Closed):
        producer.schedule("sync-closed", b"", delay_ms=1)
    with pytest.raises(Closed):
        client.producer()


def test_closing_delivers_what_was_given_before(servers: str) -> None:
    outcomes: list[object] = []
    with sync.connect(servers) as client:
        producer = client.producer()
        for _ in range(10):
            producer.schedule_soon("sync-last", b"", delay_ms=1_000_000, on_done=outcomes.append)
        producer.close()
    assert len([o for o in outcomes if isinstance(o, sync.Scheduled)]) == 10


def test_both_twins_offer_the_same_names() -> None:
    own = {name for name in aio.__all__ if getattr(sync, name) is not getattr(aio, name)}
    assert own == {
        "Bulk",
        "Client",
        "Consumer",
        "Message",
        "MessageBatch",
        "Operator",
        "Producer",
        "Puller",
        "Query",
        "Recurring",
        "Transaction",
        "Transactions",
        "connect",
    }
