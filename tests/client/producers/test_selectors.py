"""Selectors: the ordering key of a message by what it is."""

from __future__ import annotations

import asyncio

import pytest

from tarry.client import sync
from tarry.client.aio import ByHash, NewMessage, Outgoing, RoundRobin, connect
from tarry.client.errors import InvalidBatch
from tarry.proto.tarry_message_pb2 import Record
from tests.client.stand_in import ClusterStandIn


def message(**fields: str) -> Outgoing:
    return Outgoing("orders", b"", (), (), fields)


def keys_of(cluster: ClusterStandIn) -> list[str]:
    return [Record.FromString(record).ordering_key for record in cluster.scheduled]


def test_a_hash_chooses_the_same_queue_in_every_process_and_uses_all() -> None:
    selector = ByHash(4, lambda each: each.properties["customer"])
    chosen = [selector(message(customer=f"c-{n}")) for n in range(64)]
    assert set(chosen) == {"queue-0", "queue-1", "queue-2", "queue-3"}
    assert selector(message(customer="anna")) == "queue-3"  # also of later versions: order is kept over them
    assert ByHash(4, lambda _: b"anna", prefix="q")(message()) == "q3"


def test_round_robin_chooses_one_after_another() -> None:
    selector = RoundRobin(3)
    assert [selector(message()) for _ in range(4)] == ["queue-0", "queue-1", "queue-2", "queue-0"]


@pytest.mark.parametrize("queues", [0, -1, True, 2.0, "8", (1 << 20) + 1])
def test_the_number_of_queues_is_checked(queues: int) -> None:
    with pytest.raises(ValueError, match="queues"):
        RoundRobin(queues)
    with pytest.raises(ValueError, match="queues"):
        ByHash(queues, lambda _: "")


async def test_the_selector_of_a_producer_is_for_all_that_name_no_key(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer(selector=lambda each: f"{each.topic}/{each.body.decode()}")
        await producer.schedule("a", b"1", delay_ms=0)
        await producer.schedule("a", b"2", delay_ms=0, ordering_key="own")
        await producer.schedule("a", b"3", delay_ms=0, selector=lambda _: "of the call")
        await producer.schedule_batch("a", [b"4", b"5"], delay_ms=0, ordering_keys=["", "own"])
        await producer.schedule_many([NewMessage("b", b"6", delay_ms=0)], selector=lambda _: "")
    assert keys_of(cluster) == ["a/1", "own", "of the call", "a/4", "own", ""]


async def test_the_selector_sees_the_whole_message(cluster: ClusterStandIn) -> None:
    seen: list[Outgoing] = []

    def selector(each: Outgoing) -> str:
        seen.append(each)
        return each.keys[0]

    async with connect(cluster.addresses) as client:
        await client.producer().schedule_batch(
            ["a", "b"],
            [b"1", b"2"],
            delay_ms=0,
            tags=[["t"], []],
            keys=[["k"], ["l"]],
            properties=[{"p": "q"}, None],
            selector=selector,
        )
    assert seen == [Outgoing("a", b"1", ["t"], ["k"], {"p": "q"}), Outgoing("b", b"2", [], ["l"], {})]
    assert keys_of(cluster) == ["k", "l"]


@pytest.mark.parametrize(
    "short",
    [
        {"topic": ["t"]},
        {"tags": [["t"]]},
        {"keys": []},
        {"properties": [{}]},
        {"ordering_keys": ["", "", ""]},
    ],
)
async def test_of_columns_of_unequal_length_none_is_chosen_by(
    cluster: ClusterStandIn, short: dict[str, list[object]]
) -> None:
    called: list[Outgoing] = []
    columns: dict[str, object] = {"topic": "a", "bodies": [b"1", b"2"], **short}
    async with connect(cluster.addresses) as client:
        with pytest.raises(InvalidBatch, match=f"2 bodies but . {next(iter(short))}"):
            await client.producer(selector=called.append).schedule_batch(**columns, delay_ms=0)  # type: ignore[arg-type]
    assert not called


async def test_a_selector_that_fails_schedules_nothing(cluster: ClusterStandIn) -> None:
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        with pytest.raises(KeyError):
            await producer.schedule("a", delay_ms=0, selector=lambda each: each.properties["none"])
        with pytest.raises(TypeError, match="ordering key"):
            await producer.schedule_batch("a", [b""], delay_ms=0, selector=lambda _: 7)  # type: ignore[arg-type,return-value]
    assert not cluster.requests


async def test_a_selector_that_fails_in_the_clients_thread_takes_no_other_message_with_it(
    cluster: ClusterStandIn,
) -> None:
    def schedule() -> list[object]:
        told: list[object] = []
        with sync.connect(cluster.addresses, waiting_messages_max=2) as client, client.producer() as producer:
            for _ in range(5):  # more than may wait: each gives its room back
                producer.schedule_soon(
                    "a", delay_ms=0, selector=lambda each: each.properties["none"], on_done=told.append
                )
            producer.schedule_one_way("a", delay_ms=0, selector=lambda each: each.properties["none"])
            producer.schedule_soon("a", b"good", delay_ms=0, on_done=told.append)
            producer.flush()
            return [*map(type, told), producer.one_way_errors]

    kinds = await asyncio.wait_for(asyncio.to_thread(schedule), 10)
    assert kinds == [KeyError] * 5 + [sync.Scheduled, 1]
    assert len(cluster.scheduled) == 1
