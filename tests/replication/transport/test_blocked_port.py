"""A peer that answers calls while its port for streams cannot be reached, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tarry.client.local.free_ports import free_ports
from tarry.replication.transport.blocked_port import PATIENCE_S, TRIES, PortTries
from tarry.replication.transport.peer_transport import PeerTransport
from tests.replication.transport.test_peer_transport import PATIENCE_S as TEST_S
from tests.replication.transport.test_peer_transport import End


class Ends:
    """Two ends; `dial` leads the first to the other's ports."""

    def __init__(self) -> None:
        self.dial: dict[str, str] = {}
        self.one, self.other = End("n1"), End("n2")
        self.one.transport = PeerTransport(settings=self.one.settings, rng=random.Random(1), dial=self.dial)

    async def begin(self, port: int) -> str:
        """Let the one reach the other's port for streams at another port; return that."""
        led = self.dial[f"127.0.0.1:{self.other.transport.port}"] = f"127.0.0.1:{port}"
        self.one.transport.set_peers({"n2": self.other.address})
        return led

    async def blocked(self) -> tuple[str, str]:
        await self.until(lambda: bool(self.one.transport.blocked()))
        [(peer, found)] = self.one.transport.blocked().items()
        assert peer == "n2"
        return found.address, found.why

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TEST_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    await made.one.listen()
    await made.other.listen()
    yield made
    await made.one.stop()
    await made.other.stop()


@pytest.fixture
def dropping() -> Iterator[int]:
    """A port that answers no connection: its queue of those to accept is full, so the system drops them."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listening.getsockname()[1]
        while True:
            filling = stack.enter_context(socket.socket())
            filling.settimeout(0.3)
            try:
                filling.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield port


async def test_a_port_that_refuses_is_found(ends: Ends) -> None:
    led = await ends.begin(*free_ports(1))
    address, why = await ends.blocked()
    assert address == led
    assert "Connect call failed" in why
    assert not ends.one.links


async def test_a_port_that_drops_packets_is_found(ends: Ends, dropping: int) -> None:
    led = await ends.begin(dropping)
    assert await ends.blocked() == (led, "no answer in 2 s")


async def test_a_port_behind_which_a_proxy_closes_at_once_is_found(ends: Ends) -> None:
    def closing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(closing, "127.0.0.1", 0) as proxy:
        led = await ends.begin(proxy.sockets[0].getsockname()[1])
        assert (await ends.blocked())[0] == led


async def test_a_port_that_is_opened_is_blocked_no_more(ends: Ends) -> None:
    await ends.begin(*free_ports(1))
    await ends.blocked()
    ends.dial.clear()
    await ends.one.until(lambda: ("n2", True) in ends.one.links)
    assert not ends.one.transport.blocked()


async def test_of_a_peer_that_is_away_no_port_is_said_to_be_blocked(ends: Ends) -> None:
    await ends.begin(*free_ports(1))
    await ends.blocked()
    await ends.other.server.stop(None)
    await ends.until(lambda: not ends.one.transport.blocked())


def test_one_try_is_not_enough_and_a_session_in_between_starts_the_count_anew() -> None:
    tries = PortTries()
    for _ in range(TRIES - 1):
        tries.connecting("a:1", 0.0)
        tries.ended("refused", 0.0)
    assert tries.blocked is None
    tries.connecting("a:1", 0.0)
    tries.opened(0.0)
    tries.ended("", PATIENCE_S)
    tries.connecting("a:1", 0.0)
    tries.ended("refused", 0.0)
    assert tries.blocked is None


def test_a_connection_that_was_given_little_time_counts_for_nothing() -> None:
    tries = PortTries()
    for _ in range(TRIES + 1):
        tries.connecting("a:1", 0.0)
        tries.ended("", PATIENCE_S / 2)
    assert tries.blocked is None
