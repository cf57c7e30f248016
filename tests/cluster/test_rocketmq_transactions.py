"""Transactions of RocketMQ's clients: raw calls, and the unmodified clients, against a real cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.client.local.rocketmq_programs import JAR
from tarry.client.settings import Settings, parse_servers
from tarry.gateway.rocketmq.config import Config, Limits
from tarry.gateway.rocketmq.names import producer_group_of
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tests.cluster.disposable import Disposable
from tests.cluster.gateways import GatewayProcess, rocketmq_gateway
from tests.cluster.test_rocketmq import now_ms, sent
from tests.cluster.test_rocketmq_clients import PROGRAMS, TOUR_S, client_of, told_by, with_python
from tests.cluster.test_upgrade import level
from tests.gateway.rocketmq_calls import HEADERS, Calls, code, gateway_calls, message, milliseconds

pytestmark = pytest.mark.beside

CHECKS: dict[str, Setting] = {"check_after_ms": 1_000, "check_pauses_ms": [1_000], "checks_max": 30}
CONFIG = Config(
    limits=Limits(invisible_ms_min=200, check_topics_max=2), types={"plain": ["NORMAL"], "few": ["NORMAL"]}
)
COMMIT, ROLLBACK = definition.TransactionResolution.COMMIT, definition.TransactionResolution.ROLLBACK
NOT_KNOWN = definition.TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
OTHER_HEADERS = (("x-mq-client-id", "host@2@0@def"), *HEADERS[1:])
QUIET_MS = 1_500
"""For which nothing comes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that ask about transactions soon."""
    with Disposable(3, tmp_path_factory.mktemp("cluster"), {"transactions": CHECKS}) as nodes:
        nodes.start()
        nodes.wait_until_serving()
        asyncio.run(level(nodes, 2))
        yield nodes


@pytest.fixture
async def call(cluster: LocalCluster) -> AsyncIterator[Calls]:
    settings = Settings(servers=parse_servers(cluster.addresses))
    async with gateway_calls(settings, CONFIG) as address, Calls(address) as calls:
        yield calls


@pytest.fixture
async def other(cluster: LocalCluster) -> AsyncIterator[Calls]:
    """Calls of another client to another gateway, which knows nothing of the first."""
    settings = Settings(servers=parse_servers(cluster.addresses))
    async with gateway_calls(settings, CONFIG) as address, Calls(address, OTHER_HEADERS) as calls:
        yield calls


def half(topic: str, body: bytes = b"half", **more: Any) -> definition.Message:
    """Return a message of a transaction that is asked about much later, unless ``check_s`` is given."""
    check_s = more.pop("check_s", 3_600)
    more["orphaned_transaction_recovery_duration"] = {"seconds": check_s}
    return message(topic, body, message_type=definition.TRANSACTION, **more)


async def come(call: Calls, topic: str, count: int = 1) -> list[definition.Message]:
    """Return messages once so many have come."""
    got: list[definition.Message] = []
    async with asyncio.timeout(60):
        while len(got) < count:
            got += (await call.receive(topic))[1]
    return got


async def ended(call: Calls, topic: str, transaction_id: str, how: Any) -> str:
    answer = await call(
        "EndTransaction",
        topic=definition.Resource(name=topic),
        transaction_id=transaction_id,
        resolution=how,
    )
    return code(answer.status)


async def publishing(call: Calls, *topics: str, namespace: str = "") -> Any:
    """Return the stream of a producer of topics, its settings answered twice."""
    stream = call.telemetry()
    settings = definition.Settings(client_type=definition.PRODUCER)
    for topic in topics:
        settings.publishing.topics.add(name=topic, resource_namespace=namespace)
    await stream.write(service.TelemetryCommand(settings=settings))
    for _ in range(2):
        assert (await stream.read()).WhichOneof("command") == "settings"
    return stream


async def question(stream: Any) -> service.RecoverOrphanedTransactionCommand:
    async with asyncio.timeout(60):
        command = await stream.read()
    assert command.WhichOneof("command") == "recover_orphaned_transaction_command"
    asked = command.recover_orphaned_transaction_command
    assert isinstance(asked, service.RecoverOrphanedTransactionCommand)
    return asked


async def test_a_half_message_comes_once_it_is_committed_with_all_that_was_sent(
    call: Calls, other: Calls
) -> None:
    first = half("committed", b"\x00half", tag="paid", keys=["k"], properties={"colour": "red"})
    (entry,) = await sent(call, first)
    assert entry.message_id == first.system_properties.message_id
    assert entry.recall_handle == ""
    assert await call.receive("committed", wait_ms=QUIET_MS) == ("MESSAGE_NOT_FOUND", [])
    assert await ended(other, "committed", entry.transaction_id, COMMIT) == "OK"  # at another gateway
    (got,) = await come(call, "committed")
    system = got.system_properties
    assert (got.body, dict(got.user_properties)) == (b"\x00half", {"colour": "red"})
    assert (system.tag, list(system.keys), system.message_id) == ("paid", ["k"], entry.message_id)
    assert (system.message_type, system.delivery_attempt) == (definition.TRANSACTION, 1)
    assert not system.HasField("delivery_timestamp")
    assert await call.ack("committed", got) == ["OK"]


async def test_ends_are_definite_and_may_be_repeated(call: Calls) -> None:
    (kept,), (undone,) = await sent(call, half("ends", b"kept")), await sent(call, half("ends", b"undone"))
    for entry, how, opposite in [(kept, COMMIT, ROLLBACK), (undone, ROLLBACK, COMMIT)]:
        assert await ended(call, "ends", entry.transaction_id, NOT_KNOWN) == "OK"
        assert await ended(call, "others", entry.transaction_id, how) == "INVALID_TRANSACTION_ID"
        assert await ended(call, "ends", entry.transaction_id, how) == "OK"
        assert await ended(call, "ends", entry.transaction_id, how) == "OK"
        assert await ended(call, "ends", entry.transaction_id, opposite) == "INVALID_TRANSACTION_ID"
    assert [got.body for got in await come(call, "ends")] == [b"kept"]


async def test_a_half_message_sent_twice_is_prepared_once_and_not_again_once_it_has_ended(
    call: Calls, other: Calls
) -> None:
    first = half("twice")
    (entry,), (again,) = await sent(call, first), await sent(other, first)
    assert again.transaction_id == entry.transaction_id
    changed = half("twice", b"other", message_id=first.system_properties.message_id)
    assert code((await call.send(changed)).status) == "ILLEGAL_MESSAGE_ID"
    assert await ended(call, "twice", entry.transaction_id, COMMIT) == "OK"
    assert code((await call.send(first)).status) == "ILLEGAL_MESSAGE_ID"
    assert len(await come(call, "twice")) == 1
    assert await call.receive("twice", wait_ms=QUIET_MS) == ("MESSAGE_NOT_FOUND", [])


async def test_a_transaction_s_message_may_be_delayed_and_be_of_a_group(call: Calls) -> None:
    due_ms = now_ms() + 3_000
    (entry,) = await sent(call, half("later", due_ms=due_ms, message_group="order"))
    assert await ended(call, "later", entry.transaction_id, COMMIT) == "OK"
    (got,) = await come(call, "later")
    assert now_ms() >= due_ms
    system = got.system_properties
    assert (system.message_group, milliseconds(system.delivery_timestamp)) == ("order", due_ms)


async def test_a_producer_of_the_topic_is_asked_until_it_answers(call: Calls, other: Calls) -> None:
    """Another one than has sent it, at another gateway, by the name of the topic that it knows."""
    stream = await publishing(other, "orders", namespace="eu")
    first = half("orders", b"orphan", namespace="eu", check_s=1, tag="paid")
    (entry,) = await sent(call, first)
    asked = [await question(stream), await question(stream)]
    times = [int(one.message.user_properties["TRANSACTION_CHECK_TIMES"]) for one in asked]
    assert 1 <= times[0] < times[1]
    for one in asked:
        assert one.transaction_id == entry.transaction_id
        told, system = one.message, one.message.system_properties
        assert (told.topic.name, told.topic.resource_namespace) == ("orders", "eu")
        assert (told.body, system.tag, system.message_id) == (b"orphan", "paid", entry.message_id)
        assert system.message_type == definition.TRANSACTION
        assert told.user_properties["__transactionId__"] == entry.transaction_id
    answer = await other(
        "EndTransaction",
        topic=asked[0].message.topic,
        transaction_id=asked[0].transaction_id,
        resolution=COMMIT,
        source=definition.SOURCE_SERVER_CHECK,
    )
    assert code(answer.status) == "OK"
    (got,) = await come(call, "eu.orders".replace(".", "%"))
    assert got.system_properties.message_id == entry.message_id
    stream.cancel()


async def test_producers_are_asked_in_turn_and_who_has_left_is_not(call: Calls) -> None:
    streams = []
    for number in range(2):
        headers = (("x-mq-client-id", f"host@{number}@0@turn"), *HEADERS[1:])
        streams.append(await publishing(Calls(call.address, headers), "turns"))
    entries = [(await sent(call, half("turns", check_s=1)))[0] for _ in range(4)]
    for stream in streams:  # both are asked
        await question(stream)
    streams[0].cancel()
    left = {entry.transaction_id for entry in entries}
    while left:
        transaction_id = (await question(streams[1])).transaction_id
        left.discard(transaction_id)
        await ended(call, "turns", transaction_id, ROLLBACK)
    streams[1].cancel()


async def test_a_topic_beyond_the_bound_or_without_transactions_is_not_asked_about(
    call: Calls, cluster: LocalCluster
) -> None:
    """One that its producer sends transactions to is, though its settings do not name it."""
    stream = await publishing(call, "plain", "few")  # these take none, and count for nothing
    (entry,) = await sent(call, half("named-late", check_s=1))
    assert (await question(stream)).transaction_id == entry.transaction_id
    await ended(call, "named-late", entry.transaction_id, ROLLBACK)
    second = Calls(call.address, OTHER_HEADERS)
    over = await publishing(second, "b1", "b2")  # with the one of before three
    (first,), (beyond,) = await sent(call, half("b1", check_s=1)), await sent(second, half("b2", check_s=1))
    assert {(await question(over)).transaction_id for _ in range(3)} == {first.transaction_id}
    async with connect(cluster.addresses) as client:
        page = await client.transactions().list_page(producer_group=producer_group_of("b2"))
        assert [(one.name, one.checks > 0) for one in page.transactions] == [(beyond.message_id, True)]
    for stream_of in (stream, over):
        stream_of.cancel()


async def test_a_leader_killed_between_costs_no_transaction(call: Calls, cluster: LocalCluster) -> None:
    stream = await publishing(call, "failover")
    (kept,) = await sent(call, half("failover", b"kept"))
    (orphan,) = await sent(call, half("failover", b"orphan", check_s=6))
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    cluster.kill(leader)
    try:
        assert await ended(call, "failover", kept.transaction_id, COMMIT) == "OK"
        assert (await question(stream)).transaction_id == orphan.transaction_id  # the new leader's
        assert await ended(call, "failover", orphan.transaction_id, COMMIT) == "OK"
        assert sorted(got.body for got in await come(call, "failover", 2)) == [b"kept", b"orphan"]
    finally:
        stream.cancel()
        cluster.start(leader)
        await asyncio.to_thread(cluster.wait_until_serving)


# -- RocketMQ's own clients ----------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(cluster: LocalCluster) -> Iterator[GatewayProcess]:
    with rocketmq_gateway(cluster.addresses) as running:
        yield running


async def tour(gateway: GatewayProcess, topic: str, command: list[str], folder: Path, **more: str) -> None:
    """Run a program, for which somebody who has gone has prepared a message; check what it has seen."""
    async with Calls(gateway.url) as gone:
        await sent(gone, half(topic, b"orphan", check_s=1))
    told = await asyncio.to_thread(told_by, [*command, gateway.url, topic], folder, **more)
    assert told["seen"] == ["committed", "left", "orphan", "unsure"]
    checked = told["checked"]
    assert set(checked) == {"left", "undone", "unsure", "orphan"}
    assert checked["unsure"] >= 2


@with_python
async def test_python_s_client_ends_transactions_and_is_asked_about_others(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    await tour(gateway, "t-python", [sys.executable, str(PROGRAMS / "transactions.py")], tmp_path)


async def test_node_s_client_does_so_too(gateway: GatewayProcess, tmp_path: Path) -> None:
    modules = client_of("node", "node", "node_modules/rocketmq-client-nodejs") / "node_modules"
    command = ["node", str(PROGRAMS / "transactions.cjs")]
    await tour(gateway, "t-node", command, tmp_path, NODE_PATH=str(modules))


async def test_java_s_client_does_so_too(gateway: GatewayProcess, tmp_path: Path) -> None:
    jar = client_of("java", "java", JAR) / JAR
    command = ["java", "-Xmx256m", "-cp", str(jar), str(PROGRAMS / "Transactions.java")]
    await tour(gateway, "t-java", command, tmp_path)


async def test_go_s_client_does_so_too(gateway: GatewayProcess, tmp_path: Path) -> None:
    module = client_of("go", "go", "go.sum")
    built = ["go", "build", "-o", str(tmp_path / "program"), str(PROGRAMS / "transactions.go")]
    await asyncio.to_thread(
        subprocess.run, built, cwd=module, check=True, capture_output=True, timeout=TOUR_S
    )
    await tour(gateway, "t-go", [str(tmp_path / "program")], tmp_path)
