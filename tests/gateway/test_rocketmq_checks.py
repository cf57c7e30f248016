"""Questions about transactions on their way to RocketMQ's clients: who is asked, and how many wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from tarry.client.aio import Half, TransactionEnd, TransactionInfo, TransactionState
from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.rocketmq.call import Gateway
from tarry.gateway.rocketmq.checks import Connected
from tarry.gateway.rocketmq.config import Config, Key, Limits
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.routes import Routes

NOBODY = Settings(servers=("127.0.0.1:1",), deadline_ms=200, attempt_ms=100)
CONFIG = Config(limits=Limits(checks_waiting_max=2, checks_bytes_max=1_024, check_topics_max=3))
ORDERS = definition.Resource(name="orders")


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway(NOBODY, CONFIG, Routes((), ("127.0.0.1", 1)))
    yield made
    await made.close()


def half(name: str, body: bytes, topic: str) -> Half:
    info = TransactionInfo(1, "", name, topic, TransactionState.OPEN, 1, None, 0, 1, 2, 0, "", 0)
    return Half(info, body, (), (), {"rocketmq": f"2 {name} TRANSACTION 0 GZIP host"}, "")


class Clients:
    """Clients with streams of Telemetry."""

    def __init__(self, gateway: Gateway, stack: ExitStack) -> None:
        self.access = gateway.accesses.of("", "")
        self._gateway, self._stack = gateway, stack

    def __call__(self, client_id: str, *topics: str, access: ClusterAccess | None = None) -> Connected:
        producer = self._gateway.checks.producer((access or self.access, client_id))
        connected = self._stack.enter_context(producer)
        connected.publishes([definition.Resource(name=topic) for topic in topics])
        return connected

    async def ask(self, name: str, body: bytes = b"half", topic: str = "orders") -> None:
        """Have the cluster ask about a transaction."""
        told = await self._gateway.checks.ask(self.access, half(name, body, topic))
        assert told is TransactionEnd.UNKNOWN  # or the cluster would end it


@pytest.fixture
def clients(gateway: Gateway) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(gateway, stack)


async def questions(connected: Connected) -> list[str]:
    """Return the message ids of what waits for a client, written now."""
    asked: list[str] = []
    while connected.waiting:
        command = (await connected.next()).recover_orphaned_transaction_command
        asked.append(command.message.system_properties.message_id)
    return asked


async def test_producers_of_the_topic_are_asked_in_turn_and_others_are_not(clients: Clients) -> None:
    first, second, other = clients("1", "orders"), clients("2", "orders", "more"), clients("3", "more")
    for name in ("01A", "01B", "01C"):
        await clients.ask(name)
    await clients.ask("01D", topic="nobody-s")
    assert [await questions(one) for one in (first, second, other)] == [["01A", "01C"], ["01B"], []]


async def test_a_producer_with_another_token_is_not_shown_the_message(
    clients: Clients, gateway: Gateway
) -> None:
    own, stranger = clients("1", "orders"), clients("2", "orders", access=ClusterAccess(NOBODY))
    for name in ("01A", "01B"):
        await clients.ask(name)
    assert (await questions(own), await questions(stranger)) == (["01A", "01B"], [])


async def test_another_token_s_client_of_the_same_id_takes_no_questions_away(
    clients: Clients, gateway: Gateway
) -> None:
    own = clients("1")
    clients("1", access=ClusterAccess(NOBODY))
    gateway.checks.sends((clients.access, "1"), definition.Resource(name="orders"))
    await clients.ask("01A")
    assert await questions(own) == ["01A"]


async def test_who_has_left_is_asked_nothing_and_what_waited_for_it_makes_room(gateway: Gateway) -> None:
    with ExitStack() as stack:
        clients = Clients(gateway, stack)
        stays = clients("1", "orders")
        with ExitStack() as short:
            leaves = Clients(gateway, short)("2", "orders")
            await clients.ask("01A", bytes(100))
            await clients.ask("01B", bytes(900))
            assert (await questions(stays), leaves.waiting) == (["01A"], 1)
        for name in ("01C", "01D"):
            await clients.ask(name, bytes(500))
        assert await questions(stays) == ["01C", "01D"]


async def test_a_client_that_does_not_read_is_passed_over(clients: Clients) -> None:
    deaf, reads = clients("1", "orders"), clients("2", "orders")
    asked: list[str] = []
    for number in range(6):
        await clients.ask(f"01{number}")
        asked += await questions(reads)
    assert deaf.waiting == 2  # its bound
    assert len(asked) == 4
    await clients.ask("019", bytes(2_000))  # beyond the bytes that may wait for all
    assert await questions(reads) == []
    assert await questions(deaf) == ["010", "012"]
    await clients.ask("019", bytes(2_000))  # alone it may
    assert [await questions(one) for one in (deaf, reads)] in ([["019"], []], [[], ["019"]])


async def test_topics_are_bounded(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    many = clients("1", *(f"t{number}" for number in range(5)))
    assert list(many.topics) == ["t0", "t1", "t2"]
    assert list(clients("2", "t2", "t3").topics) == ["t2"]
    assert "t3 are not asked here about transactions: check_topics_max is 3" in caplog.text


async def test_where_there_are_several_keys_no_token_takes_all_topics() -> None:
    keys = [Key(access_key=name, secret_key="secret", token=name) for name in ("a", "b")]
    config = Config(limits=Limits(check_topics_max=4), key=keys)
    gateway = Gateway(NOBODY, config, Routes((), ("127.0.0.1", 1)))
    with ExitStack() as stack:
        for name in ("a", "b"):
            producer = gateway.checks.producer((gateway.accesses._access(name), "1"))
            connected = stack.enter_context(producer)
            connected.publishes([definition.Resource(name=topic) for topic in ("t1", "t2", "t3")])
            assert list(connected.topics) == ["t1", "t2"]
    await gateway.close()


async def test_a_question_has_the_message_as_it_was_sent(clients: Clients) -> None:
    asked = clients("1", "orders")
    await clients.ask("01A")
    command = (await asked.next()).recover_orphaned_transaction_command
    message, system = command.message, command.message.system_properties
    assert (message.topic, message.body, system.message_id) == (ORDERS, b"half", "01A")
    assert (system.message_type, system.body_encoding) == (definition.TRANSACTION, definition.GZIP)
    assert system.born_host == "host"
    assert dict(message.user_properties) == {
        "TRANSACTION_CHECK_TIMES": "1",
        "__transactionId__": command.transaction_id,
    }
