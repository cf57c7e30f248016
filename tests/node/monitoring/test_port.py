"""The HTTP port for metrics: what it answers, and what it does with those who are slow, many or malicious."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tarry.node.config import MetricsSettings
from tarry.node.failures import Failures
from tarry.node.monitoring.port import HEAD_BYTES_MAX, LINGER_BYTES_MAX, TEXT, Page, Port, Route
from tarry.replication.loop_holds import Holds

GET = b"GET /page HTTP/1.1\r\nHost: n1\r\n\r\n"
LARGE = Page(200, TEXT, bytes(32 << 20))
"""More than what systems keep for a connection."""
SOON_MS = 50
NEVER_MS = 600_000


async def page() -> Page:
    return Page(200, TEXT, b"text\n")


async def large() -> Page:
    return LARGE


ROUTES: Mapping[str, Route] = {"/page": page, "/large": large}


class Played:
    """A port that listens, and its address."""

    def __init__(self, port: Port, address: str) -> None:
        self.port = port
        host, _, number = address.rpartition(":")
        self.address = host, int(number)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def ask(self, request: bytes, *, end: bool = False) -> bytes:
        """Return all that the port answers until it closes; with ``end`` the client says that it is done."""
        reader, writer = await self.connect()
        writer.write(request)
        if end:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def until_open(self, connections: int) -> None:
        """Wait until the port has so many: what the system does in between tells nobody."""
        while self.port.connections != connections:  # noqa: ASYNC110
            await asyncio.sleep(0)


@asynccontextmanager
async def listening(
    routes: Mapping[str, Route] = ROUTES, connections_max: int = 16, request_ms: int = NEVER_MS
) -> AsyncIterator[Played]:
    """Listen at any free port; whatever nobody awaits fails the test."""
    failures = Failures()
    of = MetricsSettings(listen="127.0.0.1:0", connections_max=connections_max, request_ms=request_ms)
    port = Port(of, routes, Holds())
    watch = asyncio.create_task(failures.watch())
    try:
        yield Played(port, await port.listen())
    finally:
        await port.close()
        assert port.connections == 0
        assert not watch.done()
        watch.cancel()


def status(answer: bytes) -> int:
    version, _, rest = answer.partition(b" ")
    assert version == b"HTTP/1.1"
    return int(rest[:3])


async def test_a_page_is_answered_with_its_length_and_the_connection_closed() -> None:
    async with listening() as played:
        head, _, body = (await played.ask(GET)).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 5",
        b"Cache-Control: no-store",
        b"Connection: close",
    ]
    assert body == b"text\n"


async def test_head_answers_what_get_does_without_the_body() -> None:
    async with listening() as played:
        whole = await played.ask(GET)
        assert await played.ask(GET.replace(b"GET", b"HEAD")) == whole.removesuffix(b"text\n")
        missing = await played.ask(b"HEAD /none HTTP/1.1\r\n\r\n")
    assert status(missing) == 404
    assert missing.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        (b"GET /page HTTP/1.0", 200),
        (b"GET /page? HTTP/1.1", 200),
        (b"GET /page?name[]=x&y HTTP/1.1", 200),
        (b"GET /pages HTTP/1.1", 404),
        (b"GET /page/ HTTP/1.1", 404),
        (b"GET //page HTTP/1.1", 404),
        (b"GET /%70age HTTP/1.1", 404),
        (b"GET http://n1/page HTTP/1.1", 404),
        (b"GET ?/page HTTP/1.1", 404),
        (b"POST /page HTTP/1.1", 405),
        (b"OPTIONS * HTTP/1.1", 405),
        (b"M-SEARCH * HTTP/1.1", 405),
        (b"PRI * HTTP/2.0", 400),
        (b"GET /page HTTP/1.2", 400),
        (b"GET /page HTTP/1.1 ", 400),
        (b"GET  /page HTTP/1.1", 400),
        (b"GET /page", 400),
        (b"GET /page\tHTTP/1.1", 400),
        (b"GET /p\xc3\xa4ge HTTP/1.1", 400),
        (b"GET /page HTTP/1.1\nHost: n1", 400),
        (b"get /page HTTP/1.1", 400),
        (b" GET /page HTTP/1.1", 400),
    ],
)
async def test_the_request_line_alone_decides(request_line: bytes, code: int) -> None:
    async with listening() as played:
        assert status(await played.ask(request_line + b"\r\nHost: n1\r\n\r\n")) == code


async def test_an_unknown_page_names_those_that_there_are() -> None:
    async with listening() as played:
        answer = await played.ask(b"GET / HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nno such page; there are /page, /large\n")


async def test_another_method_is_told_which_there_are() -> None:
    async with listening() as played:
        answer = await played.ask(b"POST /page HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


async def test_who_speaks_tls_is_answered_at_once() -> None:
    async with listening() as played:
        assert status(await played.ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")) == 400


@pytest.mark.parametrize(("over", "code"), [(0, 200), (1, 431)])
async def test_a_head_has_8_kib_at_most(over: int, code: int) -> None:
    start, end = b"GET /page HTTP/1.1\r\nFiller: ", b"\r\n\r\n"
    request = start + b"x" * (HEAD_BYTES_MAX - len(start + end) + over) + end
    async with listening() as played:
        assert status(await played.ask(request)) == code


async def test_a_head_without_an_end_is_refused_at_its_bound() -> None:
    async with listening() as played:
        reader, writer = await played.connect()
        writer.write(b"G" * HEAD_BYTES_MAX)
        assert status(await reader.read()) == 431
        writer.close()


async def test_a_request_may_come_byte_by_byte() -> None:
    async with listening() as played:
        reader, writer = await played.connect()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in GET:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).endswith(b"text\n")
        writer.close()


async def test_who_says_that_it_is_done_is_answered() -> None:
    async with listening() as played:
        assert (await played.ask(GET, end=True)).endswith(b"text\n")
        assert await played.ask(b"", end=True) == b""
        assert await played.ask(GET[:-1], end=True) == b""
        await played.until_open(0)
        assert played.port.ended == 0


async def test_requests_behind_the_first_are_thrown_away() -> None:
    async with listening() as played:
        answer = await played.ask(GET + GET + b"junk\x00" * 1_000)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert answer.endswith(b"text\n")


async def test_who_never_ends_to_send_is_cut_off() -> None:
    async with listening() as played:
        reader, writer = await played.connect()
        writer.write(GET)
        assert (await reader.read()).endswith(b"text\n")
        writer.write(bytes(2 * LINGER_BYTES_MAX))
        await played.until_open(0)
        writer.close()


@pytest.mark.parametrize("begun", [b"", b"G", GET[:-1]])
async def test_a_request_that_does_not_come_in_time_ends_its_connection(begun: bytes) -> None:
    async with listening(request_ms=SOON_MS) as played:
        assert await played.ask(begun) == b""
        assert played.port.ended == 1


async def test_who_does_not_read_is_ended_and_little_was_kept_for_it() -> None:
    async with listening(request_ms=SOON_MS) as played:
        reader, writer = await played.connect()
        writer.write(GET.replace(b"page", b"large"))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        await played.until_open(0)
        assert played.port.ended == 1
        writer.transport.abort()


async def test_who_does_not_close_is_ended() -> None:
    async with listening(request_ms=SOON_MS) as played:
        reader, writer = await played.connect()
        writer.write(GET)
        assert (await reader.read()).endswith(b"text\n")
        await played.until_open(0)
        assert played.port.ended == 1
        writer.close()


async def test_who_goes_while_it_is_answered_does_no_harm() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> Page:
        asked.set()
        await go_on.wait()
        return LARGE

    async with listening({"/page": waits}) as played:
        _, writer = await played.connect()
        writer.write(GET)
        await asked.wait()
        writer.transport.abort()
        go_on.set()
        await played.until_open(0)
        assert played.port.ended == 0


async def test_a_large_page_arrives_whole() -> None:
    async with listening() as played:
        answer = await played.ask(GET.replace(b"page", b"large"))
    assert answer.partition(b"\r\n\r\n")[2] == LARGE.body


async def test_more_connections_than_may_be_are_closed_at_once_and_counted_and_told_now_and_then() -> None:
    async with listening(connections_max=2) as played:
        kept = [await played.connect() for _ in range(2)]
        with capture_logs() as logs:
            for _ in range(3):
                reader, writer = await played.connect()
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
        assert (played.port.connections, played.port.refused) == (2, 3)
        assert [(line["event"], line["so_far"]) for line in logs] == [
            ("metrics connections closed: too many at once", 1)
        ]
        reader, writer = kept[0]
        writer.write(GET)
        assert (await reader.read()).endswith(b"text\n")
        writer.close()
        await played.until_open(1)
        assert (await played.ask(GET)).endswith(b"text\n")
        kept[1][1].close()


async def test_a_page_that_fails_is_an_answer_and_a_line_in_the_log() -> None:
    async def fails() -> Page:
        raise ValueError("wrong")

    async with listening({"/page": fails}) as played:
        with capture_logs() as logs:
            assert status(await played.ask(GET)) == 500
            assert status(await played.ask(GET)) == 500
    assert [line["event"] for line in logs] == ["an error in a call"]


async def test_closing_ends_what_is_open() -> None:
    async with listening() as played:
        begun = [await played.connect() for _ in range(3)]
        begun[0][1].write(GET[:-1])
        await played.until_open(3)
        await played.port.close()
        for reader, writer in begun:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await played.connect()


async def test_closing_a_port_that_does_not_listen_does_nothing() -> None:
    await Port(MetricsSettings(), ROUTES, Holds()).close()


async def test_an_address_that_is_taken_is_an_error() -> None:
    async with listening() as played:
        host, number = played.address
        with pytest.raises(OSError, match="in use"):
            await Port(MetricsSettings(listen=f"{host}:{number}"), ROUTES, Holds()).listen()


async def test_an_address_of_ipv6_may_stand_in_brackets() -> None:
    port = Port(MetricsSettings(listen="[::1]:0"), ROUTES, Holds())
    try:
        address = await port.listen()
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert address.startswith("[::1]:")
    await port.close()


PIECES = st.sampled_from(
    [b"GET", b"HEAD", b" ", b"/page", b"HTTP/1.1", b"\r\n", b"\r\n\r\n", b"\n", b"\0", b"?", b":", b"\xff"]
)
GARBAGE = st.lists(PIECES | st.binary(max_size=40), max_size=20).map(b"".join) | st.binary(
    max_size=3 * HEAD_BYTES_MAX
)


@given(GARBAGE)
@example(b"GET /page HTTP/1.1\r\n\r\n" * 1_000)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_garbage_is_answered_or_closed_and_the_next_is_served(garbage: bytes) -> None:
    async def play() -> None:
        async with listening() as played:
            try:
                answer = await played.ask(garbage, end=True)
            except ConnectionError:
                answer = b""
            assert not answer or status(answer) in {200, 400, 404, 405, 431}
            assert (await played.ask(GET)).endswith(b"text\n")

    asyncio.run(play())
