"""Posts to receivers of this process: which connections are made, and what an answer means."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpcore
import pytest

from tarry.gateway.push import addresses
from tarry.gateway.push.post import Delivery, Posted, Receiver
from tarry.gateway.push.settings import Push

SECRET = "a secret of sixteen"
DELIVERY = Delivery("id", "t", "g", 1, 1, False, {}, b"body")


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answer each connection's requests with these bytes, in turn; yield the port, and the requests."""
    requests: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head + await reader.readexactly(len(DELIVERY.body)))
            if left:
                writer.write(left.pop(0))
                await writer.drain()
            else:
                await asyncio.Event().wait()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        server.close()


def push(port: int, **more: Any) -> Push:
    given = {"url": f"http://receiver.example:{port}/hook", "allow_private": True, **more}
    return Push(name="p", topic="t", group="g", secrets=[SECRET], **given)


async def posted(settings: Push) -> Posted:
    receiver = Receiver(settings)
    try:
        return await receiver.post(DELIVERY, 1_790_000_000.0)
    finally:
        await receiver.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A name server: of each question the next answer, of the last one all that follow."""
    answers: list[list[str]] = [["127.0.0.1"]]
    real = socket.getaddrinfo

    def getaddrinfo(host: str | bytes, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name == "receiver.example":
            addresses = answers.pop(0) if len(answers) > 1 else answers[0]
            return [entry for address in addresses for entry in real(address, port, *rest, **more)]
        return real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return answers


@pytest.mark.usefixtures("names")
async def test_a_post_has_its_body_signature_and_host() -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, requests):
        answer = await posted(push(port))
    assert answer.taken
    text = requests[0].decode()
    assert text.startswith("POST /hook HTTP/1.1\r\n")
    assert text.endswith("\r\n\r\nbody")
    assert f"Host: receiver.example:{port}\r\n" in text
    assert "Tarry-Signature: t=1790000000,v1=" in text
    assert "Content-Length: 4\r\n" in text


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, "500"),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 410, "410"),
        (b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 301, "301"),
        (b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 307, "307"),
        (b"nonsense\r\n\r\n", None, "RemoteProtocolError"),
        (b"", None, "Error"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", None, "RemoteProtocolError"),
        (b"HTTP/1.1 " + b"2" * 200_000, None, "RemoteProtocolError"),
    ],
)
async def test_an_answer_that_is_no_2xx_does_not_count(answer: bytes, status: int | None, said: str) -> None:
    async with answering(answer) as (port, requests):
        result = await posted(push(port))
    assert (result.taken, result.status) == (False, status)
    assert said in result.text
    assert len(requests) == 1


@pytest.mark.usefixtures("names")
async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async with answering() as (port, _):
        result = await posted(push(port, timeout_ms=50))
    assert (result.status, result.text) == (None, "no answer within 50 ms")


@pytest.mark.usefixtures("names")
async def test_redirects_are_followed_as_often_as_allowed_and_keep_the_body() -> None:
    moved = b"HTTP/1.1 308 Moved\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n"
    done = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with answering(moved, moved, done) as (port, requests):
        assert (await posted(push(port, redirects_max=2))).taken
    assert [request.partition(b" HTTP")[0] for request in requests] == [b"POST /hook"] + [b"POST /next"] * 2
    async with answering(moved, moved, done) as (port, requests):
        assert (await posted(push(port, redirects_max=1))).status == 308
    assert len(requests) == 2


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    "target", ["ftp://receiver.example/", "file:///etc/passwd", "//", "http://[", "\xff"]
)
async def test_a_redirect_to_nowhere_is_not_followed(target: str) -> None:
    moved = f"HTTP/1.1 308 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    async with answering(moved, moved) as (port, _):
        assert not (await posted(push(port, redirects_max=1))).taken


@pytest.mark.usefixtures("names")
async def test_a_redirect_from_https_to_http_is_not_followed_whatever_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []

    async def moved(_: Receiver, url: str, *__: object) -> tuple[int, dict[str, str]]:
        sent.append(url)
        return 307, {"location": "http://receiver.example/hook"}

    monkeypatch.setattr(Receiver, "_send", moved)
    result = await posted(push(1, url="https://receiver.example/hook", redirects_max=2))
    assert "is not followed" in result.text
    assert sent == ["https://receiver.example/hook"]


@pytest.mark.usefixtures("names")
async def test_a_redirect_from_a_public_address_to_a_private_one_is_refused_before_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send, sent = Receiver._send, list[str]()
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, requests):

        async def moved_once(receiver: Receiver, url: str, *rest: Any) -> tuple[int, dict[str, str]]:
            sent.append(url)
            if len(sent) == 1:
                return 307, {"location": f"https://receiver.example:{port}/inside"}
            return await send(receiver, url, *rest)

        monkeypatch.setattr(Receiver, "_send", moved_once)
        given = push(port, url="https://public.example/hook", redirects_max=1, allow_private=False)
        assert "no address of the internet" in (await posted(given)).text
        assert len(sent) == 2
        assert requests == []


async def test_a_name_server_that_does_not_answer_keeps_no_other_work_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(20) and [])
    receiver = Receiver(push(1, timeout_ms=50, in_flight_max=64))
    with ThreadPoolExecutor(1) as threads:  # as those in which large bodies are read
        asyncio.get_running_loop().set_default_executor(threads)
        results = await asyncio.gather(*(receiver.post(DELIVERY, 0.0) for _ in range(64)))
        assert {result.text for result in results} == {"no answer within 50 ms"}
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "done") == "done"
        answered.set()
        await receiver.close()


async def test_an_address_that_swallows_all_packets_keeps_no_post_from_the_next_one(
    names: list[list[str]],
) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, requests):
        names[:] = [["127.0.0.2", "127.0.0.1"]]
        receiver = Receiver(push(port, timeout_ms=10_000))
        network: Any = receiver._pool._network_backend
        connects = network._network.connect_tcp
        given_up = asyncio.Event()

        async def connect(host: str, *given: Any, **named: Any) -> Any:
            if host == "127.0.0.2":
                try:
                    await asyncio.Event().wait()
                finally:
                    given_up.set()
            return await connects(host, *given, **named)

        network._network.connect_tcp = connect
        assert (await receiver.post(DELIVERY, 0.0)).taken
        await receiver.close()
        assert given_up.is_set()
        assert len(requests) == 1


async def test_of_two_addresses_that_answer_at_once_one_connection_is_used_and_the_other_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "ATTEMPT_S", 0.0)
    both, closed = asyncio.Event(), list[int]()

    class Stream(httpcore.AsyncNetworkStream):
        def __init__(self, number: int) -> None:
            self.number = number

        async def aclose(self) -> None:
            closed.append(self.number)

    async def attempt(number: int) -> httpcore.AsyncNetworkStream:
        if number == 2:
            both.set()
        await both.wait()
        return Stream(number)

    used: Any = await addresses._first(attempt(number) for number in (1, 2))
    assert {used.number, *closed} == {1, 2}
    assert len(closed) == 1


async def test_where_no_address_answers_the_last_failure_is_told() -> None:
    async def attempt(number: int) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError(f"refused by {number}")

    with pytest.raises(httpcore.ConnectError, match="refused by 3"):
        await addresses._first(attempt(number) for number in (1, 2, 3))


async def test_a_name_that_leads_elsewhere_the_second_time_gains_nothing(names: list[list[str]]) -> None:
    """The receiver's name is public when it is checked, and private when it would be asked again."""
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, requests):
        names[:] = [["127.0.0.1"]]
        url = f"https://receiver.example:{port}/"
        refused = await posted(push(port, url=url, allow_private=False))
        assert "no address of the internet" in refused.text
        names[:] = [["198.18.0.1", "127.0.0.1"], ["127.0.0.1"]]
        assert "no address of the internet" in (await posted(push(port, url=url, allow_private=False))).text
        names[:] = [["8.8.8.8"], ["127.0.0.1"]]
        connected: list[str] = []
        receiver = Receiver(push(port, url=url, allow_private=False, timeout_ms=200))
        network: Any = receiver._pool._network_backend

        async def connect(host: str, *_: object, **__: object) -> Any:
            connected.append(host)
            raise OSError("not connected in a test")

        network._network.connect_tcp = connect
        with pytest.raises(OSError, match="in a test"):
            await receiver.post(DELIVERY, 0.0)
        await receiver.close()
        assert connected == ["8.8.8.8"]  # the address that was checked, not the name
        assert requests == []
